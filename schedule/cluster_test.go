package schedule_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// A cluster is a store and the processes on it, in virtual time.
type cluster struct {
	*testing.T
	store jobs.Store
	begin time.Time

	recorder *jobstest.Recorder

	mu   sync.Mutex
	runs []ran
	kept map[string]*schedule.Scheduler // one that has each job

	unasked bool // its claims are made by hand, or by a wrong clock, which the specification has not
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
		c := &cluster{T: t, begin: time.Now().UTC(), recorder: jobstest.NewRecorder(jobs.NewMemory()), kept: map[string]*schedule.Scheduler{}}
		c.store = c.recorder
		body(c)
		c.keep()
	})
}

var histories = flag.String("schedule.histories", "", "the folder for the histories of all clusters, of which make trace asks")

// keep writes what became of each job to a file.
func (c *cluster) keep() {
	if *histories == "" || len(c.kept) > 10 || c.unasked {
		return
	}
	for job, s := range c.kept {
		h := jobstest.History{Name: job, Begin: c.begin, Steps: c.recorder.Steps(job)}
		if len(h.Steps) < 3 || s.Kept(&h) != nil { // or none that this package can read
			continue
		}
		h.Name = c.Name() + " " + job
		raw, err := json.Marshal(h)
		require.NoError(c, err)
		file := strings.NewReplacer("/", ",", " ", "_").Replace(h.Name) + ".json"
		require.NoError(c, os.WriteFile(filepath.Join(*histories, file), raw, 0o600))
	}
}

// A process is one Scheduler.
type process struct {
	*schedule.Scheduler
	cluster *cluster
	link    *jobstest.Link
	nr      int
	stop    context.CancelFunc
	over    chan error
}

func (c *cluster) process(nr int, opts ...schedule.Option) *process {
	c.Helper()
	p := &process{cluster: c, link: jobstest.NewLink(c.store), nr: nr, over: make(chan error, 1)}
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
		p.cluster.recorder.Called(name, run.ID, false)
		defer p.cluster.recorder.Called(name, run.ID, true)
		return fn(ctx, run)
	}, opts...)
	require.NoError(p.cluster, err)
	p.cluster.kept[name] = p.Scheduler
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
	c.unasked = true
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
