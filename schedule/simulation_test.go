package schedule_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

var (
	simSeeds = flag.Int("schedule.seeds", 0, "how many histories of a job are simulated; 0: a few")
	simFirst = flag.Uint64("schedule.first", 0, "the first of their seeds")
)

// No history of a job breaks the sentence of docs/internals/schedule.md: random options, two plans, two to five
// processes that come, go, stall, die and are cut off, commands that are lost, late and repeated, and people who pause it.
func TestNoSeedBreaksTheFateOfADueTime(t *testing.T) {
	for seed := *simFirst; seed < *simFirst+seeds(48); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				h := simulate(c, seed, onMemory)
				assert.Empty(c, h.judge(), "%v", h)
			})
		})
	}
}

func seeds(few int) uint64 {
	if *simSeeds > 0 {
		return uint64(*simSeeds)
	}
	return uint64(fewer.Of(few))
}

// onMemory returns the way of each process to one store in memory.
func onMemory(h *history) func(nr int) jobs.Store {
	mem := &ledger{jobs.NewMemory(), h}
	return func(int) jobs.Store { return mem }
}

// A history is what became of one job's due times.
type history struct {
	*cluster
	seed    uint64
	rng     *rand.Rand
	opts    jobOptions
	plans   [2]schedule.Plan
	weather int // of a thousand calls, so many are lost, and as many of the replies

	mu      sync.Mutex // protects what follows
	claims  []*granted
	spans   []jobs.Span
	edition int64 // of spans
	asked   []time.Time
	bouts   []*bout
	told    []schedule.Event
	dead    map[*process]bool
	faults  []string
}

// jobOptions are those of the job.
type jobOptions struct {
	each, beside, once bool
	maxLate            time.Duration
	retries            int
}

// A granted claim, as the store saw it.
type granted struct {
	jobs.Claim
	back bool // it was returned before its due time
}

// A bout is one call of the function, up to its end or its process's death.
type bout struct {
	schedule.Run
	by       *process
	from, to time.Time
}

func (h *history) String() string {
	return fmt.Sprintf("seed %d: %+v, %v and %v, weather %d", h.seed, h.opts, h.plans[0], h.plans[1], h.weather)
}

// A ledger notes what a store has granted.
type ledger struct {
	jobs.Store
	h *history
}

func (l *ledger) Claim(ctx context.Context, c jobs.Claim) (jobs.Claimed, error) {
	won, err := l.Store.Claim(ctx, c)
	if err == nil {
		l.h.mu.Lock()
		defer l.h.mu.Unlock()
		l.h.claims = append(l.h.claims, &granted{Claim: c})
	}
	return won, err
}

func (l *ledger) Undo(ctx context.Context, c jobs.Claim) (bool, error) {
	settled, err := l.Store.Undo(ctx, c)
	all, _ := l.Store.Read(context.WithoutCancel(ctx), []string{c.Job}, jobs.WithoutPast)
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	for _, g := range l.h.claims {
		if g.ID == c.ID && c.Back && err == nil && len(all) > 0 && !slices.ContainsFunc(all[0].Runs, func(r jobs.Run) bool { return r.ID == c.ID }) {
			g.back = true
		}
	}
	return settled, err
}

// The calls that arrive late have contexts that have ended.

func (l *ledger) Renew(ctx context.Context, r jobs.Ref, ttl time.Duration, begun bool) (time.Duration, error) {
	return l.Store.Renew(context.WithoutCancel(ctx), r, ttl, begun)
}

func (l *ledger) End(ctx context.Context, e jobs.End) error {
	return l.Store.End(context.WithoutCancel(ctx), e)
}

func (l *ledger) Plan(ctx context.Context, seen jobs.State, plans []jobs.Span) error {
	return l.Store.Plan(context.WithoutCancel(ctx), seen, plans)
}

