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
		f.register()
		for n := 1; n <= 20; n++ {
			var wins atomic.Int32
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					c := f.after(f.ask(n), n-1)
					c.Alone = false
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
		f.refused("by one that takes more for decided", f.after(f.ask(7), 6))
		f.won(f.after(f.ask(6), 5))
	},
	"a claim is refused that would drop other fires than it says": func(f *storeFixture) {
		c := f.ask(3)
		f.finish(c, f.won(c))
		c = f.after(f.ask(7), 2) // drops 3 to 6
		c.First = f.fire(3)
		f.refused("though 3 has run", c)
		c = f.after(f.ask(7), 3)
		c.First = f.fire(4)
		c.Run.Drops = []jobs.Drop{{First: f.fire(4), Last: f.fire(6), Count: 3, Why: "of three"}}
		f.won(c)
		assert.Equal(f, c.Run.Drops, f.state().Runs[0].Drops, "it stands with the run")
	},
	"a busy job is claimed only after its run has ended": func(f *storeFixture) {
		c := f.ask(1)
		won := f.won(c)
		f.refused("while it is busy", f.after(f.ask(2), 1))
		f.finish(c, won)
		f.won(f.after(f.ask(2), 1))
	},
	"runs beside each other are under way side by side": func(f *storeFixture) {
		for n := 1; n <= 3; n++ {
			c := f.after(f.ask(n), n-1)
			c.Alone = false
			won := f.won(c)
			if n == 2 {
				f.finish(c, won)
			}
		}
		f.refused("one that is to be alone", f.after(f.ask(4), 3))
		s := f.state()
		require.Len(f, s.Runs, 2)
		assert.Equal(f, f.fire(1), s.Runs[0].Due)
		assert.Equal(f, f.fire(3), s.Runs[1].Due)
		assert.Len(f, s.Past, 1)
	},
	"a claim under another edition of the plans is refused": func(f *storeFixture) {
		f.register()
		seen := f.state()
		plans := append(seen.Plans, jobs.Span{Plan: "another", From: f.fire(0)})
		require.NoError(f, f.store.Plan(f.ctx(), seen, plans))
		require.ErrorIs(f, f.store.Plan(f.ctx(), seen, plans), jobs.ErrNotDue, "a second time")
		s := f.state()
		assert.Equal(f, plans, s.Plans)
		assert.EqualValues(f, 2, s.Edition)
		assert.False(f, s.Changed.IsZero())
		f.refused("by the plan before", f.ask(1))
		c := f.ask(1)
		c.Edition = 2
		f.won(c)
	},
	"plans that were made before a claim are refused": func(f *storeFixture) {
		f.register()
		seen := f.state()
		f.won(f.ask(1))
		plans := append(seen.Plans, jobs.Span{Plan: "another", From: f.fire(0)})
		require.ErrorIs(f, f.store.Plan(f.ctx(), seen, plans), jobs.ErrNotDue)
		require.NoError(f, f.store.Plan(f.ctx(), f.state(), plans))
	},
	"a verdict knows of RunNow, or is refused": func(f *storeFixture) {
		f.register()
		f.changed(jobs.AskRun, true)
		c := f.ask(60)
		c.Run.Verdict = "too late"
		f.refused("by one that does not know", c)
		c.Asked = f.state().Asked
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
		f.claimedOnce(f.after(f.ask(2), 1))
	},
	"taking decided back does not disturb a run": func(f *storeFixture) {
		f.won(f.ask(100_000))
		back := f.ask(1)
		back.Ahead = f.fire(100_000)
		f.refused("while the job is busy", back)
	},
	"a claim undone stays as one that has not begun": func(f *storeFixture) {
		c := f.ask(1)
		c.Run.Drops = []jobs.Drop{{First: f.fire(0), Last: f.fire(0), Count: 1, Why: "late"}}
		f.won(c)
		f.undo(c)
		s := f.state()
		require.Len(f, s.Runs, 1)
		assert.Equal(f, jobs.Unbegun, s.Runs[0].Outcome)
		assert.Equal(f, c.Run.Drops, s.Runs[0].Drops, "nobody has told them")
		assert.False(f, s.Runs[0].ExpireAt.After(s.Now), "it is over")
		f.refused("the same fire", f.ask(1))
		f.refused("the next one", f.after(f.ask(2), 1))
		again := f.repeated(s.Runs[0])
		again.Enter = false
		f.finish(again, f.won(again))
		assert.Len(f, f.state().Past, 1)
	},
	"a claim undone before its fire gives it back": func(f *storeFixture) {
		c := f.ask(1)
		f.won(c)
		c.Back = true
		f.undo(c)
		s := f.state()
		assert.Empty(f, s.Runs)
		assert.Equal(f, c.Mark, s.Decided)
		f.claimedOnce(f.ask(1))
	},
	"a claim undone before its fire hides no later one": func(f *storeFixture) {
		c := f.ask(1)
		c.Alone = false
		f.won(c)
		later := f.after(f.ask(2), 1)
		later.Alone = false
		f.won(later)
		c.Back = true
		f.undo(c)
		s := f.state()
		assert.Equal(f, f.fire(2), s.Decided)
		require.Len(f, s.Runs, 2)
		assert.Equal(f, jobs.Unbegun, s.Runs[0].Outcome)
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
	known bool // the job is registered
}

