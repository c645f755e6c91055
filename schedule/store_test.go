package schedule_test

import (
	"context"
	"crypto/rand"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/store"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	for name, claim := range claims() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { claim(newStoreFixture(t, jobs.NewMemory(), time.Second)) })
		})
	}
}

// claims are the duties of a Store.
func claims() map[string]func(*storeFixture) {
	all := maps.Clone(claimsAboutFires)
	maps.Copy(all, claimsAboutRuns)
	return all
}

var claimsAboutFires = map[string]func(*storeFixture){
	"a fire is claimed once": func(f *storeFixture) {
		f.claimedOnce(f.ask(1))
	},
	"of many concurrent claims of a fire one is granted": func(f *storeFixture) {
		f.won(f.ask(0)) // the document exists
		for n := 1; n <= 20; n++ {
			var wins atomic.Int32
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					c := f.ask(n)
					c.Shared = true
					_, err := f.store.Claim(f.ctx(), c)
					if err == nil {
						wins.Add(1)
					} else {
						assert.ErrorIs(f, err, jobs.ErrNotDue)
					}
					runtime.Gosched()
				})
			}
			wg.Wait()
			assert.EqualValues(f, 1, wins.Load(), "grants of fire %d", n)
		}
	},
	"a fire before one that is decided is not claimed": func(f *storeFixture) {
		c := f.ask(5)
		f.finish(c, f.won(c))
		f.refused("an earlier fire", f.ask(4))
		f.won(f.ask(6))
	},
	"a busy job is claimed only after its run has ended": func(f *storeFixture) {
		c := f.ask(1)
		won := f.won(c)
		f.refused("while it is busy", f.ask(2))
		f.finish(c, won)
		f.won(f.ask(2))
	},
	"shared runs are under way side by side": func(f *storeFixture) {
		for n := range 3 {
			c := f.ask(n)
			c.Shared = true
			won := f.won(c)
			if n == 1 {
				f.finish(c, won)
			}
		}
		s := f.state()
		require.Len(f, s.Runs, 2)
		assert.Equal(f, f.fire(0), s.Runs[0].Due)
		assert.Equal(f, f.fire(2), s.Runs[1].Due)
		assert.Len(f, s.Past, 1)
	},
	"a fire is not claimed if an earlier one is left": func(f *storeFixture) {
		c := f.ask(1)
		f.finish(c, f.won(c))
		c = f.ask(3)
		c.From = f.fire(2)
		f.refused("with fire 2 left", c)
		c = f.ask(2)
		c.From = f.fire(1)
		f.won(c)
	},
	"decided is taken back from far ahead, and once": func(f *storeFixture) {
		ahead := f.ask(100_000)
		f.finish(ahead, f.won(ahead))
		f.refused("a fire before it", f.ask(1))
		wrong := f.ask(1)
		wrong.Ahead = f.fire(99_999)
		f.refused("from where decided is not", wrong)
		back := f.ask(1)
		back.Ahead = f.fire(100_000)
		won := f.won(back)
		assert.Equal(f, f.fire(1), f.state().Decided)
		again := f.ask(1)
		again.Ahead = f.fire(100_000)
		f.refused("a second time, during the run", again)
		f.finish(back, won)
		f.refused("a second time, after it", again)
		f.claimedOnce(f.ask(2))
	},
	"taking decided back does not disturb a run": func(f *storeFixture) {
		f.won(f.ask(100_000))
		back := f.ask(1)
		back.Ahead = f.fire(100_000)
		f.refused("while the job is busy", back)
	},
	"a claim that took decided back and is undone gives its fire back": func(f *storeFixture) {
		ahead := f.ask(100_000)
		f.finish(ahead, f.won(ahead))
		back := f.ask(1)
		back.Ahead = f.fire(100_000)
		f.won(back)
		f.undo(back)
		f.claimedOnce(f.ask(1))
	},
	"a claim undone gives its fire back": func(f *storeFixture) {
		c := f.ask(1)
		f.won(c)
		f.undo(c)
		s := f.state()
		assert.Empty(f, s.Runs)
		assert.Empty(f, s.Busy)
		f.claimedOnce(f.ask(1))
	},
	"a claim undone takes back no later decision": func(f *storeFixture) {
		c, _ := f.dead(1)
		f.state()
		later := f.ask(2)
		f.won(later)
		f.undo(c)
		s := f.state()
		assert.Equal(f, f.fire(2), s.Decided)
		assert.Equal(f, later.ID, s.Busy)
		f.refused("the fire undone", f.ask(1))
	},
	"undoing a claim that never arrived changes nothing": func(f *storeFixture) {
		f.undo(f.ask(1))
		f.claimedOnce(f.ask(1))
	},
}