// Read notes the plans, whoever has changed them.
func (l *ledger) Read(ctx context.Context, names []string, detail jobs.Detail) ([]jobs.State, error) {
	all, err := l.Store.Read(ctx, names, detail)
	if err == nil && len(all) > 0 {
		l.h.mu.Lock()
		defer l.h.mu.Unlock()
		if s := all[0]; s.Edition > l.h.edition { // those before are not there any more, because they are decided
			l.h.edition = s.Edition
			l.h.spans = slices.DeleteFunc(l.h.spans, func(old jobs.Span) bool { return !old.From.Before(s.Plans[0].From) })
			l.h.spans = append(l.h.spans, s.Plans...)
		}
		if at := all[0].Asked; !at.IsZero() && !slices.Contains(l.h.asked, at) {
			l.h.asked = append(l.h.asked, at)
		}
	}
	return all, err
}

// process starts one, which dies with its link.
func (h *history) process(nr int, to jobs.Store, plan schedule.Plan) *process {
	var p *process
	gaveUp := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.dead[p] = true
	}
	p = h.cluster.process(nr, schedule.WithLogger(slog.New(leftovers{slog.DiscardHandler, gaveUp})), schedule.WithEvents(func(e schedule.Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.dead[p] {
			h.told = append(h.told, e)
		}
	}))
	p.link.To = to
	p.link.fail(h.wind(uint64(nr)))
	p.link.late = h.lateness(uint64(nr))
	takes := rand.New(rand.NewPCG(h.seed, uint64(nr)+1000))
	opts := []schedule.JobOption{schedule.Keep(1000), schedule.With(mongolock.TTL(10 * time.Second))}
	o := h.opts
	if o.each {
		opts = append(opts, schedule.Each())
	}
	if o.beside {
		opts = append(opts, schedule.Beside())
	}
	if o.once {
		opts = append(opts, schedule.AtMostOnce())
	}
	if o.maxLate > 0 {
		opts = append(opts, schedule.MaxLate(o.maxLate))
	}
	if o.retries > 0 {
		opts = append(opts, schedule.Retry(o.retries, 5*time.Second))
	}
	require.NoError(h, p.Add("job", plan, func(ctx context.Context, r schedule.Run) error {
		b := &bout{Run: r, by: p, from: time.Now()}
		h.mu.Lock()
		h.bouts = append(h.bouts, b)
		d, fails := time.Duration(takes.IntN(5_000))*time.Millisecond, takes.IntN(4) == 0
		if takes.IntN(6) == 0 {
			d *= 10
		}
		h.mu.Unlock()
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if b.to.IsZero() {
				b.to = time.Now()
			}
		}()
		select {
		case <-time.After(d):
			if fails {
				return errors.New("no paper")
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, opts...))
	return p.start()
}

// leftovers notices that a process which was told to stop could not record the end of a run.
type leftovers struct {
	slog.Handler
	noticed func()
}

func (leftovers) Enabled(context.Context, slog.Level) bool { return true }

func (l leftovers) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "schedule: could not record the end of every run") {
		l.noticed()
	}
	return nil
}

// wind loses calls and replies, and holds calls up.
func (h *history) wind(nr uint64) func(string) (before, after error) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(h.seed, nr+2000))
	return func(string) (before, after error) {
		mu.Lock()
		x, pause := rng.IntN(1000), time.Duration(rng.IntN(25))*time.Millisecond
		if rng.IntN(1000) < h.weather {
			pause = time.Duration(rng.IntN(4500)) * time.Millisecond
		}
		mu.Unlock()
		time.Sleep(pause)
		switch {
		case x < h.weather:
			return errCut, nil
		case x < 2*h.weather:
			return nil, errCut
		}
		return nil, nil
	}
}

// lateness has a call applied late, or twice, though its caller was told that it failed. Claims and undos are
// the store's own to keep apart (see its contract).
func (h *history) lateness(nr uint64) func(string) time.Duration {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(h.seed, nr+3000))
	return func(call string) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if x := rng.IntN(1000); call == "claim" || call == "undo" || call == "read" || x >= h.weather {
			return 0
		}
		return time.Duration(rng.IntN(20_000)) * time.Millisecond
	}
}

