package schedule_test

import (
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule/internal/jobs"
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
