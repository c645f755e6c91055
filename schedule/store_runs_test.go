package schedule_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

var claimsAboutRuns = map[string]func(*storeFixture){
	"a run that ran out is repeated once, and other fires wait": func(f *storeFixture) {
		gone, _ := f.dead(1)
		f.refused("a later fire, while the run waits to be repeated", f.after(f.ask(2), 1))
		died := f.state().Runs[0]
		second := f.repeated(died)
		rival := second
		rival.ID = "rival-" + second.ID
		won := f.won(second)
		f.refused("a second repetition", rival)
		_, err := f.store.Renew(f.ctx(), gone.Ref, long, true)
		f.gone("the dead run renews", err)
		f.gone("the dead run ends", f.store.End(f.ctx(), f.end(gone, jobs.Claimed{})))
		s := f.state()
		require.Len(f, s.Runs, 1)
		assert.Equal(f, second.ID, s.Runs[0].ID)
		assert.Equal(f, 2, s.Runs[0].Attempt)
		assert.Equal(f, f.fire(1), s.Decided)
		require.Len(f, s.Past, 1)
		assert.Equal(f, gone.ID, s.Past[0].ID)
		assert.Equal(f, "somebody", s.Past[0].Owner)
		assert.EqualValues(f, schedule.Died, s.Past[0].Outcome)
		f.finish(second, won)
		f.won(f.after(f.ask(2), 1))
	},
	"a run is not repeated that is not as it was seen": func(f *storeFixture) {
		f.dead(1)
		c := f.repeated(f.state().Runs[0])
		c.Seq--
		f.refused("after another claim", c)
	},
	"a run is not repeated that a late end has left since it was seen": func(f *storeFixture) {
		gone, won := f.dead(1)
		c := f.repeated(f.state().Runs[0])
		for range 2 {
			e := f.end(gone, won)
			e.Run.Outcome, e.Run.Again = string(schedule.Failed), f.fire(1)
			require.NoError(f, f.store.End(f.ctx(), e))
			f.refused("as one that died", c)
			time.Sleep(2 * time.Millisecond) // real: the second end is not of the same millisecond
			c = f.repeated(f.state().Runs[0])
		}
		f.won(c)
	},
	"a run that is alive is not repeated": func(f *storeFixture) {
		f.won(f.ask(1))
		f.refused("in the place of a live run", f.repeated(f.state().Runs[0]))
	},
	"a run is not repeated while another is under way": func(f *storeFixture) {
		f.dead(1)
		c := f.after(f.ask(2), 1)
		c.Alone = false
		won := f.won(c)
		again := f.repeated(f.state().Runs[0])
		f.refused("beside it", again)
		again.Alone = false
		f.won(again)
		f.finish(c, won)
	},
	"of two runs that are over both are repeated": func(f *storeFixture) {
		for n := 1; n <= 2; n++ {
			c := f.after(f.ask(n), n-1)
			c.Alone, c.TTL = false, f.short
			f.won(c)
		}
		time.Sleep(f.short * 3 / 2) // real: until they have expired
		both := f.state().Runs
		require.Len(f, both, 2)
		c := f.repeated(both[0])
		won := f.won(c)
		f.refused("the second, beside the first", f.repeated(both[1]))
		f.finish(c, won)
		f.won(f.repeated(both[1]))
	},
	"claims are numbered, and rise": func(f *storeFixture) {
		c := f.ask(1)
		won := f.won(c)
		f.finish(c, won)
		c = f.after(f.ask(2), 1)
		c.TTL = f.short
		second := f.won(c)
		assert.Greater(f, second.Number, won.Number)
		time.Sleep(f.short * 3 / 2) // real: until it has expired
		assert.Greater(f, f.won(f.repeated(f.state().Runs[0])).Number, second.Number)
		f.changed(jobs.Forget, true)
		_, err := f.store.Register(f.ctx(), f.job, "a plan", f.fire(0).Add(time.Second))
		require.NoError(f, err)
		c = f.after(f.ask(3), 2)
		c.Mark = f.fire(0)
		assert.Greater(f, f.won(c).Number, second.Number, "also after Forget")
	},
	"what a claim dropped stands until its run has told it": func(f *storeFixture) {
		c := f.ask(1)
		c.Run.Drops = []jobs.Drop{{First: f.fire(0), Last: f.fire(0), Count: 1, Why: "late"}}
		f.won(c)
		for _, told := range []bool{false, true} {
			_, err := f.store.Renew(f.ctx(), c.Ref, long, told)
			require.NoError(f, err)
			r := f.state().Runs[0]
			assert.Equal(f, told, r.Begun)
			assert.Equal(f, told, len(r.Drops) == 0)
		}
	},
	"renewal prolongs and never shortens": func(f *storeFixture) {
		c := f.ask(1)
		c.TTL = f.short
		f.won(c)
		left, err := f.store.Renew(f.ctx(), c.Ref, long, true)
		require.NoError(f, err)
		assert.LessOrEqual(f, left, long)
		assert.GreaterOrEqual(f, left, long/2)
		until := f.state().Runs[0].ExpireAt
		_, err = f.store.Renew(f.ctx(), c.Ref, f.short, true)
		require.NoError(f, err)
		assert.GreaterOrEqual(f, f.state().Runs[0].ExpireAt, until, "shortened")
		time.Sleep(f.short * 3 / 2) // real: longer than the TTL that the renewal asked for
		f.refused("though the run was renewed", f.repeated(f.state().Runs[0]))
	},
	"a run that ran out is not renewed, and its end is written": func(f *storeFixture) {
		c, won := f.dead(1)
		_, err := f.store.Renew(f.ctx(), c.Ref, long, true)
		f.gone("renewed", err)
		f.finish(c, won)
		f.gone("ended twice", f.store.End(f.ctx(), f.end(c, won)))
		past := f.state().Past
		require.Len(f, past, 1)
		assert.EqualValues(f, schedule.Succeeded, past[0].Outcome)
	},
	"a run that is left is repeated at once, and has its outcome": func(f *storeFixture) {
		c := f.ask(1)
		e := f.end(c, f.won(c))
		e.Run.Outcome, e.Run.Error, e.Run.Again = "stopped", "the process was told to stop", f.fire(1)
		require.NoError(f, f.store.End(f.ctx(), e))
		left := f.state().Runs[0]
		assert.Equal(f, "stopped", left.Outcome)
		assert.Equal(f, f.fire(1), left.Again)
		_, err := f.store.Renew(f.ctx(), c.Ref, long, true)
		f.gone("a renewal that comes late", err)
		again, won := f.claimed(f.repeated(left))
		f.gone("left after it was replaced", f.store.End(f.ctx(), e))
		f.finish(again, won)
		past := f.state().Past
		require.Len(f, past, 2)
		stopped := past[0]
		if stopped.ID != c.ID {
			stopped = past[1]
		}
		assert.Equal(f, "stopped", stopped.Outcome)
		assert.Equal(f, "the process was told to stop", stopped.Error)
		assert.False(f, stopped.Ended.IsZero())
	},
	"a job is registered once": func(f *storeFixture) {
		for _, n := range []int{3, 9} {
			s, err := f.store.Register(f.ctx(), f.job, "a plan", f.fire(n))
			require.NoError(f, err)
			assert.Equal(f, []jobs.Span{{Plan: "a plan", From: f.fire(3)}}, s.Plans)
			assert.Equal(f, f.fire(3), s.Decided)
		}
	},
	"of many concurrent registrations each is told of the job": func(f *storeFixture) {
		for n := range 20 {
			job, want := fmt.Sprint(f.job, n), []jobs.Span{{Plan: "a plan", From: f.fire(0)}}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					s, err := f.store.Register(f.ctx(), job, "a plan", f.fire(0))
					assert.NoError(f, err)
					assert.Equal(f, want, s.Plans)
				})
			}
			wg.Wait()
		}
	},
	"a paused job is not claimed, and its plans tell the pause": func(f *storeFixture) {
		f.changed(jobs.Pause, false)
		f.register()
		f.changed(jobs.Resume, false)
		f.changed(jobs.Pause, true)
		f.changed(jobs.AskRun, false)
		assert.True(f, f.state().Paused)
		f.refused("while it is paused", f.ask(1))
		time.Sleep(20 * time.Millisecond) // real, as below
		f.changed(jobs.Pause, true)
		f.changed(jobs.Resume, true)
		s := f.state()
		assert.False(f, s.Paused)
		assert.EqualValues(f, 2, s.Edition)
		require.Len(f, s.Plans, 3)
		assert.Empty(f, s.Plans[1].Plan)
		assert.Equal(f, "a plan", s.Plans[2].Plan)
		assert.Greater(f, s.Plans[2].From.Sub(s.Plans[1].From), 15*time.Millisecond, "the second call began it again")
		c := f.ask(60)
		c.Edition = 2
		f.won(c)
	},
	"a job that was changed is found": func(f *storeFixture) {
		f.register()
		f.changed(jobs.AskRun, true)
		s := f.state()
		changed, err := f.store.Changed(f.ctx(), []string{"another", f.job}, f.fire(-10))
		require.NoError(f, err)
		assert.Equal(f, map[string]time.Time{f.job: s.Changed}, changed)
		changed, err = f.store.Changed(f.ctx(), []string{f.job}, s.Changed)
		require.NoError(f, err)
		assert.Empty(f, changed)
		assert.Equal(f, s.Changed, s.Asked)
	},
	"a look tells the past to those who ask for it": func(f *storeFixture) {
		c := f.ask(1)
		f.finish(c, f.won(c))
		f.won(f.after(f.ask(2), 1))
		brief, err := f.store.Read(f.ctx(), []string{f.job}, jobs.WithoutPast)
		require.NoError(f, err)
		full, err := f.store.Read(f.ctx(), []string{f.job}, jobs.WithPast)
		require.NoError(f, err)
		assert.Empty(f, brief[0].Past)
		assert.Len(f, full[0].Past, 1)
		full[0].Past, full[0].Now, brief[0].Now = nil, time.Time{}, time.Time{}
		assert.Equal(f, full, brief, "everything else is the same")
	},
	"a repetition undone is repeated": func(f *storeFixture) {
		f.dead(1)
		c := f.repeated(f.state().Runs[0])
		f.won(c)
		f.undo(c)
		f.won(f.repeated(f.state().Runs[0]))
	},
	"the past is the last runs, the latest first": func(f *storeFixture) {
		text := func(n int) string { return fmt.Sprint("error ", n, " \x00\u2028 $a.b") }
		for n := 1; n <= 5; n++ {
			c := f.after(f.ask(n), n-1)
			e := f.end(c, f.won(c))
			e.Run.Outcome, e.Run.Error = string(schedule.Failed), text(n)
			require.NoError(f, f.store.End(f.ctx(), e))
			time.Sleep(2 * time.Millisecond) // real: no two of them end in the same millisecond
		}
		s := f.state()
		require.Len(f, s.Past, 3)
		assert.Equal(f, f.fire(5), s.Decided)
		for i, run := range s.Past {
			assert.GreaterOrEqual(f, run.Ended, run.Began)
			assert.LessOrEqual(f, run.Ended.Sub(run.Began), 10*time.Second)
			assert.NotEmpty(f, run.ID)
			want := jobs.Run{Job: f.job, ID: run.ID, Due: f.fire(5 - i), Attempt: 1, Owner: "somebody", Began: run.Began,
				Ended: run.Ended, Outcome: string(schedule.Failed), Error: text(5 - i), Number: run.Number}
			assert.Equal(f, want, run)
		}
	},
	"a grant is honoured for as long as it says": func(f *storeFixture) {
		c := f.ask(1)
		c.TTL = f.short
		sent := time.Now()
		won := f.won(c)
		require.Positive(f, won.Left)
		require.LessOrEqual(f, won.Left, f.short)
		for time.Since(sent) < won.Left-f.short/20 {
			_, err := f.store.Claim(f.ctx(), f.repeated(f.state().Runs[0]))
			took := time.Since(sent)
			if err == nil {
				require.GreaterOrEqual(f, took, won.Left, "another claim was granted too early")
				return
			}
			time.Sleep(f.short / 20) // real: between two tries
		}
	},
	"jobs are listed, read and forgotten": func(f *storeFixture) {
		other := f.job + ".$other"
		for _, job := range []string{f.job, other} {
			other := *f
			other.job, other.known = job, false
			other.won(other.ask(1))
		}
		f.changed(jobs.Forget, true)
		all, err := f.store.Read(f.ctx(), []string{f.job, other, "never heard of"}, jobs.WithoutPast)
		require.NoError(f, err)
		require.Len(f, all, 3)
		for i, known := range []bool{false, true, false} {
			assert.Equal(f, known, all[i].Known, "state %d", i)
			assert.Equal(f, []string{f.job, other, "never heard of"}[i], all[i].Job)
		}
		names, err := f.store.Names(f.ctx())
		require.NoError(f, err)
		assert.Contains(f, names, other)
		assert.NotContains(f, names, f.job, "forgotten")
		f.known = false
		f.claimedOnce(f.ask(1))
	},
}
