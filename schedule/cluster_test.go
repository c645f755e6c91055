package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
)

// A link is a process's way to the store. It counts the calls, and fails on command.
type link struct {
	jobstest.Store

	mu    sync.Mutex
	calls map[string]int
	reply time.Duration                           // how long the reply of a claim takes
	skew  time.Duration                           // how far the store's clock is ahead
	old   time.Duration                           // how far the process's samples of it are behind
	fault func(call string) (before, after error) // before: not applied; after: applied, reply lost
	late  func(call string) time.Duration         // positive: the call fails now, and is applied that much later, or once more
}

func newLink(to jobs.Store) *link {
	l := &link{calls: map[string]int{}}
	l.Store = jobstest.Store{To: to, Through: l.through}
	return l
}

func (l *link) through(_ context.Context, c jobstest.Call, send func() error) error {
	l.mu.Lock()
	if c.Op != "changed" { // a poll every 30 s, whatever the jobs do (TestAProcessAsksEvery30Seconds)
		l.calls[c.Op]++
	}
	fault, reply, late := l.fault, l.reply, l.late
	l.mu.Unlock()
	if late != nil {
		if d := late(c.Op); d > 0 {
			if d.Milliseconds()%2 == 0 {
				_ = send()
			}
			time.AfterFunc(d, func() { _ = send() })
			return errCut
		}
	}
	if c.Op == "claim" {
		defer time.Sleep(reply)
	}
	if fault == nil {
		return send()
	}
	before, after := fault(c.Op)
	if before != nil {
		return before
	}
	return errors.Join(send(), after)
}

// fail has fault decide about each call from now on; nil ends that.
func (l *link) fail(fault func(call string) (before, after error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = fault
}

var errCut = errors.New("the connection is cut")

// cut makes every call fail from now on.
func (l *link) cut() { l.fail(func(string) (error, error) { return errCut, nil }) }

// delay makes a claim take effect that much later from now on.
func (l *link) delay(d time.Duration) {
	l.fail(func(call string) (error, error) {
		if call == "claim" {
			time.Sleep(d)
		}
		return nil, nil
	})
}

// delayReply makes the reply of a claim arrive that much after the claim was applied.
func (l *link) delayReply(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reply = d
}

// counted returns the calls since it was last asked.
func (l *link) counted() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.calls
	l.calls = map[string]int{}
	return was
}

func (l *link) Claim(ctx context.Context, c jobs.Claim) (won jobs.Claimed, err error) {
	l.mu.Lock()
	if c.Dead != nil {
		dead := *c.Dead
		dead.ExpireAt = dead.ExpireAt.Add(-l.skew) // as Read has shown it
		c.Dead = &dead
	}
	l.mu.Unlock()
	won, err = l.Store.Claim(ctx, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	won.Began = won.Began.Add(l.skew)
	if err == nil {
		l.old = 0 // the reply is a sample
	}
	return won, err
}

func (l *link) Read(ctx context.Context, names []string, detail jobs.Detail) (all []jobs.State, err error) {
	all, err = l.Store.Read(ctx, names, detail)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range all {
		if detail == jobs.WithPast {
			l.old = 0 // it asks for the time
		}
		all[i].Now = all[i].Now.Add(l.skew - l.old)
		for n := range all[i].Runs {
			all[i].Runs[n].ExpireAt = all[i].Runs[n].ExpireAt.Add(l.skew)
		}
	}
	return all, err
}

func (l *link) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Store.Now().Add(l.skew - l.old)
}

// setClock sets how far the store's clock is ahead of the real time, and how far behind it
// this process's samples of it are.
func (l *link) setClock(ahead, behind time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skew, l.old = ahead, behind
}

// A cluster is a store and the processes on it, in virtual time.
type cluster struct {
	*testing.T
	store jobs.Store
	begin time.Time

	mu   sync.Mutex
	runs []ran
}

// ran is one run, in which process, and when it began.
type ran struct {
	schedule.Run
	by int
	at time.Duration // since the cluster's beginning
}

// inCluster runs a test in virtual time, which begins at midnight.
func inCluster(t *testing.T, body func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		body(&cluster{T: t, store: jobs.NewMemory(), begin: time.Now().UTC()})
	})
}

// A process is one Scheduler.
type process struct {
	*schedule.Scheduler
	cluster *cluster
	link    *link
	nr      int
	stop    context.CancelFunc
	over    chan error
}

