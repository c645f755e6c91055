package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/history"
	"github.com/mongolock/mongolock/internal/simulation"
)

// locks is the collection of the keys, in the simulation.
const locks = "sim.locks"

// serverEpoch is what a server's time counts from in a behaviour: earlier than all of them.
var serverEpoch = time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)

// unit is the precision of a behaviour's times: the numbers of TLC have 32 bits.
const unit = 100 * time.Microsecond

func units(d time.Duration) int { return int(d / unit) }

func date(d bson.DateTime) int { return units(d.Time().Sub(serverEpoch)) }

// A Behaviour is what became of one key.
type Behaviour struct {
	Name        string
	TTL, Margin int
	Numbered    bool
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
	settled bool // a majority has all
}

// Behaviours are those of a recording, one for each key. A run behind routers has none: the
// specification has one primary, and a key there may be on either shard.
func Behaviours(seed uint64, r *simulation.Recording) (all []*Behaviour, commands, covered int) {
	var keys []string
	for _, s := range r.Steps {
		if s.Kind != simulation.Sent || s.Command.NS() != locks {
			continue
		}
		commands++
		for _, o := range operations(s.Command.Command) {
			if !slices.Contains(keys, o.key) {
				keys = append(keys, o.key)
			}
		}
	}
	if r.Routers {
		return nil, commands, 0
	}
	for _, key := range keys {
		b := newBuilder(seed, key, r)
		b.build()
		covered += b.out.Sent
		all = append(all, b.out)
	}
	return all, commands, covered
}

// A builder makes the behaviour of one key.
type builder struct {
	key string
	run *simulation.Recording
	out *Behaviour

	ids      map[string]int    // from 1 on
	sessions map[string]string // the ID of the claim that a session is of
	revs     map[int64]*sent   // the command that writes it
	beats    []int64           // all of them, in order
	tokens   []int64
	epochs   map[bson.ObjectID]int

	commands map[*simulation.Command][]*sent
	first    map[string]*sent // by session, number and statement
	hellos   map[int][]hello  // by client
	asked    map[*simulation.Command]time.Duration
	claims   map[string]*sent // the first of each ID
	granted  map[string]bool

	log  map[int][]int // of each term: where its log has writes for the key
	has  int           // how many of them a majority has
	term int
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
		key: key, run: r, term: 1,
		out: &Behaviour{
			Name: fmt.Sprintf("seed %d, %q", seed, key), TTL: units(r.TTL), Margin: units(r.Margin), Numbered: r.Numbered,
		},
		ids: map[string]int{}, sessions: map[string]string{}, revs: map[int64]*sent{}, epochs: map[bson.ObjectID]int{{}: 0},
		commands: map[*simulation.Command][]*sent{}, first: map[string]*sent{}, hellos: map[int][]hello{},
		asked: map[*simulation.Command]time.Duration{}, claims: map[string]*sent{}, granted: map[string]bool{}, log: map[int][]int{},
	}
}

func (b *builder) build() {
	b.meet()
	for _, s := range b.run.Steps {
		switch s.Kind {
		case simulation.Sent:
			b.sends(s)
		case simulation.Ran:
			b.runs(s)
		case simulation.Answered:
			b.answers(s)
		case simulation.Committed:
			b.commits(s.Term, s.Length, s.At)
		case simulation.Elected:
			b.elects(s)
		case simulation.Noted:
			b.notes(s)
		case simulation.Killed:
		}
	}
	slices.SortStableFunc(b.out.Steps, func(x, y Step) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.order, y.order))
	})
	b.place()
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

func holdersOf(doc bson.D) bson.D {
	holders, _ := field(doc, "holders").(bson.D)
	return holders
}

// epoch numbers an election as the simulation does, and any other label from 1000 on.
func (b *builder) epoch(id bson.ObjectID) int {
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

// step adds a step. What happens in one instant comes in this order: what a server did, what a
// user was told, and what was sent because of it.
func (b *builder) step(at time.Duration, order int, text, format string, args ...any) *Step {
	term := fmt.Sprintf("<<%d, %s>>", units(at), fmt.Sprintf(format, args...))
	b.out.Steps = append(b.out.Steps, Step{Term: term, Text: fmt.Sprintf("at %v %s", at, text), at: at, order: order})
	return &b.out.Steps[len(b.out.Steps)-1]
}

// attempt stands for an attempt in a term until it has its place; see place.
func (b *builder) attempt(id string) string {
	if b.ids[id] == 0 {
		return "0"
	}
	return fmt.Sprintf("@%d@", b.ids[id])
}

// The order of steps in one instant.
const (
	first = iota
	calls
	letsGo
	told
	sends
	last
)
