package schedule_test

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

var claimsAboutRuns = map[string]func(*storeFixture){
	"a run that ran out gives way to the next fire": func(f *storeFixture) {
		gone, _ := f.dead(1)
		f.state() // which shows the store that it ran out
		next := f.ask(2)
		won := f.won(next)
		require.Len(f, won.Dead, 1)
		assert.Equal(f, gone.ID, won.Dead[0].ID)
		assert.Equal(f, gone.Owner, won.Dead[0].Owner)
		_, err := f.store.Renew(f.ctx(), gone.Ref, long)
		f.gone("the dead run renews", err)
		f.gone("the dead run ends", f.store.Finish(f.ctx(), f.end(gone, jobs.Claimed{})))
		assert.Equal(f, next.ID, f.state().Busy)
		f.finish(next, won)
		past := f.state().Past
		require.Len(f, past, 2)
		assert.Equal(f, next.ID, past[0].ID)
		assert.Equal(f, gone.ID, past[1].ID)
		assert.EqualValues(f, schedule.Died, past[1].Outcome)
	},
	"a run that ran out is repeated once, and later fires wait": func(f *storeFixture) {
		gone, _ := f.dead(1)
		later := f.ask(2)
		later.Wait = true
		f.refused("a later fire, while the dead run waits to be repeated", later)
		died := f.state().Runs[0]
		second := f.repeated(1, died)
		won := f.won(second)
		f.refused("a second repetition", f.repeated(1, died))
		s := f.state()
		require.Len(f, s.Runs, 1)
		assert.Equal(f, second.ID, s.Runs[0].ID)
		assert.Equal(f, 2, s.Runs[0].Attempt)
		assert.Equal(f, f.fire(1), s.Decided)
		require.Len(f, s.Past, 1)
		assert.Equal(f, gone.ID, s.Past[0].ID)
		assert.EqualValues(f, schedule.Died, s.Past[0].Outcome)
		f.finish(second, won)
		f.won(later)
	},
	"a run that is alive is not repeated": func(f *storeFixture) {
		f.won(f.ask(1))
		f.refused("in the place of a live run", f.repeated(1, f.state().Runs[0]))
	},
	"renewal prolongs and never shortens": func(f *storeFixture) {
		c := f.ask(1)
		c.TTL = f.short
		f.won(c)
		left, err := f.store.Renew(f.ctx(), c.Ref, long)
		require.NoError(f, err)
		assert.LessOrEqual(f, left, long)
		assert.GreaterOrEqual(f, left, long/2)
		until := f.state().Runs[0].ExpireAt
		_, err = f.store.Renew(f.ctx(), c.Ref, f.short)
		require.NoError(f, err)
		assert.GreaterOrEqual(f, f.state().Runs[0].ExpireAt, until, "shortened")
		time.Sleep(f.short * 3 / 2) // real: longer than the TTL that the renewal asked for
		f.refused("though the run was renewed", f.ask(2))
	},
	"a run that ran out is not renewed, and its end is written": func(f *storeFixture) {
		c, won := f.dead(1)
		_, err := f.store.Renew(f.ctx(), c.Ref, long)
		f.gone("renewed", err)
		f.finish(c, won)
		f.gone("ended twice", f.store.Finish(f.ctx(), f.end(c, won)))
		past := f.state().Past
		require.Len(f, past, 1)
		assert.EqualValues(f, schedule.Succeeded, past[0].Outcome)
	},
	"a claim says which due time was the last before": func(f *storeFixture) {
		c := f.ask(1)
		won := f.won(c)
		assert.True(f, won.Before.IsZero(), "of a new job: %v", won.Before)
		f.finish(c, won)
		c = f.ask(4)
		won = f.won(c)
		assert.Equal(f, f.fire(1), won.Before)
		f.undo(c)
		c = f.ask(5)
		won = f.won(c)
		assert.Equal(f, f.fire(1), won.Before, "after a claim that was undone")
		f.finish(c, won)
		c = f.ask(6)
		c.Shared = true
		f.won(c)
		c = f.ask(8)
		c.Shared = true
		assert.Equal(f, f.fire(6), f.won(c).Before, "whose run is under way")
	},
	"a run that is left is repeated at once, and has its outcome": func(f *storeFixture) {
		c := f.ask(1)
		e := f.end(c, f.won(c))
		e.Run.Outcome, e.Run.Error = "stopped", "the process was told to stop"
		require.NoError(f, f.store.Leave(f.ctx(), e))
		left := f.state().Runs[0]
		assert.Equal(f, "stopped", left.Outcome)
		again, won := f.claimed(f.repeated(1, left))
		f.finish(again, won)
		f.gone("left after it was replaced", f.store.Leave(f.ctx(), e))
		past := f.state().Past
		require.Len(f, past, 2)
		assert.Equal(f, "stopped", past[1].Outcome)
		assert.Equal(f, "the process was told to stop", past[1].Error)
	},
	"a repeated run that is undone does not count as an attempt": func(f *storeFixture) {
		c := f.ask(1)
		e := f.end(c, f.won(c))
		e.Run.Outcome = "stopped"
		require.NoError(f, f.store.Leave(f.ctx(), e))
		again := f.repeated(1, f.state().Runs[0])
		f.won(again)
		f.undo(again)
		assert.Equal(f, 1, f.state().Runs[0].Attempt)
		assert.Equal(f, "stopped", f.state().Runs[0].Outcome, "otherwise it would count as one that died")
	},
	"a job is registered once, and its due times until then are decided": func(f *storeFixture) {
		require.NoError(f, f.store.Register(f.ctx(), f.job, "a plan", f.fire(3), f.fire(4)))
		require.NoError(f, f.store.Register(f.ctx(), f.job, "a plan", f.fire(9), f.fire(10)))
		f.refused("before", f.ask(3))
		assert.Equal(f, f.fire(3), f.won(f.ask(5)).Before)
	},
	"a paused job is not claimed, and resumes after what has passed": func(f *storeFixture) {
		f.changed(jobs.Pause, false)
		require.NoError(f, f.store.Register(f.ctx(), f.job, "a plan", f.fire(-60), f.fire(0)))
		f.changed(jobs.Resume, false)
		f.changed(jobs.Pause, true)
		f.changed(jobs.AskRun, false)
		assert.True(f, f.state().Paused)
		f.refused("while it is paused", f.ask(1))
		f.changed(jobs.Resume, true)
		assert.False(f, f.state().Paused)
		f.refused("a due time of the pause", f.ask(-1))
		won := f.won(f.ask(60))
		assert.Equal(f, f.fire(-60), won.Before, "what was late before the pause is not hidden")
		assert.Less(f, won.Paused.Sub(f.state().Now).Abs(), time.Minute)
		assert.Less(f, won.Resumed.Sub(f.state().Now).Abs(), time.Minute)
		assert.False(f, won.Resumed.Before(won.Paused))
	},
	"a pause begins once": func(f *storeFixture) {
		f.changed(jobs.Pause, false)
		require.NoError(f, f.store.Register(f.ctx(), f.job, "a plan", f.fire(-60), f.fire(0)))
		f.changed(jobs.Pause, true)
		time.Sleep(20 * time.Millisecond)
		f.changed(jobs.Pause, true)
		f.changed(jobs.Resume, true)
		won := f.won(f.ask(60))
		assert.Greater(f, won.Resumed.Sub(won.Paused), 15*time.Millisecond, "the second call began it again")
	},
	"a job that is to run now is found": func(f *storeFixture) {
		require.NoError(f, f.store.Register(f.ctx(), f.job, "a plan", f.fire(-60), f.fire(0)))
		f.changed(jobs.AskRun, true)
		asked, err := f.store.Asked(f.ctx(), []string{"another", f.job}, f.fire(-10))
		require.NoError(f, err)
		assert.Equal(f, map[string]time.Time{f.job: f.state().Asked}, asked)
		asked, err = f.store.Asked(f.ctx(), []string{f.job}, f.state().Asked)
		require.NoError(f, err)
		assert.Empty(f, asked)
		assert.Equal(f, f.state().Asked, f.won(f.ask(60)).Asked, "a claim tells it")
	},
	"a look tells the past to those who ask for it": func(f *storeFixture) {
		c := f.ask(1)
		f.finish(c, f.won(c))
		f.won(f.ask(2))
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
		c := f.repeated(1, f.state().Runs[0])
		f.won(c)
		f.undo(c)
		f.won(f.repeated(1, f.state().Runs[0]))
	},
	"the past is the last runs, the latest first": func(f *storeFixture) {
		text := func(n int) string { return fmt.Sprint("error ", n, " \x00\u2028 $a.b") }
		for n := 1; n <= 5; n++ {
			c := f.ask(n)
			e := f.end(c, f.won(c))
			e.Run.Outcome, e.Run.Error = string(schedule.Failed), text(n)
			require.NoError(f, f.store.Finish(f.ctx(), e))
			time.Sleep(2 * time.Millisecond) // real: no two of them end in the same millisecond
		}
		s := f.state()
		require.Len(f, s.Past, 3)
		assert.Equal(f, "a plan", s.Plan)
		assert.Equal(f, f.fire(6), s.Next)
		assert.Equal(f, f.fire(5), s.Decided)
		for i, run := range s.Past {
			assert.GreaterOrEqual(f, run.Ended, run.Began)
			assert.LessOrEqual(f, run.Ended.Sub(run.Began), 10*time.Second)
			assert.NotEmpty(f, run.ID)
			want := jobs.Run{Job: f.job, ID: run.ID, Due: f.fire(5 - i), Attempt: 1, Owner: "somebody", Began: run.Began,
				Ended: run.Ended, Outcome: string(schedule.Failed), Error: text(5 - i), Slot: run.Slot}
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
			_, err := f.store.Claim(f.ctx(), f.ask(2))
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
			c := f.ask(1)
			c.Job = job
			f.won(c)
		}
		require.NoError(f, f.store.Forget(f.ctx(), f.job))
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
		f.claimedOnce(f.ask(1))
	},
}
