package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

// describe names a command for people.
func (b *builder) describe(o *sent) string {
	id := ""
	if o.id != "" {
		id = fmt.Sprintf(" of attempt %d", b.ids[o.id])
	}
	kind := o.kind
	if kind == "" {
		kind = "a command that is no row of §4.4"
	}
	return fmt.Sprintf("%s%s by client %d", kind, id, o.of.Client)
}

// sends is a command on its way, the first time that the driver sends it.
func (b *builder) sends(s simulation.Step) {
	if s.Command.Name == "hello" {
		b.asked[s.Command] = s.At
		return
	}
	counted := false
	for _, o := range b.commands[s.Command] {
		if !counted {
			counted = true
			b.out.Sent++
		}
		if o.at > 0 {
			continue // the driver sends it again
		}
		o.at = len(b.out.Commands) + 1
		b.number(o)
		b.transfers(o)
		b.out.Commands = append(b.out.Commands, b.command(o))
		b.step(s.At, sends, "client "+fmt.Sprint(o.of.Client)+" sends "+b.describe(o), `"send", %d, %s, %d`, o.at, b.told(o), clock(s.Clock)).command = o.at
	}
}

// number gives the command its number: that of its transaction in the session of its claim,
// else one of its own.
func (b *builder) number(o *sent) {
	owner := b.sessions[o.of.Session]
	if o.id == "" && (o.kind == "note" || o.kind == "look") {
		o.id = owner // of the claim that stands in line, or looks
	}
	if o.of.Number > 0 && owner != "" {
		if o.inside = o.id == owner || o.kind == "undo" && o.old == owner; o.inside {
			o.n = int(o.of.Number)
			return
		}
	}
	o.n = 1000 + o.at
}

// transfers tells a transfer from a swap, which look alike where there is no holder to name:
// it names the revision of an exclusive grant of its own client, or the holder, and asks nothing of the line.
func (b *builder) transfers(o *sent) {
	if o.old == o.id {
		o.old = ""
	}
	if o.kind != "swap" || len(o.drop) > 0 || o.unheld || o.line.asks() {
		return
	}
	from := b.revs[o.named]
	switch {
	case o.old != "" || o.named == 0:
		o.kind = "transfer"
	case from != nil && from.mode == "exclusive" && from.kind != "min-hold":
		o.kind, o.old = "transfer", from.id
	}
}

// command is the command as a term.
func (b *builder) command(o *sent) string {
	drop := make([]string, len(o.drop))
	for i, d := range o.drop {
		drop[i] = fmt.Sprintf("<<%s, %d>>", b.attempt(d.id), rank(b.beats, d.beat))
	}
	rev := b.rev(o.named)
	mode, permits := o.mode, 0
	switch {
	case o.joins:
		permits = -1
	case mode == "permits":
		mode, permits = "shared", 1
	}
	beat := 0
	if o.beat > 0 {
		beat = rank(b.beats, o.beat)
	}
	all := fmt.Sprintf(`<<%d, "%s", %s, %d, %d, %d, %d`, o.at, o.kind, b.attempt(o.id), o.n, o.flags(), o.of.Client, units(o.of.Began))
	rest := fmt.Sprintf(`, "%s", %d, %d, %d, %d, %d, %s, {%s}, %s, %d`,
		mode, permits, beat, b.epoch(o.epoch), dateOrZero(o.end), units(time.Duration(o.lasts)*time.Millisecond), rev, strings.Join(drop, ", "), b.attempt(o.old),
		dateOrZero(o.recent))
	if rest == nothing {
		rest = ""
	}
	return all + rest + b.standing(o.line) + ">>"
}

// standing is what a command asks of the line and does to it, as the end of its term: nothing, if it does neither.
func (b *builder) standing(s standing) string {
	if !s.asks() && len(s.out) == 0 && s.joins == "" {
		return ""
	}
	spots := make([]string, len(s.spots))
	for i, at := range s.spots {
		spots[i] = fmt.Sprintf("<<%d, %s>>", at.n, b.inLine(at.place))
	}
	return fmt.Sprintf(", <<{%s}, <<%s>>, {%s}, %s, %d>>", strings.Join(spots, ", "), b.inLine(s.whole...), b.inLine(s.out...), b.inLine(s.joins), s.behind)
}

