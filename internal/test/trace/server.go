package trace

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

// runs is what a primary made of a command.
func (b *builder) runs(s simulation.Step) {
	term, has := b.reigns(s)
	elsewhere := !has && slices.ContainsFunc(s.Writes, func(e docdb.Entry) bool {
		return e.NS == locks && (e.Before != nil || e.After != nil) && keyOf(e) == b.key
	})
	switch {
	case s.Command == nil, !has && !elsewhere:
		return
	case elsewhere:
		term = -1 // of a shard that does not have the key: the specification has no such primary
	}
	s.Term = term
	writes := s.Writes
	for _, o := range b.commands[s.Command] {
		hit := false
		for i, e := range writes {
			if e.NS == locks && keyOf(e) == b.key && o.wrote(e) {
				at := s.Length + len(s.Writes) - len(writes) + i + 1
				hit, writes = true, writes[i+1:]
				b.log[s.Term] = append(b.log[s.Term], at)
				b.ran(s, o, hit, e.After)
				break
			}
		}
		if !hit {
			b.ran(s, o, hit, nil)
		}
	}
}

func keyOf(e docdb.Entry) string {
	doc := e.After
	if doc == nil {
		doc = e.Before
	}
	key, _ := doc[0].Value.(string)
	return key
}

// wrote reports whether a write may be the operation's: bulks have several.
func (o *sent) wrote(e docdb.Entry) bool {
	before, after := field(holdersOf(e.Before), o.id), field(holdersOf(e.After), o.id)
	switch o.kind {
	case "leave", "release":
		return o.id == "" || before != nil && after == nil
	case "renew":
		return after != nil && (o.beat == 0 || number(field(after.(bson.D), "beat")) == o.beat)
	}
	return true
}

func (b *builder) ran(s simulation.Step, o *sent, hit bool, after bson.D) {
	o.hit = o.hit || hit
	document := "<<>>"
	if hit && after != nil {
		if o.moves {
			b.revs[number(field(after, "rev"))] = o
		}
		document = b.document(after)
	}
	what := "finds nothing for"
	if hit {
		what = "executes"
	}
	step := b.step(s.At, first, fmt.Sprintf("the primary of term %d %s %s", s.Term, what, b.describe(o)),
		`"run", %d, %d, %s, %d, %s`, o.at, s.Term, boolean(hit), clock(s.Clock), document)
	step.command, step.wrote = o.at, hit && s.Term == b.term
}

// document is a document as TLC is told of it.
func (b *builder) document(d bson.D) string {
	var holders []string
	for _, h := range holdersOf(d) {
		v, _ := h.Value.(bson.D)
		end, _ := field(v, "expireAt").(bson.DateTime)
		epoch, _ := field(v, "epoch").(bson.ObjectID)
		barred := field(v, "released") != nil || field(v, "broken") != nil
		holders = append(holders, fmt.Sprintf("<<%s, %d, %d, %d, %s>>", b.attempt(h.Key), rank(b.beats, number(field(v, "beat"))), b.epoch(epoch), date(end), boolean(barred)))
	}
	line, _ := field(d, "line").(bson.A)
	return fmt.Sprintf("<<%s, {%s}, <<%s>>>>", b.rev(number(field(d, "rev"))), strings.Join(holders, ", "), b.inLine(names(line)...))
}

func dateOrZero(d bson.DateTime) int {
	if d == 0 {
		return 0
	}
	return date(d)
}

func boolean(is bool) string {
	if is {
		return "TRUE"
	}
	return "FALSE"
}

// rev names the command that wrote a revision.
func (b *builder) rev(id int64) string {
	if s := b.revs[id]; s != nil {
		return fmt.Sprint(s.at)
	}
	return "0"
}

// commits moves what a majority has.
func (b *course) commits(s simulation.Step) {
	if term, has := b.reigns(s); !has || term != b.term {
		return
	}
	left := 0
	for _, n := range b.log[b.term] {
		if n > s.Length {
			left++
		}
	}
	has := len(b.log[b.term]) - left
	if has <= b.has {
		return
	}
	b.has = has
	b.step(s.At, first, "a majority has the log", `"commit", %d`, left).settled = left == 0
}

// elects begins another term, with a part of the log of the last.
func (b *course) elects(s simulation.Step) {
	before := s
	before.Term = s.From
	from, has := b.reigns(before)
	switch {
	case has:
	case s.Shard == b.shard:
		from = b.term // it had the key since the last migration
	default:
		return
	}
	kept := slices.DeleteFunc(slices.Clone(b.log[from]), func(n int) bool { return n > s.Length })
	lost := len(b.log[from]) - len(kept)
	b.term = b.takesOver(s)
	b.log[b.term] = kept
	b.step(s.At, first, fmt.Sprintf("the primary of term %d is elected, without the last %d writes", b.term, lost), `"elect", %d, %d`, b.term, lost).elected = true
}

// moves is a migration. A majority of the shard that gives the document up has all of it, and so has one of the other.
func (b *course) moves(s simulation.Step) {
	if s.Key != b.key {
		return
	}
	if b.has < len(b.log[b.term]) {
		b.step(s.At, first, "a majority has the log", `"commit", 0`).settled = true
	}
	b.term, b.has = b.takesOver(s), 0
	b.step(s.At, first, fmt.Sprintf("the document moves to shard %d, to the primary of term %d", s.Shard, b.term), `"elect", %d, 0`, b.term).elected = true
}
