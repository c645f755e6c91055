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

// A pathBuilder makes the behaviour of one tree.
type pathBuilder struct {
	course

	tokens   map[string]int // from 1 on
	adds     []*pathSent    // by token
	revs     map[bson.ObjectID]*pathSent
	commands map[*simulation.Command]*pathSent
	first    map[string]*pathSent // by session and number
	asking   map[int]int          // how many locks a user has added that are not decided
	granted  map[int]bool
	decided  map[int]bool   // locks that were granted, or are removed
	users    map[string]int // by client and name
	classes  []class
	misses   []string // sets of requests that a look does not find
}

// A pathSent is an operation that was sent.
type pathSent struct {
	pathOperation
	of    *simulation.Command
	token int
	at    int // its place among the behaviour's commands; from 1 on
}

// Paths is the behaviour of a recording of clients that lock paths, which have one tree.
func Paths(seed uint64, r *simulation.Recording) (all []*Behaviour, commands, covered int) {
	b := &pathBuilder{
		course: newCourse(r, "", &Behaviour{Name: fmt.Sprintf("seed %d, paths", seed), of: &ofPaths}),
		tokens: map[string]int{}, revs: map[bson.ObjectID]*pathSent{}, commands: map[*simulation.Command]*pathSent{},
		first: map[string]*pathSent{}, asking: map[int]int{}, granted: map[int]bool{}, decided: map[int]bool{}, users: map[string]int{},
	}
	for _, s := range r.Steps {
		if s.Kind == simulation.Sent && s.Command.NS() == locks {
			commands++
			b.meet(s.Command)
		}
	}
	b.follow(b)
	b.place("lock", b.lives(), b.free)
	b.out.fields = fmt.Sprintf("set |-> %s, skew |-> %d, misses |-> <<%s>>", boolean(r.Set), units(r.Skew), strings.Join(b.misses, ", "))
	return []*Behaviour{b.out}, commands, b.out.Sent
}

// meet numbers what later steps speak of.
func (b *pathBuilder) meet(c *simulation.Command) {
	o, ok := pathOperationOf(c.Command)
	if !ok {
		return
	}
	s := &pathSent{pathOperation: o, of: c}
	again := fmt.Sprint(c.Session, " ", c.Number)
	if before := b.first[again]; before != nil && c.Number > 0 {
		b.commands[c] = before
		return
	}
	b.first[again], b.commands[c] = s, s
	if o.kind == "add" && b.tokens[o.token] == 0 {
		b.adds = append(b.adds, s)
		b.tokens[o.token] = len(b.adds)
		if !slices.ContainsFunc(b.classes, func(c class) bool { return c.wants == o.wants }) {
			b.classes = append(b.classes, o.class)
		}
	}
	if s.token = b.tokens[o.token]; !o.rev.IsZero() {
		b.revs[o.rev] = s
	}
}

// user numbers the user for whom a command is sent: a hundred times the client, and more for
// each of its users. Background work of a client is for no user.
func (b *pathBuilder) user(c *simulation.Command) int {
	if c.Actor == "" {
		return 100 * c.Client
	}
	name := fmt.Sprint(c.Client, " ", c.Actor)
	if b.users[name] == 0 {
		b.users[name] = 100*c.Client + len(b.users) + 1
	}
	return b.users[name]
}

// decides notes that a lock was granted, or is removed.
func (b *pathBuilder) decides(p int) {
	if !b.decided[p] {
		b.decided[p] = true
		b.asking[b.user(b.adds[p-1].of)]--
	}
}

func (b *pathBuilder) describe(o *pathSent) string {
	kind := o.kind
	if kind == "" {
		kind = "a command that pathlock does not have"
	}
	return fmt.Sprintf("%s of lock %d by client %d", kind, o.token, o.of.Client)
}

// sends is a command on its way, the first time that the driver sends it. Looks and what
// changes no lock are no steps, but for a look of a user who has added a lock that is not
// decided yet.
func (b *pathBuilder) sends(s simulation.Step) {
	o := b.commands[s.Command]
	if o == nil || o.at > 0 {
		return
	}
	switch who := b.user(s.Command); {
	case o.kind == "add":
		b.asking[who]++
	case o.kind == "look" && b.asking[who] == 0:
		return
	case o.kind == "remove" && o.token > 0:
		if add := b.adds[o.token-1]; (who == b.user(add.of) || who == 100*add.of.Client) && s.At < add.of.Began+add.lasts {
			b.decides(o.token) // later than that another call of its user may remove what is over
		}
	}
	b.out.Sent++
	o.at = len(b.out.Commands) + 1
	b.out.Commands = append(b.out.Commands, b.command(o))
	b.step(s.At, sends, fmt.Sprintf("client %d sends %s", o.of.Client, b.describe(o)), `"send", %d`, o.at).command = o.at
}