func (c *cluster) process(nr int, opts ...schedule.Option) *process {
	c.Helper()
	p := &process{cluster: c, link: newLink(c.store), nr: nr, over: make(chan error, 1)}
	opts = append([]schedule.Option{
		schedule.WithOwner(fmt.Sprintf("process-%d", nr)), schedule.WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)
	var err error
	p.Scheduler, err = schedule.NewWithStore(p.link, opts...)
	require.NoError(c, err)
	return p
}

// add gives the process a job whose runs are noted, and take that long.
func (p *process) add(name string, plan schedule.Plan, takes time.Duration, opts ...schedule.JobOption) *process {
	p.cluster.Helper()
	return p.job(name, plan, func(ctx context.Context, _ schedule.Run) error {
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, opts...)
}

// job gives the process a job whose runs are noted.
func (p *process) job(name string, plan schedule.Plan, fn schedule.Func, opts ...schedule.JobOption) *process {
	p.cluster.Helper()
	err := p.Add(name, plan, func(ctx context.Context, run schedule.Run) error {
		p.cluster.mu.Lock()
		p.cluster.runs = append(p.cluster.runs, ran{run, p.nr, time.Since(p.cluster.begin)})
		p.cluster.mu.Unlock()
		return fn(ctx, run)
	}, opts...)
	require.NoError(p.cluster, err)
	return p
}

func (p *process) start() *process {
	ctx, cancel := context.WithCancel(p.cluster.Context())
	p.stop = cancel
	go func() { p.over <- p.Run(ctx) }()
	return p
}

// end stops the process and waits for its Run.
func (p *process) end() {
	p.cluster.Helper()
	p.stop()
	assert.NoError(p.cluster, <-p.over, "process %d", p.nr)
}

// fires lists the fires that ran so far, as times since the cluster's beginning.
func (c *cluster) fires() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]time.Duration, len(c.runs))
	for i, run := range c.runs {
		all[i] = run.Due.Sub(c.begin)
	}
	slices.Sort(all)
	return all
}

// took returns the runs so far, in the order in which they began, and forgets them.
func (c *cluster) took() []ran {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.runs
	c.runs = nil
	return was
}

func (c *cluster) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// until sleeps to that long after the cluster's beginning.
func (c *cluster) until(d time.Duration) { c.sleep(d - time.Since(c.begin)) }

// third claims the third attempt at a due time of "job", right at the beginning, whose earlier ones have died.
func (c *cluster) third(ttl, period time.Duration) jobs.Claim {
	c.Helper()
	before := c.begin.Add(-time.Millisecond)
	_, err := c.store.Register(c.Context(), "job", schedule.Every(period).String(), before)
	require.NoError(c, err)
	claim := jobs.Claim{Ref: jobs.Ref{Job: "job", ID: "third"}, Run: jobs.Run{Due: c.begin, Attempt: 3, Deaths: 2, Owner: "other"},
		TTL: ttl, Keep: 10, Edition: 1, Mark: before, First: c.begin}
	_, err = c.store.Claim(c.Context(), claim)
	require.NoError(c, err)
	return claim
}

func (c *cluster) state(name string) jobs.State {
	c.Helper()
	all, err := c.store.Read(context.Background(), []string{name}, jobs.WithPast)
	require.NoError(c, err)
	return all[0]
}

// lates are the ways in which a job deals with due times that could not run.
var lates = map[string][]schedule.JobOption{
	"the latest":             nil,
	"each":                   {schedule.Each()},
	"the latest, if not old": {schedule.MaxLate(time.Minute)},
	"each that is not old":   {schedule.Each(), schedule.MaxLate(time.Minute)},
}

// combinations are all settings of a job.
func combinations() map[string][]schedule.JobOption {
	all := make(map[string][]schedule.JobOption)
	for name, opts := range lates {
		for _, beside := range []bool{false, true} {
			for _, once := range []bool{false, true} {
				name, opts := name, slices.Clone(opts)
				if beside {
					name, opts = name+", beside", append(opts, schedule.Beside())
				}
				if once {
					name, opts = name+", at most once", append(opts, schedule.AtMostOnce())
				}
				all[name] = opts
			}
		}
	}
	return all
}

func seconds(all ...float64) []time.Duration {
	d := make([]time.Duration, len(all))
	for i, s := range all {
		d[i] = time.Duration(s * float64(time.Second))
	}
	return d
}
