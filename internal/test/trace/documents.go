package trace

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

// A documentOperation is what a command of package doclock does to one document.
type documentOperation struct {
	kind string // claim, hand over, renew, finish, release; note: what changes neither holder nor value
	key  string
	id   string // of the claim, or of the holder that it names

	from    string // the holder whose place it takes
	or      string // another one that it may find
	drops   int64  // its beat, of one that is over
	beat    int64
	lasts   int64
	until   bson.DateTime
	epoch   bson.ObjectID
	soft    bool // one node acknowledges it
	saves   bool
	changes []string
}

// documentOperations are what a command does to documents.
func documentOperations(c docdb.Command) (all []documentOperation) {
	concern, _ := field(c.Body, "writeConcern").(bson.D)
	add := func(filter, update any) {
		q, _ := filter.(bson.D)
		u, _ := update.(bson.D)
		o := documentOperation{soft: field(concern, "w") != "majority"}
		if o.reads(q); o.key != "" {
			o.writes(u)
			all = append(all, o)
		}
	}
	switch c.Name {
	case "findAndModify":
		add(field(c.Body, "query"), field(c.Body, "update"))
	case "update":
		for _, statement := range documents(field(c.Body, "updates")) {
			add(field(statement, "q"), field(statement, "u"))
		}
	}
	return all
}

func (o *documentOperation) reads(filter bson.D) {
	for _, e := range filter {
		switch e.Key {
		case "_id":
			o.key, _ = e.Value.(string)
		case "lock.id":
			o.from, _ = e.Value.(string)
			if d, ok := e.Value.(bson.D); ok { // of a clean-up: its own, or that of a hand-over
				ids, _ := field(d, "$in").(bson.A)
				for i, id := range ids {
					if i == 0 {
						o.from, _ = id.(string)
					} else {
						o.or, _ = id.(string)
					}
				}
			}
		case "lock.beat":
			o.drops, _ = e.Value.(int64)
		}
	}
}

func (o *documentOperation) writes(update bson.D) {
	set, _ := field(update, "$set").(bson.D)
	unset, _ := field(update, "$unset").(bson.D)
	most, _ := field(update, "$max").(bson.D)
	list, saves := field(set, "changes").(bson.A)
	for _, c := range list {
		o.changes = append(o.changes, fmt.Sprint(c))
	}
	o.saves = saves
	o.id, _ = field(set, "lock.id").(string)
	o.beat, _ = field(set, "lock.beat").(int64)
	if beat, ok := field(most, "lock.beat").(int64); ok {
		o.beat = beat
	}
	o.lasts = number(field(set, "lock.ttl"))
	o.until, _ = field(set, "lock.expireAt").(bson.DateTime)
	o.epoch, _ = field(set, "lock.epoch").(bson.ObjectID)
	leaves := field(unset, "lock") != nil || field(unset, "lock.id") != nil
	switch {
	case o.id != "" && (o.from == "" || o.drops != 0):
		o.kind = "claim"
	case o.id != "":
		o.kind = "hand over"
	case leaves && saves:
		o.kind, o.id, o.from = "finish", o.from, o.or
	case leaves && o.from != "": // otherwise nobody holds it
		o.kind, o.id, o.from = "release", o.from, o.or
	case field(most, "lock.expireAt") != nil:
		o.kind, o.id, o.from = "renew", o.from, ""
		o.lasts = number(field(most, "lock.ttl"))
		o.until, _ = field(most, "lock.expireAt").(bson.DateTime)
	default:
		o.kind = "note"
	}
}

// A documentBuilder makes the behaviour of one document.
type documentBuilder struct {
	course
	ids      map[string]int
	changes  map[string]int
	beats    map[int64]*documentSent
	commands map[*simulation.Command][]*documentSent
	first    map[string]*documentSent // by session, number and place
}

type documentSent struct {
	documentOperation
	of *simulation.Command
	at int
}

// Documents are the behaviours of a recording of clients that change documents, one for each.
func Documents(seed uint64, r *simulation.Recording) (all []*Behaviour, commands, covered int) {
	key := func(o documentOperation) string { return o.key }
	return each(r, !r.Routers, documentOperations, key, func(key string) *Behaviour {
		b := &documentBuilder{
			course: newCourse(r, key, &Behaviour{Name: fmt.Sprintf("seed %d, document %q", seed, key), of: &ofDocuments}),
			ids:    map[string]int{}, changes: map[string]int{}, beats: map[int64]*documentSent{},
			commands: map[*simulation.Command][]*documentSent{}, first: map[string]*documentSent{},
		}
		b.follow(b)
		b.over()
		b.out.IDs = len(b.ids)
		b.out.fields = fmt.Sprintf("skew |-> %d", units(r.Skew))
		return b.out
	})
}