// command is the command as a term.
func (b *pathBuilder) command(o *pathSent) string {
	term := fmt.Sprintf(`<<%d, "%s", %s, %d`, o.at, o.kind, placeOf(o.token), b.user(o.of))
	named := 0
	if !o.named.IsZero() {
		if named = -1; b.revs[o.named] != nil {
			named = b.revs[o.named].at
		}
	}
	switch o.kind {
	case "look":
		return fmt.Sprintf(`%s, %d, %s>>`, term, b.missed(o.numbers), boolean(o.majorly))
	case "remove":
		return fmt.Sprintf(`%s, %d>>`, term, named)
	case "finish":
		o.lasts = b.adds[o.token-1].lasts
	}
	term = fmt.Sprintf(`%s, %d, %d, %d, %d, %d`, term, named, units(o.of.Began), units(o.lasts), date(o.until), b.epoch(o.epoch))
	if o.kind == "add" {
		return term + ", " + o.wants + ">>"
	}
	return fmt.Sprintf("%s, %d>>", term, dateOrZero(o.beyond))
}

// missed numbers the set of the requests whose locks a look does not find.
func (b *pathBuilder) missed(numbers []int64) int {
	var all []string
	for _, c := range b.classes {
		if !c.foundBy(numbers) {
			all = append(all, c.wants)
		}
	}
	set := "{" + strings.Join(all, ", ") + "}"
	if !slices.Contains(b.misses, set) {
		b.misses = append(b.misses, set)
	}
	return slices.Index(b.misses, set) + 1
}

// runs returns the steps that a primary made of a command. A command that found nothing is no
// step.
func (b *pathBuilder) runs(s simulation.Step) {
	o := b.commands[s.Command]
	if o == nil || o.at == 0 {
		return
	}
	who := b.describe(o)
	if o.kind == "look" {
		b.step(s.At, first, fmt.Sprintf("the primary of term %d answers %s", s.Term, who), `"look", %d, %d`, o.at, s.Term).command = o.at
		return
	}
	for i, e := range s.Writes {
		switch {
		case e.NS != locks, keyOf(e) != o.pathOperation.token && o.pathOperation.token != "":
			continue
		case o.kind == "add" && e.Before != nil: // a twin, which changes nothing but the time
			continue
		}
		b.log[s.Term] = append(b.log[s.Term], s.Length+i+1)
		document := b.document(e)
		step := b.step(s.At, first, fmt.Sprintf("the primary of term %d executes %s", s.Term, who), `"run", %d, %d, %d, %s`, o.at, s.Term, clock(s.Clock), document)
		step.command, step.wrote, step.gone = o.at, s.Term == b.term, document == "<<>>"
	}
}

// document is what a write left: <<>>, or the lock's revision, its end and the election of that.
func (b *pathBuilder) document(e docdb.Entry) string {
	if e.After == nil {
		return "<<>>"
	}
	var o pathOperation
	o.dates(e.After)
	rev := 0
	if by := b.revs[o.rev]; by != nil {
		rev = by.at
	}
	return fmt.Sprintf("<<%d, %d, %d>>", rev, date(o.until), b.epoch(o.epoch))
}

// answers is a reply that came and found something. An error that leaves the outcome open is not an answer.
func (b *pathBuilder) answers(s simulation.Step) {
	o := b.commands[s.Command]
	if o == nil || o.at == 0 || !succeeded(s.Reply) {
		return
	}
	if s.Command.Name == "findAndModify" && field(s.Reply, "value") == nil {
		return
	}
	b.step(s.At, first, fmt.Sprintf("client %d has the answer to %s", o.of.Client, b.describe(o)), `"answer", %d`, o.at).command = o.at
}

// notes is what the user of a lock sees and does.
func (b *pathBuilder) notes(s simulation.Step) {
	e := s.Event
	p := b.tokens[e.ID]
	if p == 0 {
		return
	}
	what := fmt.Sprintf("client %d %%s lock %d", e.Client, p)
	switch e.Kind {
	case history.Granted:
		if b.granted[p] {
			b.step(s.At, calls, fmt.Sprintf(what, "is told of the refresh of"), `"refreshed", %s, %d`, placeOf(p), units(e.Until))
			return
		}
		b.granted[p] = true
		b.decides(p)
		b.step(s.At, calls, fmt.Sprintf(what, "is granted"), `"has", %s, %d`, placeOf(p), units(e.Until))
	case history.Called:
		b.step(s.At, calls, fmt.Sprintf(what, "calls Refresh for"), `"calls", %s, %d`, placeOf(p), units(e.Until))
	case history.Failed:
		b.step(s.At, calls, fmt.Sprintf(what, "is not granted the refresh of"), `"left", %s`, placeOf(p))
	case history.LetGo:
		b.step(s.At, letsGo, fmt.Sprintf(what, "lets go of"), `"lets go", %s`, placeOf(p))
	default:
	}
}
