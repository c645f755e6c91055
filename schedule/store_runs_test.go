package schedule_test

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
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
		f.gone("the dead run ends", f.store.Finish(f.ctx(), f.end(gone, schedule.Claimed{})))
		assert.Equal(f, next.ID, f.state().Busy)
		f.finish(next, won)
		past := f.state().Past
		require.Len(f, past, 2)
		assert.Equal(f, next.ID, past[0].ID)
		assert.Equal(f, gone.ID, past[1].ID)
		assert.Equal(f, schedule.Died, past[1].Outcome)
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
		assert.Equal(f, schedule.Died, s.Past[0].Outcome)
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
		assert.Equal(f, schedule.Succeeded, past[0].Outcome)
	},
	"an end decides fires, and never takes that back": func(f *storeFixture) {
		c := f.ask(1)
		e := f.end(c, f.won(c))
		e.Decided = f.fire(4)
		require.NoError(f, f.store.Finish(f.ctx(), e))
		f.refused("a skipped fire", f.ask(4))
		c = f.ask(5)
		e = f.end(c, f.won(c))
		e.Decided = f.fire(2)
		require.NoError(f, f.store.Finish(f.ctx(), e))
		assert.Equal(f, f.fire(5), f.state().Decided)
	},
	"a look tells the past to those who ask for it": func(f *storeFixture) {
		c := f.ask(1)
		f.finish(c, f.won(c))
		f.won(f.ask(2))
		brief, err := f.store.Look(f.ctx(), []string{f.job}, schedule.WithoutPast)
		require.NoError(f, err)
		full, err := f.store.Look(f.ctx(), []string{f.job}, schedule.WithPast)
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
			e.Run.Outcome, e.Run.Error = schedule.Failed, text(n)
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
			assert.LessOrEqual(f, run.Took(), 10*time.Second)
			assert.NotEmpty(f, run.ID)
			want := schedule.Run{Job: f.job, ID: run.ID, Fire: f.fire(5 - i), Attempt: 1, Owner: "somebody", Began: run.Began,
				Ended: run.Ended, Outcome: schedule.Failed, Error: text(5 - i), Slot: run.Slot}
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
		all, err := f.store.Look(f.ctx(), []string{f.job, other, "never heard of"}, schedule.WithoutPast)
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