func (b *documentBuilder) named(all map[string]int, name string) int {
	if name != "" && all[name] == 0 {
		all[name] = len(all) + 1
	}
	return all[name]
}

func (b *documentBuilder) describe(o *documentSent) string {
	return fmt.Sprintf("%s of lock %d by client %d", o.kind, b.named(b.ids, o.id), o.of.Client)
}

func (b *documentBuilder) list(names []string) string {
	terms := make([]string, len(names))
	for i, n := range names {
		terms[i] = fmt.Sprint(b.named(b.changes, n))
	}
	return "<<" + strings.Join(terms, ", ") + ">>"
}

func (b *documentBuilder) sends(s simulation.Step) {
	if s.Command.NS() != locks {
		return
	}
	for i, o := range documentOperations(s.Command.Command) {
		if o.kind == "note" || o.key != b.key {
			continue
		}
		again := fmt.Sprint(s.Command.Session, " ", s.Command.Number, " ", i)
		if before := b.first[again]; before != nil && s.Command.Number > 0 {
			b.commands[s.Command] = append(b.commands[s.Command], before)
			b.step(s.At, sends, fmt.Sprintf("client %d sends again %s", s.Command.Client, b.describe(before)), `"again", %d`, before.at)
			continue
		}
		sent := &documentSent{documentOperation: o, of: s.Command}
		b.first[again] = sent
		b.commands[s.Command] = append(b.commands[s.Command], sent)
		b.out.Sent++
		sent.at = len(b.out.Commands) + 1
		if o.beat != 0 {
			b.beats[o.beat] = sent
		}
		drops := 0
		if o.drops != 0 {
			if drops = -1; b.beats[o.drops] != nil {
				drops = b.beats[o.drops].at
			}
		}
		b.out.Commands = append(b.out.Commands, fmt.Sprintf(`<<"%s", %d, %d, %d, %d, %d, %d, %d, %s, %s, %s>>`, o.kind, b.named(b.ids, o.id), b.named(b.ids, o.from), drops,
			units(s.Command.Began), o.lasts*10, dateOrZero(o.until), b.epoch(o.epoch), boolean(o.soft), boolean(o.saves), b.list(o.changes)))
		b.step(s.At, sends, fmt.Sprintf("client %d sends %s", s.Command.Client, b.describe(sent)), `"send", %d`, sent.at)
	}
}

func (b *documentBuilder) runs(s simulation.Step) {
	writes := s.Writes
	for _, o := range b.commands[s.Command] {
		for i, e := range writes {
			if e.NS != locks || keyOf(e) != b.key {
				continue
			}
			at := s.Length + len(s.Writes) - len(writes) + i + 1
			writes = writes[i+1:]
			b.log[s.Term] = append(b.log[s.Term], at)
			lock, _ := field(e.After, "lock").(bson.D)
			id, _ := field(lock, "id").(string)
			changes := ""
			if o.saves {
				var names []string
				list, _ := field(e.After, "changes").(bson.A)
				for _, c := range list {
					names = append(names, fmt.Sprint(c))
				}
				changes = ", " + b.list(names)
			}
			b.step(s.At, first, fmt.Sprintf("the primary of term %d executes %s", s.Term, b.describe(o)), `"run", %d, %d, %d, <<%d%s>>`, o.at, s.Term, clock(s.Clock), b.named(b.ids, id), changes)
			break
		}
	}
}

func (b *documentBuilder) answers(s simulation.Step) {
	if !succeeded(s.Reply) || s.Command == nil || s.Command.Name != "findAndModify" {
		return
	}
	for _, o := range b.commands[s.Command] {
		who := fmt.Sprintf("client %d", s.Command.Client)
		if field(s.Reply, "value") == nil {
			b.step(s.At, first, fmt.Sprintf("%s is told that nothing was found for %s", who, b.describe(o)), `"missed", %d`, o.at)
			continue
		}
		b.step(s.At, first, fmt.Sprintf("%s has the answer to %s", who, b.describe(o)), `"answer", %d`, o.at)
	}
}

// notes is how a change ended for its caller.
func (b *documentBuilder) notes(s simulation.Step) {
	e := s.Event
	if e.Key != b.key || e.Kind != history.Wrote && e.Kind != history.Failed {
		return
	}
	n := b.named(b.changes, e.ID)
	b.step(s.At, calls, fmt.Sprintf("client %d is told that change %d is %s", e.Client, n, e.Note), `"told", %d, "%s"`, n, e.Note)
}
