package simulated_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside/above"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/internal/test/simulation"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
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
			t.Parallel()
			synctest.Test(t, func(c *testing.T) {
				h := simulate(c, seed, onMemory)
				assert.Empty(c, h.judge(), "%v", h)
			})
		})
	}
}

// On the store of New, over simulated servers.
func TestNoSeedBreaksTheFateOfADueTimeOnMongoDB(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))                         // as in package simulation
	for seed := *simFirst; seed < *simFirst+max(1, seeds(120)/20); seed++ { // each takes as long as twenty in memory
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			defer simulation.Seeded(seed)()
			synctest.Test(t, func(c *testing.T) {
				h := simulate(c, seed, onMongo)
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
	return func(int) jobs.Store { return slow{h.recorder} }
}

// onMongo returns the way of each process to simulated servers, by a driver of its own. They lose, delay and repeat
// commands, and elect primaries: nothing else does. The history begins in 2026, before which tokens are negative.
func onMongo(h *history) func(nr int) jobs.Store {
	time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: see above
	h.begin, h.weather = time.Now().UTC(), 0
	h.servers = simulation.NewDatabase(h.seed, time.Hour, ttl)
	return func(nr int) jobs.Store {
		return slow{jobs.NewMongo(h.servers.Collection(nr), server.Monotonic())}
	}
}

// ttl is that of a run's lease.
const ttl = 10 * time.Second

// A history is what became of one job's due times.
type history struct {
	*testing.T
	begin   time.Time
	state   jobs.State // in the end
	seed    uint64
	rng     *rand.Rand
	opts    jobOptions
	ttl     time.Duration // for which a lease is trusted
	plans   [2]schedule.Plan
	weather int                  // of a thousand calls, so many are lost, and as many of the replies
	servers *simulation.Database // nil: the store is in memory

	recorder *jobstest.Recorder // of what is in memory, and of calls of functions

	mu      sync.Mutex // protects what follows
	steps   []jobstest.Step
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
	return fmt.Sprintf("seed %d: %+v, %v and %v, weather %d, servers %v", h.seed, h.opts, h.plans[0], h.plans[1], h.weather, h.servers)
}

// A slow store is one whose calls may arrive when their callers have given up.
type slow struct{ jobs.Store }

// late returns the context of a call that may arrive late, when that of its caller has ended. It has a bound of its
// own: a reply that is lost would hold it up for good.
func late(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}

func (l slow) Renew(ctx context.Context, r jobs.Ref, ttl time.Duration, begun bool) (time.Duration, error) {
	ctx, cancel := late(ctx)
	defer cancel()
	return l.Store.Renew(ctx, r, ttl, begun)
}

func (l slow) End(ctx context.Context, e jobs.End) error {
	ctx, cancel := late(ctx)
	defer cancel()
	return l.Store.End(ctx, e)
}

func (l slow) Plan(ctx context.Context, seen jobs.State, plans []jobs.Span) error {
	ctx, cancel := late(ctx)
	defer cancel()
	return l.Store.Plan(ctx, seen, plans)
}

func (l slow) Change(ctx context.Context, name string, change jobs.Change) (bool, error) {
	ctx, cancel := late(ctx)
	defer cancel()
	return l.Store.Change(ctx, name, change)
}

func (l slow) Read(ctx context.Context, names []string, detail jobs.Detail) ([]jobs.State, error) {
	ctx, cancel := late(ctx)
	defer cancel()
	return l.Store.Read(ctx, names, detail)
}

// saw notes the plans of the document, and when RunNow was called.
func (h *history) saw(edition int64, plans []jobs.Span, asked time.Time) {
	if edition > h.edition { // those before are not there any more, because they are decided
		h.edition = edition
		h.spans = slices.DeleteFunc(h.spans, func(old jobs.Span) bool { return !old.From.Before(plans[0].From) })
		h.spans = append(h.spans, plans...)
	}
	if !asked.IsZero() && !slices.Contains(h.asked, asked) {
		h.asked = append(h.asked, asked)
	}
}

// readWrites adds what the servers did, by the writes that lasted.
func (h *history) readWrites() {
	read := func(doc bson.D) *jobstest.Document {
		d := &jobstest.Document{Beats: map[string]int64{}}
		var of struct {
			Runs map[string]struct{ Beat int64 }
		}
		raw, err := bson.Marshal(append(bson.D{}, doc...))
		require.NoError(h, errors.Join(err, bson.Unmarshal(raw, d), bson.Unmarshal(raw, &of)))
		for id, r := range d.Runs {
			r.ID = id
			d.Runs[id], d.Beats[id] = r, of.Runs[id].Beat
		}
		return d
	}
	var all []jobstest.Step
	for _, w := range h.servers.Close() {
		all = append(all, jobstest.Step{At: h.begin.Add(w.At), Before: read(w.Before), After: read(w.After)})
	}
	h.steps = append(all, h.steps...)
	slices.SortStableFunc(h.steps, func(a, b jobstest.Step) int { return a.At.Compare(b.At) })
}

// readSteps notes what was granted.
func (h *history) readSteps() {
	for _, s := range h.steps {
		if s.After == nil {
			continue
		}
		h.saw(s.After.Edition, s.After.Plans, s.After.Asked)
		var claimed *granted
		for id, r := range s.After.Runs {
			if _, was := s.Before.Runs[id]; !was {
				claimed = &granted{Claim: jobs.Claim{Ref: jobs.Ref{Job: "job", ID: id}, Run: r}}
				h.claims = append(h.claims, claimed)
			}
		}
		for id, r := range s.Before.Runs {
			if _, is := s.After.Runs[id]; is {
				continue
			}
			if claimed != nil {
				claimed.Dead = &r
			}
			if s.After.Decided.Before(s.Before.Decided) {
				h.claims[slices.IndexFunc(h.claims, func(g *granted) bool { return g.ID == id })].back = true
			}
		}
	}
}

// process starts one, which dies with its link.
func (h *history) process(nr int, to jobs.Store, plan schedule.Plan) *process {
	var p *process
	gaveUp := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.dead[p] = true
	}
	p = &process{link: jobstest.NewLink(to), nr: nr, over: make(chan error, 1)}
	s, err := above.Scheduler(p.link, []schedule.Option{schedule.WithOwner(fmt.Sprint("process-", nr)), schedule.WithLogger(slog.New(leftovers{slog.DiscardHandler, gaveUp})), schedule.WithEvents(func(e schedule.Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.dead[p] {
			h.told = append(h.told, e)
		}
	})})
	require.NoError(h, err)
	p.Scheduler = s.(*schedule.Scheduler)
	p.link.Fail(h.wind(uint64(nr)))
	p.link.Late(h.lateness(uint64(nr)))
	h.add(p, plan)
	ctx, cancel := context.WithCancel(h.Context())
	p.stop = cancel
	go func() { p.over <- p.Run(ctx) }()
	return p
}

// A process is one Scheduler.
type process struct {
	*schedule.Scheduler
	link *jobstest.Link
	nr   int
	stop context.CancelFunc
	over chan error
}

// end stops a process and waits for its Run.
func (h *history) end(p *process) {
	p.stop()
	assert.NoError(h, <-p.over, "process %d", p.nr)
}

// add puts the job on a process's schedule.
func (h *history) add(p *process, plan schedule.Plan) {
	takes := rand.New(rand.NewPCG(h.seed, uint64(p.nr)+1000))
	opts := []schedule.JobOption{schedule.Keep(1000), schedule.With(mongolock.TTL(ttl))}
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
		h.recorder.Called("job", r.ID, false)
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
				h.recorder.Called("job", r.ID, true)
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
		time.Sleep(pause) // virtual: a person at work
		switch {
		case x < h.weather:
			return jobstest.ErrCut, nil
		case x < 2*h.weather:
			return nil, jobstest.ErrCut
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
func simulate(c *testing.T, seed uint64, on func(*history) func(nr int) jobs.Store) *history {
	h := &history{T: c, begin: time.Now().UTC(), seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), ttl: ttl, dead: map[*process]bool{}, recorder: jobstest.NewRecorder(jobs.NewMemory())}
	odds := func(n int) bool { return h.rng.IntN(n) == 0 }
	h.opts = jobOptions{each: odds(2), beside: odds(3), once: odds(3)}
	if odds(3) {
		h.opts.maxLate = time.Duration(10+h.rng.IntN(170)) * time.Second
	}
	if !h.opts.once && odds(2) {
		h.opts.retries = 1 + h.rng.IntN(3)
	}
	h.weather = []int{0, 30, 150}[h.rng.IntN(3)]
	store := on(h)
	some := []schedule.Plan{schedule.Every(time.Minute), schedule.Every(20 * time.Second), schedule.Every(7 * time.Minute), schedule.Cron("*/2 * * * *"),
		schedule.Cron("CRON_TZ=Europe/Berlin 10,40 * * * * *"), schedule.At(h.begin.Add(30 * time.Minute))}
	h.plans = [2]schedule.Plan{some[h.rng.IntN(5)], some[h.rng.IntN(6)]}
	observer, person := store(-1), store(1000)
	var all, dead []*process
	over := make(chan struct{})
	start := func(nr int) *process { return h.process(nr, store(nr), h.plans[h.rng.IntN(2)]) }
	for nr := range 2 + h.rng.IntN(4) {
		all = append(all, start(nr))
	}
	pass := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			time.Sleep(min(time.Minute, time.Until(end))) // virtual: somebody looks each minute
			_, _ = observer.Read(c.Context(), []string{"job"}, jobs.WithoutPast)
		}
		for _, p := range all {
			h.judgeCalls(p.nr, p.link.Counted(), d)
		}
	}
	change := func(what jobs.Change) {
		for try := 0; try < 20; try++ { // a person tries again
			if _, err := person.Change(c.Context(), "job", what); err == nil {
				return
			}
		}
	}
	for nr := 5; time.Since(h.begin) < time.Hour; nr++ {
		pass(time.Duration(h.rng.IntN(150_000)) * time.Millisecond)
		i := h.rng.IntN(len(all))
		switch p := all[i]; h.rng.IntN(8) {
		case 0, 1: // it dies
			p.link.Fail(func(string) (error, error) { <-over; return jobstest.ErrCut, nil })
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
			h.end(p)
			all[i] = start(nr)
		case 4: // it is cut off, or stalls
			stalls := odds(2)
			p.link.Fail(func(string) (error, error) {
				if stalls {
					time.Sleep(time.Duration(10+nr%30) * time.Second) // virtual: a call that takes long
				}
				return jobstest.ErrCut, nil
			})
			pass(time.Duration(h.rng.IntN(45_000)) * time.Millisecond)
			p.link.Fail(h.wind(uint64(nr)))
		case 5:
			change(jobs.AskRun)
		case 6: // the job is taken off its schedule
			p.Remove("job")
			pass(time.Duration(h.rng.IntN(60_000)) * time.Millisecond)
			h.add(p, h.plans[h.rng.IntN(2)])
		case 7:
			change(jobs.Pause)
			pass(time.Duration(h.rng.IntN(240_000)) * time.Millisecond)
			change(jobs.Resume)
		}
	}
	for _, p := range all { // calm
		p.link.Fail(nil)
		p.link.Late(nil)
	}
	pass(25 * time.Minute)
	for _, p := range all {
		h.end(p)
	}
	close(over)
	for _, p := range dead {
		p.stop()
		<-p.over
	}
	read, err := observer.Read(c.Context(), []string{"job"}, jobs.WithPast)
	require.NoError(c, err)
	h.state = read[0]
	if h.steps = h.recorder.Steps("job"); h.servers != nil {
		h.readWrites()
	}
	h.readSteps()
	return h
}

