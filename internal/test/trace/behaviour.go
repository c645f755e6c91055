package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

// locks is the collection of the keys, in the simulation.
const locks = "sim.locks"

// serverEpoch is what a server's time counts from in a behaviour: earlier than all of them.
var serverEpoch = time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)

// unit is the precision of a behaviour's times: the numbers of TLC have 32 bits.
const unit = 100 * time.Microsecond

func units(d time.Duration) int { return int(d / unit) }

// clock is a server's time.
func clock(t time.Time) int { return units(t.Sub(serverEpoch)) }

func date(d bson.DateTime) int { return clock(d.Time()) }

// A Behaviour is what became of one key, or of one tree of path locks.
type Behaviour struct {
	Name        string
	of          *specification
	fields      string // of its record, beside commands and steps
	TTL, Margin int
	IDs         int
	Commands    []string // as terms of TLA+
	Steps       []Step
	Sent        int // how many commands of clients it has
}

// A Step is one step of a behaviour, for TLC and for people.
type Step struct {
	Term, Text string

	at      time.Duration
	order   int
	command int  // that it is about; from 1 on
	wrote   bool // in the log of the newest primary; the term shows the holders
	gone    bool // it removed what it is about
	elected bool // another primary
	settled bool // a majority has all
}

// Behaviours are those of a recording, one for each key.
func Behaviours(seed uint64, r *simulation.Recording) (all []*Behaviour, commands, covered int) {
	key := func(o operation) string { return o.key }
	return each(r, true, operations, key, func(key string) *Behaviour {
		b := newBuilder(seed, key, r)
		b.meet()
		b.follow(b)
		b.place("attempt", b.lives(), b.free)
		return b.out
	})
}

// each makes the behaviours of a recording, one for each key, and counts the commands: all, and those that they have. A recording
// that is not asked about has none: its commands count all the same.
func each[O any](r *simulation.Recording, asked bool, operations func(docdb.Command) []O, key func(O) string, behaviour func(string) *Behaviour) (all []*Behaviour, commands, covered int) {
	var keys []string
	for _, s := range r.Steps {
		if s.Kind != simulation.Sent || s.Command.NS() != locks {
			continue
		}
		commands++
		for _, o := range operations(s.Command.Command) {
			if k := key(o); !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	if !asked {
		return nil, commands, 0
	}
	for _, k := range keys {
		b := behaviour(k)
		covered += b.Sent
		all = append(all, b)
	}
	return all, commands, covered
}

// A course is the part of a behaviour that each has: its steps, and the logs of primaries.
type course struct {
	out    *Behaviour
	run    *simulation.Recording
	epochs map[bson.ObjectID]int

	log  map[int][]int // of each term: where its log has writes of the behaviour
	has  int           // how many of them a majority has
	term int           // of the primary that has the key

	key   string
	shard int           // where the key is
	terms map[reign]int // of primaries behind routers; nil: the terms are those of the set
}

// A reign is a primary of a shard, while a key is there. Behind routers the behaviour of a key has one term after the other
// for those that have it: a migration is an election that loses nothing, by which all else is another primary's.
type reign struct{ shard, term int }

// reigns is the term of the primary that took a step, as the behaviour has it. It had the key then, or had it last before the
// one that has it now.
func (b *course) reigns(s simulation.Step) (term int, has bool) {
	if b.terms == nil {
		return s.Term, true
	}
	term, known := b.terms[reign{s.Shard, s.Term}]
	return term, known && s.Shard == b.shard
}

// takesOver has the next term begin for the primary of a step.
func (b *course) takesOver(s simulation.Step) (term int) {
	if b.terms == nil {
		return s.Term
	}
	term = b.term + 1
	b.terms[reign{s.Shard, s.Term}], b.shard = term, s.Shard
	return term
}

func newCourse(r *simulation.Recording, key string, out *Behaviour) course {
	c := course{out: out, run: r, key: key, term: 1, epochs: map[bson.ObjectID]int{{}: 0}, log: map[int][]int{}}
	if r.Routers {
		c.shard = r.Home[key]
		c.terms = map[reign]int{{c.shard, 1}: 1}
	}
	return c
}

// A walker makes steps of what clients and primaries did.
type walker interface {
	sends(s simulation.Step)
	runs(s simulation.Step)
	answers(s simulation.Step)
	notes(s simulation.Step)
}

// follow makes the steps of a run, and sorts them.
func (b *course) follow(w walker) {
	for _, s := range b.run.Steps {
		switch s.Kind {
		case simulation.Sent:
			w.sends(s)
		case simulation.Ran:
			w.runs(s)
		case simulation.Answered:
			w.answers(s)
		case simulation.Committed:
			b.commits(s)
		case simulation.Elected:
			b.elects(s)
		case simulation.Noted:
			w.notes(s)
		case simulation.Moved:
			b.moves(s)
		case simulation.Killed:
		}
	}
	slices.SortStableFunc(b.out.Steps, func(x, y Step) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.order, y.order))
	})
}

