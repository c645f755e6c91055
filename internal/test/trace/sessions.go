package trace

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

// A sessionBuilder makes the behaviour of one key, with the sessions that its holders came under.
type sessionBuilder struct {
	course
	sessions map[string]bool

	numbers  map[string]int // of attempts and sessions, by ID
	counted  map[*simulation.Command]bool
	writers  map[sight]*sessionSent
	shared   bool             // holders share the key, now and then
	alone    map[string]bool  // the attempts that do not
	claims   map[int64]string // by the revision that they write
	grants   map[string]int64 // the revision of each claim that was applied
	beats    []int64          // all of them, in order
	commands map[*simulation.Command][]*sessionSent
	first    map[string]*sessionSent // by session, number and place
}

type sessionSent struct {
	sessionOperation
	of  *simulation.Command
	at  int
	hit bool
}

// Sessions are the behaviours of a recording of clients with sessions: one for each key. A behaviour of one session with all keys under it would not have the swap that drops a
// holder of another session. A session that none of these keys names goes with the first of them.
func Sessions(seed uint64, r *simulation.Recording) (all []*Behaviour, commands, covered int) {
	var keys []string
	var sessions []string
	var beats []int64
	shared, named, elsewhere := map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}
	for _, s := range r.Steps {
		if s.Kind != simulation.Sent || s.Command.NS() != locks {
			continue
		}
		commands++
		for _, o := range sessionOperations(s.Command.Command) {
			beats = append(beats, o.beat)
			if o.session != "" && !slices.Contains(sessions, o.session) {
				sessions = append(sessions, o.session)
			}
			if o.key == "" {
				continue
			}
			if named[o.key] == nil {
				keys, named[o.key] = append(keys, o.key), map[string]bool{}
			}
			shared[o.key] = shared[o.key] || o.shares
			for _, id := range []string{o.names, o.seen} {
				if id != "" {
					named[o.key][id] = true
				}
			}
		}
	}
	if r.Routers || len(keys) == 0 {
		return nil, commands, 0
	}
	for _, key := range keys {
		for id := range named[key] {
			elsewhere[id] = true
		}
	}
	for _, id := range sessions {
		if !elsewhere[id] {
			named[keys[0]][id] = true
		}
	}
	counted := map[*simulation.Command]bool{}
	beats = inOrder(beats)
	for _, key := range keys {
		b := &sessionBuilder{
			course:   newCourse(r, key, &Behaviour{Name: fmt.Sprintf("seed %d, %q with sessions", seed, key), TTL: units(r.TTL), Margin: units(r.Margin), of: &ofSessions}),
			sessions: named[key], counted: counted, beats: beats, shared: shared[key], alone: map[string]bool{},
			numbers: map[string]int{}, writers: map[sight]*sessionSent{}, claims: map[int64]string{}, grants: map[string]int64{},
			commands: map[*simulation.Command][]*sessionSent{}, first: map[string]*sessionSent{},
		}
		b.follow(b)
		b.over()
		b.out.IDs = len(b.numbers)
		b.out.fields = fmt.Sprintf("skew |-> %d, late |-> %d, sessions |-> {%s}, shared |-> %s", units(r.Skew), units(r.Late), b.inHistory(), boolean(b.shared))
		covered += b.out.Sent
		all = append(all, b.out)
	}
	return all, commands, covered
}