// inLine are the numbers of places in line; 0 is none.
func (b *builder) inLine(places ...string) string {
	numbers := make([]string, len(places))
	for i, p := range places {
		if p != "" && b.places[p] == 0 {
			b.places[p] = len(b.places) + 1
		}
		numbers[i] = strconv.Itoa(b.places[p])
	}
	return strings.Join(numbers, ", ")
}

// nothing is the rest of a command that writes no lease and asks for none: it is left out. TLC takes
// most of its time to read the terms.
const nothing = `, "", 0, 0, 0, 0, 0, 0, {}, 0, 0`

// flags are the command's conditions, as bits.
func (o *sent) flags() (bits int) {
	for i, set := range []bool{o.inside, o.earlier, o.judged, o.line.nobody, o.stays, o.unheld, o.majorly, o.sharable, o.line.dated} {
		if set {
			bits |= 1 << i
		}
	}
	return bits
}

// told are the hellos that a claim may judge by: the last few that its client was answered.
func (b *builder) told(o *sent) string {
	if len(o.drop) == 0 || b.run.Routers { // a router tells no election, and the time of another machine
		return "{}"
	}
	list := b.hellos[o.of.Client]
	list = list[max(0, len(list)-4):]
	terms := make([]string, len(list))
	for i, h := range list {
		terms[i] = fmt.Sprintf("<<%d, %d, %d>>", units(h.sent), b.epoch(h.epoch), date(h.time))
	}
	return "{" + strings.Join(terms, ", ") + "}"
}

// answers is a reply that came. An error that leaves the outcome open is no answer.
func (b *builder) answers(s simulation.Step) {
	if s.Command == nil {
		return
	}
	if s.Command.Name == "hello" {
		b.hears(s)
		return
	}
	refused := number(field(s.Reply, "code")) == 11000
	if ok, _ := field(s.Reply, "ok").(float64); ok != 1 && !refused || field(s.Reply, "writeConcernError") != nil {
		return
	}
	for _, o := range b.commands[s.Command] {
		hit := o.hit
		if s.Command.Name == "findAndModify" {
			hit = !refused && field(s.Reply, "value") != nil
		}
		b.step(s.At, first, "client "+fmt.Sprint(o.of.Client)+" has the answer to "+b.describe(o), `"answer", %d, %s, %d`, o.at, boolean(hit), units(s.Took)).command = o.at
	}
}

func (b *builder) hears(s simulation.Step) {
	primary, _ := field(s.Reply, "isWritablePrimary").(bool)
	epoch, elected := field(s.Reply, "electionId").(bson.ObjectID)
	if !primary || !elected && field(s.Reply, "setName") != nil {
		epoch = bson.ObjectID{1} // it tells no election: a label that no holder has
	}
	at, _ := field(s.Reply, "localTime").(bson.DateTime)
	b.hellos[s.Command.Client] = append(b.hellos[s.Command.Client], hello{b.asked[s.Command], epoch, at})
}

// notes is what a user of a lease sees and does.
func (b *builder) notes(s simulation.Step) {
	e := s.Event
	p := b.ids[e.ID]
	if e.Key != b.key || p == 0 {
		return
	}
	who := fmt.Sprintf("client %d ", e.Client)
	switch e.Kind {
	case history.Granted:
		b.step(s.At, calls, fmt.Sprintf("%sis granted attempt %d", who, p), `"has", %s, %d, %s`, b.attempt(e.ID), rank(b.tokens, e.Token), boolean(e.Note == history.Resumed))
	case history.LetGo:
		b.step(s.At, letsGo, fmt.Sprintf("%slets go of attempt %d", who, p), `"lets go", %s`, b.attempt(e.ID))
	case history.Told:
		b.step(s.At, told, fmt.Sprintf("%sis told that attempt %d is over", who, p), `"told", %s`, b.attempt(e.ID))
	default:
	}
}

// hindered reports whether a client could not send for some time between two: it was killed
// or cut off, or there was no primary.
func hindered(run *simulation.Recording, client int, began, until time.Duration) bool {
	return slices.ContainsFunc(run.Steps, func(s simulation.Step) bool {
		switch {
		case s.Kind == simulation.Killed:
			return s.Event.Client == client
		case s.Kind != simulation.Noted || s.Event.Kind != history.Trouble || s.At > until || s.Event.Until < began:
			return false
		}
		return s.Event.Note == history.Failover || s.Event.Client == client && s.Event.Note == "cut off"
	})
}
