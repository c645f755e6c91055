package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/store"
)

var update = flag.Bool("update", false, "write what the core does into the scripts in testdata")

// TestScripts plays testdata/*.txt. A script is prose. A line that begins with > is an event, and the indented lines
// below it are what the core then wants done; testdata/README.md explains both. With -update they are written again:
// read the difference.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 25)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			played := play(t, string(text))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(played), 0o600))
				return
			}
			assert.Equal(t, string(text), played)
		})
	}
}

// A middling reader stands for crypto/rand: no pause is longer or shorter than its mean, and no two texts are alike.
type middling struct{ texts uint64 }

func (m *middling) Read(p []byte) (int, error) {
	clear(p)
	if len(p) == backoff.JitterSize {
		binary.LittleEndian.PutUint64(p, 1<<63)
		return len(p), nil
	}
	m.texts++
	binary.LittleEndian.PutUint64(p, m.texts)
	for i := range 8 {
		p[i+1] ^= p[0] * byte(i) // rand.Text takes few bits of each byte
	}
	return len(p), nil
}

// A script plays a core. The store and all other clients are what the script says.
type script struct {
	t      *testing.T
	config Config
	core   core
	now    moment
	next   moment // when the next step is due; zero: never
	tokens int64
	ids    int

	callers map[string]*Caller
	holds   map[*Hold]string  // whose each is
	claims  map[string]string // by ID
	asks    map[*Asker]string // what each waits for
	places  map[store.Place]string
	wanted  map[*Hold]bool // they were told
	calls   []*Call        // all, in the order of their numbers
	open    map[*Call]bool
	noFeed  error // what notices are answered
	quiet   bool  // callers and claims are not shown

	lines []shown
}

// A shown is one line of output. More than four of a kind in a row become one.
type shown struct {
	text, kind string
	n          int // of a call; otherwise 0
	leases     int // that it renews
}

const (
	begin   = moment(time.Hour) // of each script
	mistake = "MISTAKE: "       // in a line of output: the script asks for what cannot be
)