// judgeCalls judges how many calls a process has made.
func (h *history) judgeCalls(nr int, sent map[string]int, in time.Duration) {
	if most := 60 * (2 + int(in/time.Minute)); sent["claim"]+sent["read"]+sent["undo"]+sent["end"] > most {
		h.faults = append(h.faults, fmt.Sprintf("process %d sent %v in %v", nr, sent, in))
	}
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

// slack is how late a claim may be applied.
func (h *history) slack() time.Duration {
	if h.servers != nil {
		return 15*time.Second + h.servers.Apart() // the reply to a claim takes up to a TTL
	}
	return 5 * time.Second
}

// judge returns what is wrong with a history.
func (h *history) judge() []string {
	slack := h.slack()
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
	for _, r := range h.state.Runs {
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
	for _, r := range h.state.Past {
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
			h.judgeClaimed(at, f, slack, wrong)
		}
	}
	return h.faults
}

// judgeClaimed judges a due time that was claimed.
func (h *history) judgeClaimed(at time.Time, f *fate, slack time.Duration, wrong func(string, ...any)) {
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
	if late := f.first.Sub(at); f.begun > 0 && h.opts.maxLate > 0 && late > h.opts.maxLate+slack && !slices.Contains(h.asked, at) {
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

// forgetsSome claims also what is decided, one time in twenty.
type forgetsSome struct {
	jobs.Store
	claims *atomic.Int64
}

func (f forgetsSome) Claim(ctx context.Context, c jobs.Claim) (jobs.Claimed, error) {
	if c.Dead == nil && f.claims.Add(1)%20 == 0 {
		all, err := f.Read(ctx, []string{c.Job}, jobs.WithoutPast)
		if err != nil {
			return jobs.Claimed{}, err
		}
		c.Mark, c.First = time.Time{}, all[0].Decided.Add(time.Hour)
	}
	return f.Store.Claim(ctx, c)
}

// A control.
func TestControlAStoreOnMongoDBThatForgetsDueTimesIsNoticed(t *testing.T) {
	synctest.Test(t, func(c *testing.T) {
		h := simulate(c, 1, func(h *history) func(int) jobs.Store {
			way, claims := onMongo(h), new(atomic.Int64)
			return func(nr int) jobs.Store {
				return forgetsSome{way(nr), claims}
			}
		})
		assert.NotEmpty(c, h.judge(), "%v", h)
	})
}

func ofADueTime(g *granted) bool { return g.Dead == nil }

// recorded adds records of a due time that ran.
func (h *history) recorded(n int, outcome string) {
	i := slices.IndexFunc(h.state.Past, func(r jobs.Run) bool { return r.Due.Equal(h.bouts[5].Due) && r.Outcome == string(schedule.Succeeded) })
	for range n {
		r := h.state.Past[i]
		r.ID, r.Number, r.Outcome = "", r.Number+1, outcome
		h.state.Past = append(h.state.Past, r)
	}
}

// A control: histories are made wrong after the fact. Each way in which the judge finds fault is tried.
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
		"left open":     func(h *history) { h.state.Runs = append(h.state.Runs, jobs.Run{Due: h.begin.Add(time.Hour)}) },
		"with Each": func(h *history) {
			h.opts.each, h.spans = true, h.spans[:1]
			h.claims[5].Run.Drops = []jobs.Drop{{Why: "later due times"}}
		},
		"claims carried: told 0 times, 0 times as ended, begun 0 times": func(h *history) {
			h.told = slices.DeleteFunc(h.told, func(e schedule.Event) bool { return e.Kind == schedule.Dropped })
		},
		"has no record":      func(h *history) { h.state.Past = nil },
		"repeated after":     func(h *history) { h.recorded(1, string(schedule.Succeeded)) },
		"repeated too often": func(h *history) { h.recorded(4, string(schedule.Died)) },
		"ended as too late":  func(h *history) { h.recorded(1, string(schedule.TooLate)) },
		"1 times as dropped": func(h *history) {
			h.told = append(h.told, schedule.Event{Kind: schedule.Dropped, First: h.bouts[5].Due, Due: h.bouts[5].Due})
		},
		"begun 1 times": func(h *history) {
			i := slices.IndexFunc(h.claims, func(g *granted) bool { return ofADueTime(g) && len(g.Run.Drops) > 0 })
			h.bouts[5].Due = h.claims[i].Run.Drops[0].First
		},
		"process 1 sent": func(h *history) { h.judgeCalls(1, map[string]int{"read": 100, "claim": 100}, time.Minute) },
	} {
		synctest.Test(t, func(c *testing.T) {
			h := simulate(c, 21, onMemory)
			require.Empty(c, h.judge(), "%v", h)
			spoil(h)
			assert.Contains(c, strings.Join(h.judge(), "; "), says)
		})
	}
}