const long = time.Minute

func newStoreFixture(r reporter, s jobs.Store, short time.Duration) *storeFixture {
	return &storeFixture{reporter: r, store: s, job: "job-" + rand.Text(), short: short, base: time.Now().UTC().Truncate(time.Minute)}
}

func (f *storeFixture) ctx() context.Context { return context.Background() }

func (f *storeFixture) fire(n int) time.Time { return f.base.Add(time.Duration(n) * time.Minute) }

// ask makes a claim of the n-th fire, of a job that was registered before fire 1.
func (f *storeFixture) ask(n int) jobs.Claim {
	return jobs.Claim{
		Ref: jobs.Ref{Job: f.job, ID: rand.Text()}, Run: jobs.Run{Due: f.fire(n), Attempt: 1, Owner: "somebody"},
		TTL: long, Keep: 3, Alone: true, Edition: 1, Mark: f.fire(0), First: f.fire(n),
	}
}

// after is the claim of one to which the fires up to the n-th are decided.
func (f *storeFixture) after(c jobs.Claim, n int) jobs.Claim {
	c.Mark = f.fire(n)
	return c
}

// register makes the job's document, if there is none.
func (f *storeFixture) register() {
	f.Helper()
	if f.known {
		return
	}
	_, err := f.store.Register(f.ctx(), f.job, "a plan", f.fire(0))
	require.NoError(f, err)
	f.known = true
}

// won sends a claim that must be granted.
func (f *storeFixture) won(c jobs.Claim) jobs.Claimed {
	f.Helper()
	f.register()
	won, err := f.store.Claim(f.ctx(), c)
	require.NoError(f, err, "claim of fire %v", c.Run.Due)
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
	f.register()
	_, err := f.store.Claim(f.ctx(), c)
	assert.ErrorIs(f, err, jobs.ErrNotDue, what)
}

// claimedOnce claims a fire that must be free, and then again.
func (f *storeFixture) claimedOnce(c jobs.Claim) {
	f.Helper()
	won := f.won(c)
	again := c
	again.ID = rand.Text()
	f.refused("claimed again during the run", again)
	f.finish(c, won)
	f.refused("claimed again after the run", again)
}

func (f *storeFixture) end(c jobs.Claim, won jobs.Claimed) jobs.End {
	e := jobs.End{Ref: c.Ref, Keep: c.Keep, Run: c.Run}
	e.Run.Job, e.Run.ID, e.Run.Began, e.Run.Number, e.Run.Outcome = c.Job, c.ID, won.Began, won.Number, string(schedule.Succeeded)
	return e
}

func (f *storeFixture) finish(c jobs.Claim, won jobs.Claimed) {
	f.Helper()
	require.NoError(f, f.store.End(f.ctx(), f.end(c, won)))
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

// repeated makes a claim that repeats a run, after the last look.
func (f *storeFixture) repeated(dead jobs.Run) jobs.Claim {
	c := f.ask(0)
	c.Dead, c.Enter, c.Seq, c.Run.Due, c.Run.Attempt = &dead, true, f.state().Seq, dead.Due, dead.Attempt+1
	return c
}

// changed changes the job, and checks whether that was possible.
func (f *storeFixture) changed(change jobs.Change, want bool) {
	f.Helper()
	changed, err := f.store.Change(f.ctx(), f.job, change)
	require.NoError(f, err)
	assert.Equal(f, want, changed, "change %d", change)
}