// A reporter is what a claim about a store needs of a test. The control gives it one that
// only takes notes.
type reporter interface {
	require.TestingT
	Helper()
}

// A storeFixture is a store and a job, for one claim about the store. The job's fires are
// a minute apart, which means nothing to a store.
type storeFixture struct {
	reporter
	store jobs.Store
	job   string
	short time.Duration // a TTL that the claim waits for
	base  time.Time
}

const long = time.Minute

func newStoreFixture(r reporter, s jobs.Store, short time.Duration) *storeFixture {
	return &storeFixture{reporter: r, store: s, job: "job-" + rand.Text(), short: short, base: time.Now().UTC().Truncate(time.Minute)}
}

func (f *storeFixture) ctx() context.Context { return context.Background() }

func (f *storeFixture) fire(n int) time.Time { return f.base.Add(time.Duration(n) * time.Minute) }

// ask makes a claim of the n-th fire.
func (f *storeFixture) ask(n int) jobs.Claim {
	return jobs.Claim{
		Ref: jobs.Ref{Job: f.job, ID: rand.Text()},
		Due: f.fire(n), Next: f.fire(n + 1), TTL: long, Owner: "somebody", Plan: "a plan", Keep: 3, Attempt: 1,
	}
}

// won sends a claim that must be granted.
func (f *storeFixture) won(c jobs.Claim) jobs.Claimed {
	f.Helper()
	won, err := f.store.Claim(f.ctx(), c)
	require.NoError(f, err, "claim of fire %v", c.Due)
	return won
}

// claimed sends a claim that must be granted, and returns it with its answer.
func (f *storeFixture) claimed(c jobs.Claim) (jobs.Claim, jobs.Claimed) {
	f.Helper()
	return c, f.won(c)
}

// refused sends a claim that must be refused.
func (f *storeFixture) refused(what string, c jobs.Claim) {
	f.Helper()
	_, err := f.store.Claim(f.ctx(), c)
	assert.ErrorIs(f, err, jobs.ErrNotDue, what)
}

// claimedOnce claims a fire that must be free, and then again.
func (f *storeFixture) claimedOnce(c jobs.Claim) {
	f.Helper()
	won := f.won(c)
	again := f.ask(0)
	again.Due = c.Due
	f.refused("claimed again during the run", again)
	f.finish(c, won)
	f.refused("claimed again after the run", again)
}

func (f *storeFixture) end(c jobs.Claim, won jobs.Claimed) jobs.End {
	return jobs.End{Ref: c.Ref, Slot: won.Slot, Dead: won.Dead, Keep: c.Keep,
		Run: jobs.Run{Job: c.Job, ID: c.ID, Due: c.Due, Attempt: c.Attempt, Owner: c.Owner, Began: won.Began, Outcome: string(schedule.Succeeded)}}
}

func (f *storeFixture) finish(c jobs.Claim, won jobs.Claimed) {
	f.Helper()
	require.NoError(f, f.store.Finish(f.ctx(), f.end(c, won)))
}

func (f *storeFixture) undo(c jobs.Claim) {
	f.Helper()
	settled, err := f.store.Undo(f.ctx(), c)
	require.NoError(f, err)
	require.True(f, settled)
}

func (f *storeFixture) state() jobs.State {
	f.Helper()
	all, err := f.store.Read(f.ctx(), []string{f.job}, jobs.WithPast)
	require.NoError(f, err)
	return all[0]
}

func (f *storeFixture) gone(what string, err error) {
	f.Helper()
	assert.ErrorIs(f, err, store.ErrGone, what)
}

// dead claims the n-th fire and waits until its run has run out.
func (f *storeFixture) dead(n int) (jobs.Claim, jobs.Claimed) {
	f.Helper()
	c := f.ask(n)
	c.TTL = f.short
	won := f.won(c)
	time.Sleep(f.short * 3 / 2) // real: until the run has expired
	return c, won
}

// repeated makes a claim that repeats the n-th fire's run that died.
func (f *storeFixture) repeated(n int, died jobs.Run) jobs.Claim {
	c := f.ask(n)
	c.Dead, c.Attempt = &died, died.Attempt+1
	return c
}

// changed changes the job, and checks whether that was possible.
func (f *storeFixture) changed(change jobs.Change, want bool) {
	f.Helper()
	changed, err := f.store.Change(f.ctx(), f.job, change)
	require.NoError(f, err)
	assert.Equal(f, want, changed, "change %d", change)
}
