package schedule_test

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/store"
)

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