// simulate has processes share a job for an hour.
func simulate(c *cluster, seed uint64, on func(*history) func(nr int) jobs.Store) *history {
	h := &history{cluster: c, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), dead: map[*process]bool{}}
	odds := func(n int) bool { return h.rng.IntN(n) == 0 }
	h.opts = jobOptions{each: odds(2), beside: odds(3), once: odds(3)}
	if odds(3) {
		h.opts.maxLate = time.Duration(10+h.rng.IntN(170)) * time.Second
	}
	if !h.opts.once && odds(2) {
		h.opts.retries = 1 + h.rng.IntN(3)
	}
	some := []schedule.Plan{schedule.Every(time.Minute), schedule.Every(20 * time.Second), schedule.Every(7 * time.Minute), schedule.Cron("*/2 * * * *"),
		schedule.Cron("CRON_TZ=Europe/Berlin 10,40 * * * * *"), schedule.At(c.begin.Add(30 * time.Minute))}
	h.plans = [2]schedule.Plan{some[h.rng.IntN(5)], some[h.rng.IntN(6)]}
	h.weather = []int{0, 30, 150}[h.rng.IntN(3)]
	store := on(h)
	observer := store(-1)
	var all, dead []*process
	over := make(chan struct{})
	start := func(nr int) *process { return h.process(nr, store(nr), h.plans[h.rng.IntN(2)]) }
	for nr := range 2 + h.rng.IntN(4) {
		all = append(all, start(nr))
	}
	pass := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			time.Sleep(min(time.Minute, time.Until(end)))
			_, _ = observer.Read(c.Context(), []string{"job"}, jobs.WithoutPast)
		}
	}
	change := func(what jobs.Change) { _, _ = observer.Change(c.Context(), "job", what) }
	for nr := 5; time.Since(c.begin) < time.Hour; nr++ {
		pass(time.Duration(h.rng.IntN(150_000)) * time.Millisecond)
		i := h.rng.IntN(len(all))
		switch p := all[i]; h.rng.IntN(7) {
		case 0, 1: // it dies
			p.link.fail(func(string) (error, error) { <-over; return errCut, nil })
			h.mu.Lock()
			h.dead[p] = true
			for _, b := range h.bouts {
				if b.by == p && b.to.IsZero() {
					b.to = time.Now()
				}
			}
			h.mu.Unlock()
			dead = append(dead, p)
			all[i] = start(nr)
		case 2, 3: // it is deployed
			p.end()
			all[i] = start(nr)
		case 4: // it is cut off, or stalls
			stalls := odds(2)
			p.link.fail(func(string) (error, error) {
				if stalls {
					time.Sleep(time.Duration(10+nr%30) * time.Second)
				}
				return errCut, nil
			})
			pass(time.Duration(h.rng.IntN(45_000)) * time.Millisecond)
			p.link.fail(h.wind(uint64(nr)))
		case 5:
			change(jobs.AskRun)
		case 6:
			change(jobs.Pause)
			pass(time.Duration(h.rng.IntN(240_000)) * time.Millisecond)
			change(jobs.Resume)
		}
	}
	for _, p := range all { // calm
		p.link.fail(nil)
		p.link.late = nil
	}
	pass(25 * time.Minute)
	for _, p := range all {
		p.end()
	}
	close(over)
	for _, p := range dead {
		p.stop()
		<-p.over
	}
	c.store = observer
	return h
}

// A fate is what the records say of one due time.
type fate struct {
	claimed, dropped int // by claims of due times
	carried          int // claims that carried a word of its being dropped
	begun            int
	first            time.Time // its first beginning
	told             int       // as dropped
	ended            int       // as a run's end that is not repeated
	past             []jobs.Run
}

