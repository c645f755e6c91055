package schedule_test

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/schedule"
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
	store schedule.Store
	job   string
	short time.Duration // a TTL that the claim waits for
	base  time.Time
}

const long = time.Minute

func newStoreFixture(r reporter, s schedule.Store, short time.Duration) *storeFixture {
	return &storeFixture{reporter: r, store: s, job: "job-" + rand.Text(), short: short, base: time.Now().UTC().Truncate(time.Minute)}
}

func (f *storeFixture) ctx() context.Context { return context.Background() }

func (f *storeFixture) fire(n int) time.Time { return f.base.Add(time.Duration(n) * time.Minute) }

// ask makes a claim of the n-th fire.
func (f *storeFixture) ask(n int) schedule.Claim {
	return schedule.Claim{
		Ref:  schedule.Ref{Job: f.job, ID: rand.Text()},
		Fire: f.fire(n), Next: f.fire(n + 1), TTL: long, Owner: "somebody", Plan: "a plan", Keep: 3, Attempt: 1,
	}
}

// won sends a claim that must be granted.
func (f *storeFixture) won(c schedule.Claim) schedule.Claimed {
	f.Helper()
	won, err := f.store.Claim(f.ctx(), c)
	require.NoError(f, err, "claim of fire %v", c.Fire)
	return won
}

// claimed sends a claim that must be granted, and returns it with its answer.
func (f *storeFixture) claimed(c schedule.Claim) (schedule.Claim, schedule.Claimed) {
	f.Helper()
	return c, f.won(c)
}

// refused sends a claim that must be refused.
func (f *storeFixture) refused(what string, c schedule.Claim) {
	f.Helper()
	_, err := f.store.Claim(f.ctx(), c)
	assert.ErrorIs(f, err, schedule.ErrNotDue, what)
}

// claimedOnce claims a fire that must be free, and then again.
func (f *storeFixture) claimedOnce(c schedule.Claim) {
	f.Helper()
	won := f.won(c)
	again := f.ask(0)
	again.Fire = c.Fire
	f.refused("claimed again during the run", again)
	f.finish(c, won)
	f.refused("claimed again after the run", again)
}

func (f *storeFixture) end(c schedule.Claim, won schedule.Claimed) schedule.End {
	return schedule.End{Ref: c.Ref, Slot: won.Slot, Dead: won.Dead, Keep: c.Keep,
		Run: schedule.Run{Job: c.Job, ID: c.ID, Fire: c.Fire, Attempt: c.Attempt, Owner: c.Owner, Began: won.Began, Outcome: schedule.Succeeded}}
}

func (f *storeFixture) finish(c schedule.Claim, won schedule.Claimed) {
	f.Helper()
	require.NoError(f, f.store.Finish(f.ctx(), f.end(c, won)))
}

func (f *storeFixture) undo(c schedule.Claim) {
	f.Helper()
	settled, err := f.store.Undo(f.ctx(), c)
	require.NoError(f, err)
	require.True(f, settled)
}

func (f *storeFixture) state() schedule.State {
	f.Helper()
	all, err := f.store.Look(f.ctx(), []string{f.job}, schedule.WithPast)
	require.NoError(f, err)
	return all[0]
}

func (f *storeFixture) gone(what string, err error) {
	f.Helper()
	assert.ErrorIs(f, err, store.ErrGone, what)
}

// dead claims the n-th fire and waits until its run has run out.
func (f *storeFixture) dead(n int) (schedule.Claim, schedule.Claimed) {
	f.Helper()
	c := f.ask(n)
	c.TTL = f.short
	won := f.won(c)
	time.Sleep(f.short * 3 / 2) // real: until the run has expired
	return c, won
}

// repeated makes a claim that repeats the n-th fire's run that died.
func (f *storeFixture) repeated(n int, died schedule.Run) schedule.Claim {
	c := f.ask(n)
	c.Dead, c.Attempt = &died, died.Attempt+1
	return c
}