// A builder makes the behaviour of one key.
type builder struct {
	course

	ids      map[string]int    // from 1 on
	sessions map[string]string // the ID of the claim that a session is of
	revs     map[int64]*sent   // the command that writes it
	beats    []int64           // all of them, in order
	tokens   []int64

	commands map[*simulation.Command][]*sent
	first    map[string]*sent // by session, number and statement
	hellos   map[int][]hello  // by client
	asked    map[*simulation.Command]time.Duration
	claims   map[string]*sent // the first of each ID
	places   map[string]int   // in line
}

// A sent is an operation of a command that was sent.
type sent struct {
	operation
	of     *simulation.Command
	n      int // its number: in the session of its claim, or of its own
	at     int // its place among the behaviour's commands; from 1 on
	inside bool
	hit    bool
}

// A hello is what a server told of itself.
type hello struct {
	sent  time.Duration
	epoch bson.ObjectID
	time  bson.DateTime
}

func newBuilder(seed uint64, key string, r *simulation.Recording) *builder {
	return &builder{
		course: newCourse(r, key, &Behaviour{
			Name: fmt.Sprintf("seed %d, %q", seed, key), TTL: units(r.TTL), Margin: units(r.Margin), of: &ofLocks,
			fields: "numbered |-> " + boolean(r.Numbered) + ", routers |-> " + boolean(r.Routers),
		}),
		ids: map[string]int{}, sessions: map[string]string{}, revs: map[int64]*sent{},
		commands: map[*simulation.Command][]*sent{}, first: map[string]*sent{}, hellos: map[int][]hello{},
		asked: map[*simulation.Command]time.Duration{}, claims: map[string]*sent{}, places: map[string]int{},
	}
}

// meet numbers what later steps speak of.
func (b *builder) meet() {
	for _, s := range b.run.Steps {
		switch s.Kind {
		case simulation.Sent:
			b.meetCommand(s.Command)
		case simulation.Ran:
			for _, e := range s.Writes {
				for _, h := range holdersOf(e.After) {
					b.beats = append(b.beats, number(field(h.Value.(bson.D), "beat")))
				}
			}
		case simulation.Noted:
			if s.Event.Kind == history.Granted && s.Event.Key == b.key {
				b.tokens = append(b.tokens, s.Event.Token)
			}
		default:
		}
	}
	b.beats, b.tokens = inOrder(b.beats), inOrder(b.tokens)
}

func (b *builder) meetCommand(c *simulation.Command) {
	if c.NS() != locks {
		return
	}
	for i, o := range operations(c.Command) {
		if o.key != b.key {
			continue
		}
		if o.kind == "insert" {
			o.rev, o.named = o.named, 0
		}
		s := &sent{operation: o, of: c}
		again := fmt.Sprint(c.Session, " ", c.Number, " ", i)
		if before := b.first[again]; before != nil && c.Number > 0 {
			b.commands[c] = append(b.commands[c], before)
			continue
		}
		b.first[again] = s
		b.commands[c] = append(b.commands[c], s)
		if o.id != "" && b.ids[o.id] == 0 {
			b.ids[o.id] = len(b.ids) + 1
		}
		if o.kind == "insert" || o.kind == "swap" || o.kind == "join" {
			b.sessions[c.Session] = o.id
			if b.claims[o.id] == nil {
				b.claims[o.id] = s
			}
		}
		if o.rev != 0 && !o.moves {
			b.revs[o.rev] = s
		}
		b.beats = append(b.beats, o.beat)
		for _, d := range o.drop {
			b.beats = append(b.beats, d.beat)
		}
	}
}

func inOrder(n []int64) []int64 { return slices.Compact(slices.Sorted(slices.Values(n))) }

func rank(all []int64, n int64) int {
	at, _ := slices.BinarySearch(all, n)
	return at + 1
}

// epoch numbers an election as the simulation does, and any other label from 1000 on.
func (b *course) epoch(id bson.ObjectID) int {
	if id[0] == 0x7f && id[1] == 0xff && id[2] == 0xff && id[3] == 0xff {
		return int(id[10])<<8 | int(id[11])
	}
	n, known := b.epochs[id]
	if !known {
		n = 1000 + len(b.epochs)
		b.epochs[id] = n
	}
	return n
}

// step adds a step. The steps of one instant come in this order: what a server did, what a user
// was told, and what was sent because of it.
func (b *course) step(at time.Duration, order int, text, format string, args ...any) *Step {
	term := fmt.Sprintf("<<%d, %s>>", units(at), fmt.Sprintf(format, args...))
	b.out.Steps = append(b.out.Steps, Step{Term: term, Text: fmt.Sprintf("at %v %s", at, text), at: at, order: order})
	return &b.out.Steps[len(b.out.Steps)-1]
}

// over adds the end.
func (b *course) over() {
	at := b.out.Steps[len(b.out.Steps)-1].at
	b.out.Steps = append(b.out.Steps, Step{Term: fmt.Sprintf(`<<%d, "over">>`, units(at)), Text: "at the end", at: at})
}

func (b *builder) attempt(id string) string { return placeOf(b.ids[id]) }

// The order of steps in one instant.
const (
	first = iota
	calls
	letsGo
	told
	sends
	last
)