// judge returns what is wrong with a history.
func (h *history) judge() []string {
	state := h.state("job")
	h.mu.Lock()
	defer h.mu.Unlock()
	wrong := func(format string, args ...any) { h.faults = append(h.faults, fmt.Sprintf(format, args...)) }
	since := func(t time.Time) time.Duration { return t.Sub(h.begin) }
	slices.SortFunc(h.bouts, func(a, b *bout) int { return a.from.Compare(b.from) })
	for i, a := range h.bouts {
		for _, b := range h.bouts[:i] {
			if a.from.Before(b.to) && (!h.opts.beside || a.Due.Equal(b.Due)) {
				wrong("%v attempt %d and %v attempt %d run at one time, at %v", since(b.Due), b.Attempt, since(a.Due), a.Attempt, since(a.from))
			}
			if a.Token() == b.Token() || a.Token() < b.Token() && !h.opts.beside {
				wrong("the token of %v is %d after %d", since(a.Due), a.Token(), b.Token())
			}
		}
	}
	const judged = 80 * time.Minute // what came later may be under way at the end
	for _, r := range state.Runs {
		if since(r.Due) < judged {
			wrong("left open: %+v", r)
		}
	}
	fates := map[time.Time]*fate{}
	of := func(at time.Time) *fate {
		if fates[at] == nil {
			fates[at] = &fate{}
		}
		return fates[at]
	}
	dues := h.dues(h.begin.Add(judged))
	covered := func(first, last time.Time, f func(at time.Time)) {
		for at := range dues {
			if !at.Before(first) && !at.After(last) {
				f(at)
			}
		}
	}
	for _, c := range h.claims {
		if c.back {
			continue
		}
		if c.Dead == nil {
			of(c.Run.Due).claimed++
		}
		for _, d := range c.Run.Drops {
			covered(d.First, d.Last, func(at time.Time) {
				if of(at).carried++; c.Dead == nil && !at.Equal(c.Run.Due) {
					of(at).dropped++
				}
			})
			if h.opts.each && strings.HasPrefix(d.Why, "later due times") && len(h.spans) < 3 {
				wrong("with Each %+v was dropped", d)
			}
		}
	}
	for _, b := range h.bouts {
		f := of(b.Due)
		if f.begun++; f.begun == 1 {
			f.first = b.from
		}
	}
	for _, e := range h.told {
		switch {
		case e.Kind == schedule.Dropped:
			covered(e.First, e.Due, func(at time.Time) { of(at).told++ })
		case e.Kind == schedule.Ended && e.Again.IsZero():
			of(e.Due).ended++
		}
	}
	for _, r := range state.Past {
		of(r.Due).past = append(of(r.Due).past, r)
	}
	for at, plan := range dues {
		f := of(at)
		switch {
		case f.claimed+f.dropped == 0 && !plan: // a call of RunNow, for which the next due time did
		case f.claimed+f.dropped != 1:
			wrong("%v was claimed %d times and dropped %d times", since(at), f.claimed, f.dropped)
		case f.dropped == 1 && (f.told < 1 || f.told > f.carried || f.ended > 0 || f.begun > 0):
			wrong("%v was dropped, which %d claims carried: told %d times, %d times as ended, begun %d times", since(at), f.carried, f.told, f.ended, f.begun)
		case f.claimed == 1:
			h.judgeClaimed(at, f, wrong)
		}
	}
	return h.faults
}