// inHistory is the numbers of the sessions.
func (b *sessionBuilder) inHistory() string {
	var all []string
	for id := range b.sessions {
		all = append(all, fmt.Sprint(b.number(id)))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (b *sessionBuilder) number(id string) int {
	if id != "" && b.numbers[id] == 0 {
		b.numbers[id] = len(b.numbers) + 1
	}
	return b.numbers[id]
}

func (b *sessionBuilder) describe(o *sessionSent) string {
	what := "attempt"
	if o.session != "" {
		what = "session"
	}
	kind := o.kind
	if kind == "" {
		kind = "a command that is no row of §4.11"
	}
	return fmt.Sprintf("%s of %s %d by client %d", kind, what, b.number(o.id), o.of.Client)
}

func (b *sessionBuilder) concerns(o sessionOperation) bool {
	if o.kind == "note" || o.kind == "look" {
		return false
	}
	return o.session != "" && b.sessions[o.session] || o.session == "" && o.key == b.key
}

func (b *sessionBuilder) sends(s simulation.Step) {
	if s.Command.NS() != locks {
		return
	}
	for i, o := range sessionOperations(s.Command.Command) {
		if !b.concerns(o) {
			continue
		}
		if !b.counted[s.Command] {
			b.counted[s.Command] = true
			b.out.Sent++
		}
		again := fmt.Sprint(s.Command.Session, " ", s.Command.Number, " ", i)
		if before := b.first[again]; before != nil && s.Command.Number > 0 {
			b.commands[s.Command] = append(b.commands[s.Command], before)
			continue
		}
		sent := &sessionSent{sessionOperation: o, of: s.Command, at: len(b.out.Commands) + 1}
		b.first[again] = sent
		b.commands[s.Command] = append(b.commands[s.Command], sent)
		b.out.Commands = append(b.out.Commands, b.command(sent))
		b.step(s.At, sends, fmt.Sprintf("client %d sends %s", s.Command.Client, b.describe(sent)), `"send", %d`, sent.at)
	}
}

// command is the command as a term.
func (b *sessionBuilder) command(o *sessionSent) string {
	if o.kind == "enter" {
		o.id = b.claims[o.named]
	}
	if o.kind == "hand over" && o.old == "" {
		if o.old = b.claims[o.named]; b.shared && !b.alone[o.old] {
			o.kind, o.old = "claim", "" // of a document without holders
		}
	}
	if o.kind == "claim" || o.kind == "hand over" || o.kind == "join" {
		b.claims[o.rev], b.alone[o.id] = o.id, !o.shares
	}
	whose, drops := o.old, 0
	if len(o.drop) == 1 {
		if whose, drops = o.drop[0].id, -1; b.writers[o.drop[0]] != nil {
			drops = b.writers[o.drop[0]].at
		}
	} else if o.kind == "sweep" {
		whose, drops = o.id, -1
	}
	if o.beat != 0 {
		b.writers[sight{o.id, o.beat}] = o
	}
	seen := -1
	if o.says {
		seen = b.number(o.seen)
	}
	term := fmt.Sprintf(`<<"%s", %d, %d, %d, %s, %d, %d, %d, %d, %d, %d, %d, %d`, o.kind, b.number(o.id), o.of.Client, units(o.of.Began), boolean(o.voted),
		rank(b.beats, o.beat), o.lasts*10, dateOrZero(o.end), b.epoch(o.epoch), b.number(o.names), b.number(whose), drops, seen)
	if b.shared {
		term += fmt.Sprintf(`, %s, {%s}`, boolean(o.shares), b.dropped(o))
	}
	return term + ">>"
}

// dropped are the holders that a command drops, with the places of the commands that wrote their beats.
func (b *sessionBuilder) dropped(o *sessionSent) string {
	all := make([]string, len(o.drop))
	for i, d := range o.drop {
		place := -1
		if w := b.writers[d]; w != nil {
			place = w.at
		}
		all[i] = fmt.Sprintf("<<%d, %d>>", b.number(d.id), place)
	}
	return strings.Join(all, ", ")
}

func (b *sessionBuilder) runs(s simulation.Step) {
	if s.Command == nil {
		return
	}
	used := map[int]bool{}
	for _, o := range b.commands[s.Command] {
		for i, e := range s.Writes {
			if used[i] || e.NS != locks || !b.wrote(o, e) {
				continue
			}
			used[i], o.hit = true, true
			b.log[s.Term] = append(b.log[s.Term], s.Length+i+1)
			b.step(s.At, first, fmt.Sprintf("the primary of term %d executes %s", s.Term, b.describe(o)), `"run", %d, %d, %d, %s`, o.at, s.Term, clock(s.Clock), b.document(o, e.After))
			break
		}
	}
}

// wrote reports whether a write may be the operation's.
func (b *sessionBuilder) wrote(o *sessionSent, e docdb.Entry) bool {
	if o.session != "" {
		doc := e.After
		if doc == nil {
			doc = e.Before
		}
		name, _ := doc[0].Value.(bson.D)
		return field(name, "session") == o.session
	}
	if keyOf(e) != b.key {
		return false
	}
	before, _ := field(holdersOf(e.Before), o.id).(bson.D)
	after, _ := field(holdersOf(e.After), o.id).(bson.D)
	switch o.kind {
	case "renew", "leave":
		return number(field(after, "beat")) == o.beat
	case "sweep":
		return before != nil && after == nil
	case "release", "undo":
		return !o.shares || o.id == "" || before != nil && after == nil || o.kind == "undo"
	}
	return true
}

// document is a document as TLC is told of it.
func (b *sessionBuilder) document(o *sessionSent, d bson.D) string {
	place := func(id string, beat int64) int {
		if w := b.writers[sight{id, beat}]; w != nil {
			return w.at
		}
		return 0
	}
	switch {
	case d == nil && o.session != "":
		return "<<>>"
	case o.session != "":
		return fmt.Sprintf("<<%d, %s>>", place(o.session, number(field(d, "beat"))), boolean(field(d, "dead") != nil))
	}
	if o.kind == "claim" || o.kind == "hand over" {
		b.grants[o.id] = number(field(d, "rev"))
	}
	var holders []string
	for _, h := range holdersOf(d) {
		v, _ := h.Value.(bson.D)
		under, _ := field(d, "session").(string)
		left := b.grants[h.Key] != number(field(d, "rev"))
		if mode, _ := field(d, "mode").(string); mode != "exclusive" {
			under, _ = field(v, "session").(string)
			left = false // joins move the revision
		}
		holders = append(holders, fmt.Sprintf("<<%d, %d, %d, %s>>", b.number(h.Key), place(h.Key, number(field(v, "beat"))), b.number(under), boolean(left)))
	}
	return "{" + strings.Join(holders, ", ") + "}"
}

// answers is a reply that came. An error that leaves the outcome open is no answer.
func (b *sessionBuilder) answers(s simulation.Step) {
	if s.Command == nil {
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
		b.step(s.At, first, fmt.Sprintf("client %d has the answer to %s", o.of.Client, b.describe(o)), `"answer", %d, %s`, o.at, boolean(hit))
	}
}

// notes is what a user of a lease sees and does.
func (b *sessionBuilder) notes(s simulation.Step) {
	e := s.Event
	p := b.numbers[e.ID]
	if e.Key != b.key || p == 0 {
		return
	}
	switch e.Kind {
	case history.Granted:
		b.step(s.At, calls, fmt.Sprintf("client %d is granted attempt %d", e.Client, p), `"has", %d`, p)
	case history.LetGo:
		b.step(s.At, letsGo, fmt.Sprintf("client %d lets go of attempt %d", e.Client, p), `"lets go", %d`, p)
	case history.Told:
		b.step(s.At, told, fmt.Sprintf("client %d is told that attempt %d is over", e.Client, p), `"told", %d`, p)
	default:
	}
}