func play(t *testing.T, text string) string {
	defer func(before io.Reader) { rand.Reader = before }(rand.Reader)
	rand.Reader = &middling{}
	s := &script{
		t: t, now: begin, callers: map[string]*Caller{}, holds: map[*Hold]string{}, claims: map[string]string{},
		asks: map[*Asker]string{}, places: map[store.Place]string{}, wanted: map[*Hold]bool{}, open: map[*Call]bool{},
	}
	s.config = Config{Owner: "this client", Margin: -1, Address: "here", Announces: true}
	s.config.NewID = func() string { s.ids++; return "id-" + strconv.Itoa(s.ids) }
	s.core = newCore(&s.config)
	s.core.live = true
	var out strings.Builder
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		command, is := strings.CutPrefix(line, "> ")
		switch {
		case is:
			out.WriteString(line + "\n")
			s.lines = nil
			if !s.do(command) {
				s.wrong("not understood")
			}
			for _, shown := range s.lines {
				if strings.HasPrefix(shown.text, mistake) {
					t.Errorf("line %d: %s: %s", n+1, command, shown.text)
				}
			}
			out.WriteString(s.shown())
		case !strings.HasPrefix(line, "  "):
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

// A command is one way to tell an event.
type command struct {
	re *regexp.Regexp
	do func(s *script, m []string)
}

func when(pattern string, do func(s *script, m []string)) command {
	return command{regexp.MustCompile("^" + pattern + "$"), do}
}

var commands = []command{
	when(`([\w-]+) (wants|tries) ([\w-]+)((?:, [^,]+)*)`, func(s *script, m []string) {
		s.want(m[1], &Caller{Key: m[3], Terms: s.terms(m[4]), Once: m[2] == "tries"})
	}),
	when(`([\w-]+) resumes ([\w-]+) with token (\d+)((?:, [^,]+)*)`, func(s *script, m []string) {
		s.want(m[1], &Caller{Key: m[2], Terms: s.terms(m[4]), Once: true, Resumes: &store.Ref{Key: m[2], ID: "detached", Mode: store.Exclusive}, Token: s.number(m[3])})
	}),
	when(`([\w-]+) gives up`, func(s *script, m []string) {
		s.step(Event{Kind: GiveUp, Caller: s.callers[m[1]], Err: context.Canceled})
	}),
	when(`([\w-]+) (releases|renews|detaches)`, func(s *script, m []string) {
		h := s.hold(m[1])
		if h == nil {
			s.wrong("there is no such lease")
			return
		}
		kind := map[string]EventKind{"releases": Release, "renews": Renew, "detaches": Detach}[m[2]]
		a := &Asker{wake: make(chan struct{})}
		s.asks[a] = m[1] + "'s " + map[EventKind]string{Release: "release", Renew: "renewal", Detach: "detaching"}[kind]
		s.step(Event{Kind: kind, Hold: h, Asker: a})
	}),
	when(`every holder releases`, func(s *script, _ []string) {
		all := s.held() // as ReleaseAll does
		for _, h := range all {
			s.step(Event{Kind: End, Hold: h})
		}
		for _, h := range all {
			s.step(Event{Kind: Release, Hold: h, Asker: &Asker{}, Bound: releaseBound * 2 / 5})
		}
	}),
	when(`([\w-]+) makes progress`, func(s *script, m []string) {
		h := s.hold(m[1])
		h.term.stall = s.now.Add(h.Terms.MaxStall) // as Hold.Progress does
	}),
	when(`#(\d+)(?: to #(\d+))? (.+)`, func(s *script, m []string) {
		first, last := s.number(m[1]), s.number(cmp.Or(m[2], m[1]))
		for n := first; n <= last; n++ {
			if n > int64(len(s.calls)) || !s.open[s.calls[n-1]] {
				s.wrong("#%d is not under way", n)
				return
			}
			s.answer(s.calls[n-1], m[3])
		}
	}),
	when(`the calls (with|without) ([\w-]+) (.+)`, func(s *script, m []string) {
		for _, call := range slices.Clone(s.calls) {
			with := slices.ContainsFunc(call.Batch, func(h *Hold) bool { return s.of(h) == m[2] })
			if s.open[call] && with == (m[1] == "with") {
				s.answer(call, m[3])
			}
		}
	}),
	when(`(\S+) pass(?:es)?`, func(s *script, m []string) { s.pass(s.now.Add(s.span(m[1]))) }),
	when(`time passes until the next step`, func(s *script, _ []string) { s.pass(s.next) }),
	when(`the machine sleeps for (\S+)`, func(s *script, m []string) {
		s.now = s.now.Add(s.span(m[1]))
		s.step(Event{Kind: Slept})
	}),
	when(`the feed is not open`, func(s *script, _ []string) { s.core.live = false }),
	when(`the feed is live`, func(s *script, _ []string) { s.step(Event{Kind: FeedLive}) }),
	when(`the feed is lost`, func(s *script, _ []string) {
		s.step(Event{Kind: FeedLost, Err: errors.New("connection reset"), News: true})
	}),
	when(`the feed is reopened`, func(s *script, _ []string) { s.step(Event{Kind: FeedLost}) }),
	when(`there is no feed`, func(s *script, _ []string) {
		s.config.Announces = false
		s.step(Event{Kind: FeedLost, Err: errors.ErrUnsupported, Final: true})
	}),
	when(`the store (refuses|takes) notices`, func(s *script, m []string) {
		s.noFeed = nil
		if m[1] == "refuses" {
			s.noFeed = errors.ErrUnsupported
		}
	}),
	when(`notice: ([\w-]+) is (offered|next|moved|wanted)(?:, for (.+))?`, func(s *script, m []string) {
		s.step(Event{Kind: Heard, Notice: &store.Notice{Topic: store.TopicLocks, Key: m[1], Kind: m[2], Place: s.place(m[3])}})
	}),
	when(`([\w-]+) may be free`, func(s *script, m []string) { s.step(Event{Kind: Freed, Key: m[1]}) }),
	when(`the client drains`, func(s *script, _ []string) { s.drain() }),
	when(`the client closes`, func(s *script, _ []string) {
		s.drain()
		s.step(Event{Kind: Shut})
	}),
	when(`the client has no more time`, func(s *script, _ []string) { s.step(Event{Kind: Cut}) }),
	when(`when is the next step\?`, func(s *script, _ []string) {
		if s.next == 0 {
			s.say("never")
		} else {
			s.say("in %s", short(s.next.Sub(s.now)))
		}
	}),
	when(`what is left\?`, func(s *script, _ []string) { s.left() }),
	when(`(\d+) callers have ([\w-]+)-1 and so on((?:, [^,]+)*)`, func(s *script, m []string) {
		s.many(int(s.number(m[1])), m[2], s.terms(m[3]), "is granted")
	}),
	when(`(\d+) callers wait for ([\w-]+)-1 and so on`, func(s *script, m []string) {
		s.many(int(s.number(m[1])), m[2], s.terms(""), "is refused; held by zoe for 30s; in line: we")
	}),
	when(`undosMost claims of ([\w-]+)-1 and so on fail`, func(s *script, m []string) {
		s.many(undosMost, m[1], s.terms(""), "fails")
	}),
}

// do plays one event.
func (s *script) do(text string) bool {
	for _, c := range commands {
		if m := c.re.FindStringSubmatch(text); m != nil {
			c.do(s, m)
			return true
		}
	}
	return false
}

func (s *script) span(text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(s.t, err)
	return d
}

func (s *script) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(s.t, err)
	return n
}

// terms reads what a caller asks for: ", shared, TTL 1m".
func (s *script) terms(text string) *Terms {
	t := &Terms{TTL: 30 * time.Second, Mode: store.Exclusive, Limit: 1}
	for _, option := range strings.Split(text, ", ")[1:] {
		words := strings.Fields(option)
		switch words[0] {
		case "shared":
			t.Mode, t.Limit = store.Shared, 0
		case "TTL":
			t.TTL = s.span(words[1])
		case "MinHold":
			t.MinHold = s.span(words[1])
		case "MaxHold":
			t.MaxHold = s.span(words[1])
		case "MaxStall":
			t.MaxStall = s.span(words[1])
		case "MaxWait":
			t.MaxWait = s.span(words[1])
		case "NoRenewal":
			t.NoRenewal = true
		case "Yielding":
			t.Yields = true
		default: // 2 of 5 permits
			require.Equal(s.t, "permits", words[len(words)-1], "unknown option %q", option)
			t.Mode, t.Weight, t.Limit = store.Permits, int(s.number(words[0])), int(s.number(words[2]))
		}
	}
	return t
}

func (s *script) want(name string, w *Caller) {
	w.wake = make(chan struct{})
	if w.Terms.MaxWait > 0 && !w.Once {
		w.Patience = s.now.Add(w.Terms.MaxWait)
		w.Leaves = w.Patience
	}
	s.callers[name], s.asks[&w.Asker] = w, name
	s.step(Event{Kind: Want, Caller: w})
}

func (s *script) hold(name string) *Hold {
	if w := s.callers[name]; w != nil {
		return w.Hold
	}
	return nil
}

// many has callers claim a key each, and all claims answered at once.
func (s *script) many(n int, key string, t *Terms, answer string) {
	s.quiet = true
	for i := range n {
		name := key + "-" + strconv.Itoa(i+1)
		w := &Caller{Key: name, Terms: t, Once: !strings.Contains(answer, "in line")}
		s.callers[name], s.asks[&w.Asker] = w, name
		s.step(Event{Kind: Want, Caller: w})
		s.answer(w.call, answer)
		w.wake = make(chan struct{})
	}
	s.quiet = false
}

// drain ends the waits, as Engine.Drain does.
func (s *script) drain() {
	needed := s.core.needed
	s.step(Event{Kind: Drain})
	s.quiet = s.core.waiting > 4
	for _, name := range slices.Sorted(maps.Keys(s.callers)) {
		s.step(Event{Kind: GiveUp, Caller: s.callers[name], Err: ErrClosed})
	}
	if s.quiet {
		s.say("the feed is needed by %d, and not by %d", s.core.needed, needed)
	}
	s.quiet = false
}

// pass lets time pass: alarms ring, and calls are cut off that the script has not answered.
func (s *script) pass(until moment) {
	for range 10_000 {
		at := until + 1
		if s.next != 0 {
			at = min(at, s.next)
		}
		var late []*Call
		for call := range s.open {
			at = min(at, call.Until)
		}
		if at > until {
			s.now = until
			return
		}
		s.now = max(s.now, at)
		before := len(s.lines)
		s.say("at %s:", short(s.now.Sub(begin)))
		for n, call := range s.calls {
			if s.open[call] && call.Until <= s.now {
				s.sayOf("a call is cut off", "#%d is cut off", n+1)
				late = append(late, call)
			}
		}
		for _, call := range late {
			s.answer(call, "is cut off")
		}
		if s.next != 0 && s.next <= s.now {
			s.step(Event{Kind: Tick})
		}
		if len(s.lines) == before+1 {
			s.lines = s.lines[:before] // nothing came of it
		}
	}
	s.t.Fatal("time does not pass: a step is due again and again")
}

// step tells the core of an event, and shows what is to be done.
func (s *script) step(e Event) {
	r := s.core.Step(s.now, e)
	s.next = r.At
	if r.Listen != 0 && !s.quiet {
		s.say("the feed is needed by %d", s.core.needed)
	}
	for _, h := range r.End {
		s.sayOf("a lease ends: "+plain(h.err), "%s's lease ends: %s", s.of(h), plain(h.err))
	}
	for _, a := range r.Deliver {
		s.deliver(a)
	}
	for _, w := range r.Waits {
		if !s.quiet {
			s.say("%s waits", s.asks[&w.Asker])
		}
	}
	for _, call := range r.Cut {
		call.Until = min(call.Until, s.now.Add(AbandonedFor)) // as Engine.act does
		s.say("nobody waits for #%d any more: it is cut off after %s", slices.Index(s.calls, call)+1, short(call.Until.Sub(s.now)))
	}
	for _, call := range r.Calls {
		s.show(call)
	}
	for _, m := range r.Say {
		s.log(m)
	}
	if r.Inline != nil {
		s.show(r.Inline)
	}
	for _, h := range s.held() {
		if h.Terms.Yields && h.err == nil && !s.wanted[h] && (h.awaited || h.queue.head != nil) {
			s.wanted[h] = true
			s.say("%s learns that %s is wanted", s.of(h), h.Ref.Key)
		}
	}
	for _, call := range r.Calls { // the outcome matters only if the store refuses them
		if call.Kind == Notify {
			call.Err = s.noFeed
			s.step(Event{Kind: Answered, Call: call})
		}
	}
	s.core.doneWith(r)
}

func (s *script) held() (all []*Hold) {
	for h := s.core.held; h != nil; h = h.next {
		all = append(all, h)
	}
	return all
}

// deliver shows an answer.
func (s *script) deliver(a *Asker) {
	who := s.asks[a]
	switch h := a.Hold; {
	case a.Err == nil && h != nil:
		s.say("%s has %s: token %d, trusted for %s", who, h.Ref.Key, h.Token, short(h.term.ends().Sub(s.now)))
	case a.Err == nil:
		s.say("%s succeeds", who)
	case h != nil:
		s.wrong("%s has a lease and an error", who)
	case strings.Contains(who, "'s "):
		s.say("%s fails: %s", who, plain(a.Err))
	default:
		s.sayOf("a caller is told why it has no lease", "%s is told: %s", who, plain(a.Err))
	}
}

// show gives a call its number.
func (s *script) show(call *Call) {
	if call.Kind == Notify {
		for _, n := range call.All {
			whose := ""
			if n.Place == "" && n.Kind == store.KindOffered {
				whose = ", whatever its place"
			}
			s.say("tell %s that %s is %s%s", n.To, n.Key, n.Kind, whose)
		}
		return
	}
	if call.Kind == Claim || call.Kind == Transfer {
		s.holds[call.hold], s.claims[call.hold.Ref.ID] = s.asks[&call.by.Asker], s.asks[&call.by.Asker]+"'s claim"
	}
	s.open[call] = true
	if s.quiet && call.Kind == Claim {
		s.holds[call.hold], s.claims[call.hold.Ref.ID] = call.by.Key, "the claim of "+call.by.Key
		return
	}
	s.calls = append(s.calls, call)
	text := fmt.Sprintf("#%d: %s, within %s", len(s.calls), s.describe(call), short(call.Until.Sub(call.Sent)))
	s.lines = append(s.lines, shown{text, verbs[call.Kind], len(s.calls), len(call.Batch)})
}

var verbs = map[CallKind]string{Claim: "claim", Transfer: "transfer", RenewAll: "renew", ReleaseOne: "release", Undo: "undo", Leave: "leave", Look: "read"}

var whyRead = map[look]string{
	toSee: "", toPoll: ", as it is polled", toAgain: ", as anything may have changed", toTell: ", to tell those whose turn it is", toCheck: ", to see whether somebody came",
}

func (s *script) describe(call *Call) string {
	verb := verbs[call.Kind]
	switch call.Kind {
	case Claim:
		text := fmt.Sprintf("%s %s for %s", verb, call.Claim.Key, s.of(call.hold))
		if call.Claim.Place != "" {
			text += " at place " + s.named(call.Claim.Place)
		}
		if call.Claim.Offered {
			text += ", as it is offered"
		}
		if !call.Claim.Unseen.IsZero() {
			text += fmt.Sprintf(", and pass those not seen for %s", short(s.clock().Sub(call.Claim.Unseen)))
		}
		if call.Claim.Slow {
			text += ", as a slow one"
		}
		return text
	case Transfer:
		if call.from == nil {
			return fmt.Sprintf("take %s over for %s", call.Claim.Key, s.of(call.hold))
		}
		return fmt.Sprintf("hand %s over from %s to %s", call.Claim.Key, s.of(call.from), s.of(call.hold))
	case RenewAll:
		names := make([]string, len(call.Batch))
		for i, h := range call.Batch {
			names[i] = s.of(h)
		}
		if len(names) > 4 {
			return fmt.Sprintf("%s %d leases", verb, len(names))
		}
		return verb + " " + strings.Join(names, ", ")
	case ReleaseOne:
		text := fmt.Sprintf("%s %s, which %s had", verb, call.Release.Key, s.of(call.hold))
		if call.Release.Line {
			text += " and others may wait for"
		}
		if call.Release.Keep > 0 {
			text += fmt.Sprintf(", and keep it taken until %s after the grant", short(call.Release.Keep))
		}
		return text
	case Undo:
		text := verb + " " + s.claims[call.Ref.ID]
		if call.From != nil {
			text += " and " + s.claims[call.From.ID]
		}
		return text + " of " + call.Ref.Key
	case Leave:
		return fmt.Sprintf("%s the line of %s, place %s", verb, call.Ref.Key, s.named(call.Place))
	}
	return verb + " " + strings.Join(call.Keys, ", ") + whyRead[call.then]
}

// of returns whose a hold is.
func (s *script) of(h *Hold) string { return s.holds[h] }

// named returns the name of a place: those of this client have numbers.
func (s *script) named(p store.Place) string {
	if s.places[p] == "" {
		own := 1
		for _, name := range s.places {
			if _, err := strconv.Atoi(name); err == nil {
				own++
			}
		}
		s.places[p] = strconv.Itoa(own)
	}
	return s.places[p]
}

// place returns the place of that name. That of another client is made up.
func (s *script) place(name string) store.Place {
	name = strings.TrimPrefix(name, "place ")
	for p, named := range s.places {
		if named == name {
			return p
		}
	}
	if name != "" {
		s.wrong("there is no place %s", name)
	}
	return ""
}

func (s *script) log(m Message) {
	level := map[slog.Level]string{slog.LevelDebug: "debug", slog.LevelInfo: "info", slog.LevelWarn: "warning"}[m.Level]
	text := fmt.Sprintf("log, %s: %s", level, strings.TrimPrefix(m.Text, "mongolock: "))
	for i := 0; i+1 < len(m.Args); i += 2 {
		value := m.Args[i+1]
		if h, is := value.(*Hold); is {
			value = s.of(h)
		}
		text += fmt.Sprintf(" %v=%v", m.Args[i], value)
	}
	s.sayOf(fmt.Sprintf("log, %s: %s", level, strings.TrimPrefix(m.Text, "mongolock: ")), "%s", text)
}

// wrong reports a mistake of the script.
func (s *script) wrong(format string, args ...any) { s.say(mistake+format, args...) }

func (s *script) say(format string, args ...any) { s.sayOf("", format, args...) }

// sayOf says something that may be said of many.
func (s *script) sayOf(kind, format string, args ...any) {
	s.lines = append(s.lines, shown{text: fmt.Sprintf(format, args...), kind: kind})
}

// left tells what the core still has.
func (s *script) left() {
	c := &s.core
	if c.idle() {
		s.say("nothing")
		return
	}
	for _, h := range s.held() {
		state := [...]string{"kept", "a release is under way", "its release is owed", "settled"}[h.state]
		s.sayOf("a lease: "+state, "%s's lease of %s: %s", s.of(h), h.Ref.Key, state)
	}
	for _, what := range []struct {
		n    int
		text string
	}{{c.waiting, "waiters: %d"}, {c.unknown, "claims of unknown outcome: %d"}, {c.calls, "calls under way: %d"}} {
		if what.n > 0 {
			s.say(what.text, what.n)
		}
	}
}

// shown returns the lines of output.
func (s *script) shown() string {
	var out strings.Builder
	for i := 0; i < len(s.lines); i++ {
		first, j := s.lines[i], i
		leases := first.leases
		for first.kind != "" && j+1 < len(s.lines) && s.lines[j+1].kind == first.kind {
			j++
			leases += s.lines[j].leases
		}
		switch n := j - i + 1; {
		case n <= 4:
			out.WriteString("  " + first.text + "\n")
			continue
		case leases > 0:
			fmt.Fprintf(&out, "  #%d to #%d: %s %d leases, in %d calls\n", first.n, s.lines[j].n, first.kind, leases, n)
		case first.n > 0:
			fmt.Fprintf(&out, "  #%d to #%d: %s, %d calls\n", first.n, s.lines[j].n, first.kind, n)
		default:
			fmt.Fprintf(&out, "  %d times: %s\n", n, first.kind)
		}
		i = j
	}
	return out.String()
}

// plain shows an error. One of MaxWait must not look as if a context of the caller's had ended.
func plain(err error) string {
	text := strings.ReplaceAll(err.Error(), "mongolock: ", "")
	if errors.Is(err, ErrPatience) && errors.Is(err, context.DeadlineExceeded) {
		text += ", which matches context.DeadlineExceeded"
	}
	return text
}

// short shows a duration to the millisecond.
func short(d time.Duration) string { return d.Round(time.Millisecond).String() }

// clock is the store's.
func (s *script) clock() time.Time { return time.Unix(1_800_000_000, 0).UTC().Add(s.now.Sub(begin)) }

var errFault = errors.New("connection reset")

// answers are those that not all calls have.
var answers = map[string][]CallKind{
	"is gone":       {Transfer, RenewAll, ReleaseOne, Undo},
	"is broken":     {Transfer, RenewAll},
	"is refused":    {Claim},
	"is granted":    {Claim, Transfer, RenewAll},
	"is released":   {ReleaseOne},
	"is settled":    {Undo},
	"are settled":   {Undo},
	"finds nothing": {Undo},
	"find nothing":  {Undo},
	"shows":         {Leave, Look},
}

// answer answers a call: what the words say depends on its kind.
func (s *script) answer(call *Call, text string) {
	parts := strings.Split(text, "; ")
	verb, rest := parts[0], strings.Join(parts[1:], "; ")
	if kinds := answers[verb]; kinds != nil && !slices.Contains(kinds, call.Kind) {
		s.wrong("a call to %s is not answered so", verbs[call.Kind])
		return
	}
	delete(s.open, call)
	switch verb {
	case "fails", "fail":
		call.Err = errFault
	case "is cut off", "are cut off":
		call.Err = context.DeadlineExceeded
	case "is not applied", "are not applied":
		call.Err = fmt.Errorf("%w: %w", errFault, store.ErrNotApplied)
		if rest == "its place may stand" {
			call.Err = fmt.Errorf("%w (%w)", call.Err, store.ErrPlaceUnknown)
		}
	case "is gone":
		call.Err = store.ErrGone
	case "is broken":
		call.Err = &store.BrokenError{Reason: "by hand"}
	case "is disconnected":
		call.Err = fmt.Errorf("%w: %w", errFault, store.ErrDisconnected)
	case "is refused":
		status := s.status(call.Claim.Key, call.Claim.Place, rest)
		call.Err = &store.HeldError{Status: status, Place: call.Claim.Place}
	case "is granted", "are granted":
		s.granted(call, rest)
	case "is released":
		if left, line, found := strings.Cut(rest, " left"); found {
			call.Released.HoldersLeft, rest = int(s.number(left)), strings.TrimPrefix(line, "; ")
		}
		call.Released.Line = s.line(call.Release.Key, rest)
	case "is settled", "are settled":
		call.Settled = true
	case "finds nothing", "find nothing": // it may still come
	case "shows":
		s.shows(call, rest)
	default:
		if !s.renews(call, verb) {
			s.wrong("not understood")
		}
	}
	if call.Kind == RenewAll && call.Answers == nil {
		call.Answers = make([]store.Renewed, len(call.Batch))
		for i := range call.Answers {
			call.Answers[i].Err = call.Err
		}
	}
	s.step(Event{Kind: Answered, Call: call})
}

// granted grants a claim, or renews: "30s left", "in line: ben".
func (s *script) granted(call *Call, text string) {
	left, since, line := time.Duration(0), s.clock(), []store.Place(nil)
	for _, part := range strings.Split(text, "; ") {
		if span, found := strings.CutSuffix(part, " left"); found {
			left = s.span(span)
		} else if part != "" {
			line = s.line(call.Claim.Key, part)
		}
	}
	if call.Kind == RenewAll {
		for _, h := range call.Batch {
			call.Answers = append(call.Answers, store.Renewed{Left: cmp.Or(left, h.Terms.TTL), Line: line})
		}
		return
	}
	s.tokens++
	call.Grant = store.Grant{Token: s.tokens, Left: cmp.Or(left, call.Claim.TTL), Since: since, Line: line}
}

// renews answers a bulk, some of which are renewed and others not: "renews all but ann".
func (s *script) renews(call *Call, text string) bool {
	names, found := strings.CutPrefix(text, "renews all but ")
	names, gone := strings.CutSuffix(names, ", which is gone")
	for _, h := range call.Batch {
		answer := store.Renewed{Left: h.Terms.TTL}
		if slices.Contains(strings.Split(names, ", "), s.of(h)) {
			answer = store.Renewed{Err: errFault}
			if gone {
				answer.Err = store.ErrGone
			}
		}
		call.Answers = append(call.Answers, answer)
	}
	return found
}

// shows answers a read, or the leaving of a line: "shows; held by ben for 20s". Several keys are parted by " / ".
func (s *script) shows(call *Call, text string) {
	if call.Kind == Leave {
		call.Seen = []store.Status{s.status(call.Ref.Key, "", text)}
		return
	}
	for i, each := range strings.Split(text, " / ") {
		call.Seen = append(call.Seen, s.status(call.Keys[i], s.own(call.Keys[i]), each))
	}
}

// own returns the place of this client's head.
func (s *script) own(key string) store.Place {
	if q := s.core.keys.All[key]; q != nil {
		return q.view.Place
	}
	return ""
}

// line reads "in line: ben, cat".
func (s *script) line(key, text string) (all []store.Place) {
	for _, w := range s.waiters(s.own(key), text) {
		all = append(all, w.Place)
	}
	return all
}

// waiters reads who is in line: "in line: ben, reader cat, we, dan seen 3s ago". own is the place of "we".
func (s *script) waiters(own store.Place, text string) (all []store.Waiter) {
	text, found := strings.CutPrefix(text, "in line: ")
	if !found {
		require.Empty(s.t, text)
		return nil
	}
	for _, each := range strings.Split(crowd(text), ", ") {
		each, age, seen := strings.Cut(strings.TrimSuffix(each, " ago"), " seen ")
		each, ago, joined := strings.Cut(each, " since ")
		w := store.Waiter{Owner: each, Since: s.clock().Add(-time.Minute), Seen: s.clock().Add(-10 * time.Second)}
		if joined {
			w.Since = s.clock().Add(-s.span(ago))
		}
		each, w.Slow = strings.CutSuffix(each, " who is slow")
		switch {
		case each == "we":
			w.Place, w.Seen = own, s.clock()
		case strings.HasPrefix(each, "place "):
			w.Place = s.place(each)
		default:
			w.Place = s.other(each)
		}
		if seen {
			w.Seen = s.clock().Add(-s.span(age))
		}
		all = append(all, w)
	}
	return all
}

// crowd writes "3 others" as "w1, w2, w3".
func crowd(text string) string {
	count, rest, found := strings.Cut(text, " others")
	n, err := strconv.Atoi(count)
	if !found || err != nil {
		return text
	}
	all := make([]string, n)
	for i := range all {
		all[i] = "w" + strconv.Itoa(i+1)
	}
	return strings.Join(all, ", ") + rest
}

// other returns the place of another client: "ben", "reader ben", "ben who polls", "ben for 2 of 5".
func (s *script) other(text string) store.Place {
	text, polls := strings.CutSuffix(text, " who polls")
	text, permits, _ := strings.Cut(text, " for ")
	name, reads := strings.CutPrefix(text, "reader ")
	mark, address := "x", name
	if reads {
		mark = "s"
	}
	if weight, limit, found := strings.Cut(permits, " of "); found {
		mark = "p" + limit
		if weight != "1" {
			mark += "w" + weight
		}
	}
	if polls {
		address = ""
	}
	p := store.Place(mark + ":" + address + ":" + name)
	s.places[p] = name
	return p
}

var holder = regexp.MustCompile(`^(\S+)(?: with (\d+))? for (\S+?)(,? since \S+)?( released)?( yielding)?$`)

// status reads what the store shows of a key: "held by ben for 20s", "shared by ben for 20s and cat for 10s",
// "permits: ben with 2 for 20s", "free for 1s", "used 2s", "in line: cat, we".
func (s *script) status(key string, own store.Place, text string) store.Status {
	st := store.Status{Key: key, Now: s.clock()}
	for _, part := range strings.Split(text, "; ") {
		holders := ""
		for prefix, mode := range map[string]store.Mode{"held by ": store.Exclusive, "shared by ": store.Shared, "permits: ": store.Permits} {
			if h, found := strings.CutPrefix(part, prefix); found {
				st.Mode, holders = mode, h
			}
		}
		switch {
		case holders != "":
			for _, h := range strings.Split(holders, " and ") {
				st.Holders = append(st.Holders, s.holder(h))
			}
		case strings.HasPrefix(part, "free for "):
			st.Freed = s.clock().Add(-s.span(strings.TrimPrefix(part, "free for ")))
		case strings.HasPrefix(part, "used "):
			st.Used = s.span(strings.TrimPrefix(part, "used "))
		case part == "free":
		default:
			st.Line = s.waiters(own, part)
		}
	}
	return st
}

func (s *script) holder(text string) store.Holder {
	m := holder.FindStringSubmatch(text)
	require.NotNil(s.t, m, "no holder: %s", text)
	h := store.Holder{ID: m[1], Owner: m[1], Since: s.clock().Add(-time.Minute), ExpireAt: s.clock().Add(s.span(m[3]))}
	if w := s.callers[m[1]]; w != nil && w.Hold != nil {
		h.ID, h.Owner = w.Hold.Ref.ID, s.config.Owner
	}
	if m[2] != "" {
		h.Weight = int(s.number(m[2]))
	}
	if m[4] != "" {
		h.Since = s.clock().Add(-s.span(strings.Fields(m[4])[len(strings.Fields(m[4]))-1]))
	}
	h.Released = m[5] != ""
	if m[6] != "" {
		h.Yields = m[1]
	}
	return h
}