// judgeClaimed judges a due time that was claimed.
func (h *history) judgeClaimed(at time.Time, f *fate, wrong func(string, ...any)) {
	due := at.Sub(h.begin)
	if len(f.past) == 0 {
		wrong("%v was claimed, and has no record", due)
		return
	}
	slices.SortFunc(f.past, func(a, b jobs.Run) int { return int(a.Number - b.Number) })
	last := f.past[len(f.past)-1]
	if h.opts.once && f.begun > 1 {
		wrong("%v began %d times", due, f.begun)
	}
	if late := f.first.Sub(at); f.begun > 0 && h.opts.maxLate > 0 && late > h.opts.maxLate+5*time.Second && !slices.Contains(h.asked, at) {
		wrong("%v began %v late", due, late)
	}
	outcomes := map[string]int{}
	for _, r := range f.past {
		outcomes[r.Outcome]++
		if again := r.ID != last.ID; again && r.Outcome == string(schedule.Succeeded) || again && r.Outcome == string(schedule.TooLate) {
			wrong("%v: repeated after %s", due, r.Outcome)
		}
	}
	if outcomes["failed"] > h.opts.retries+1 || outcomes["died"] > 3 {
		wrong("%v: repeated too often: %v", due, outcomes)
	}
	dropped := last.Verdict != "" || last.Outcome == string(schedule.TooLate)
	switch {
	case dropped && (f.told < 1 || f.told > max(1, f.carried) || f.ended > 0):
		wrong("%v ended as %s, which %d claims carried: told %d times, %d times as ended", due, last.Outcome, f.carried, f.told, f.ended)
	case !dropped && (f.told > 0 || f.ended > 1):
		wrong("%v ended as %s: told %d times as dropped, %d times as ended", due, last.Outcome, f.told, f.ended)
	case !dropped && f.ended == 0 && !h.diedIn(last):
		wrong("%v ended as %s: not told", due, last.Outcome)
	}
}

// diedIn reports whether the process that had a run died, or was told to stop, before it could have told its end.
func (h *history) diedIn(r jobs.Run) bool {
	for _, b := range h.bouts {
		if b.ID == r.ID {
			return h.dead[b.by]
		}
	}
	return false
}

// dues returns the due times up to a time, by all plans that the document has had, and whether a plan has them
// or a call of RunNow.
func (h *history) dues(last time.Time) map[time.Time]bool {
	dues := map[time.Time]bool{}
	for _, at := range h.asked {
		dues[at] = false
	}
	known := map[string]schedule.Plan{h.plans[0].String(): h.plans[0], h.plans[1].String(): h.plans[1]}
	for i, s := range h.spans {
		to := last
		if i+1 < len(h.spans) && h.spans[i+1].From.Before(to) {
			to = h.spans[i+1].From
		}
		if s.Plan == "" {
			continue
		}
		for at := known[s.Plan].Next(s.From); !at.IsZero() && !at.After(to); at = known[s.Plan].Next(at) {
			dues[at] = true
		}
	}
	return dues
}

func ofADueTime(g *granted) bool { return g.Dead == nil }

// A control: histories are made wrong after the fact.
func TestControlTheJudgeOfFatesNoticesWhatIsWrong(t *testing.T) {
	for says, spoil := range map[string]func(h *history){
		"run at one time":     func(h *history) { h.bouts[5].to = h.bouts[6].from.Add(1) },
		"claimed 0 times and": func(h *history) { h.claims = slices.DeleteFunc(h.claims, ofADueTime) },
		"claimed 2 times and": func(h *history) { h.claims = append(h.claims, h.claims...) },
		"not told":            func(h *history) { h.told = h.told[:10] },
		"2 times as ended":    func(h *history) { h.told = append(h.told, h.told...) },
		" late": func(h *history) {
			h.opts.maxLate = time.Millisecond
			h.bouts[5].from = h.bouts[5].from.Add(6 * time.Second)
		},
		"began 2 times": func(h *history) { h.opts.once = true; h.bouts = append(h.bouts, h.bouts[5]) },
		"the token of":  func(h *history) { h.bouts[6].Number = h.bouts[5].Number },
	} {
		inCluster(t, func(c *cluster) {
			h := simulate(c, 12, onMemory)
			require.Empty(c, h.judge(), "%v", h)
			spoil(h)
			assert.Contains(c, strings.Join(h.judge(), "; "), says)
		})
	}
}
