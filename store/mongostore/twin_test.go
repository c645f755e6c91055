package mongostore

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// newFixtureOnLine is a fixture whose store's commands go over a line.
func newFixtureOnLine(t testing.TB) (*fixture, *testserver.Line) {
	line := &testserver.Line{}
	f := newFixture(t, line.Through)
	f.acquire(f.store, exclusiveClaim("warm", time.Second)) // the clock is known, through a router too
	f.tap.Take()
	return f, line
}

// brief bounds a call that gets no reply: the driver retries until its context ends.
func (f *fixture) brief() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), pace.Of(1500*time.Millisecond))
	f.t.Cleanup(cancel)
	return ctx
}

func isUpsert(c bson.Raw) bool { u, _ := c.Lookup("upsert").BooleanOK(); return u }

// isTakeover tells a compare-and-swap of all holders.
func isTakeover(c bson.Raw) bool {
	return !c.Lookup("update", "$set", fieldHolders).IsZero() && !isUpsert(c)
}

func isModify(name string) bool { return name == "findAndModify" }

func TestTheDriversRetryDeliversAGrantWhoseReplyWasLost(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable", "operationtime")
	f, line := newFixtureOnLine(t)
	lost := false
	line.Set(func(name string, _ bson.Raw) testserver.Fate {
		if isModify(name) && !lost {
			lost = true
			return testserver.Fate{Lose: true}
		}
		return testserver.Fate{}
	})
	c := exclusiveClaim("k", 30*time.Second)
	g := f.acquire(f.store, c)
	_, holds := f.document("k").Has(c.ID)
	assert.True(t, holds, "granted %+v, and the document has %+v", g, f.document("k").Holders)
	assert.NotZero(t, g.Token, "granted %+v, and the document has %+v", g, f.document("k").Holders)
}

func TestAGrantWhoseEveryReplyIsLostIsUndone(t *testing.T) {
	t.Parallel()
	f, line := newFixtureOnLine(t)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		return testserver.Fate{Lose: isModify(name) && isUpsert(c)}
	})
	c := exclusiveClaim("k", 30*time.Second)
	_, err := f.store.Acquire(f.brief(), c)
	require.Error(t, err, "the reply is lost, and the outcome certain")
	require.False(t, store.IsCertain(err), "the reply is lost, and the outcome certain: %v", err)
	require.False(t, f.absent("k"), "not applied: the test shows nothing")
	settled, err := f.store.Undo(f.ctx(), c.Ref, nil)
	assert.True(t, settled, "settled")
	assert.NoError(t, err, "settled")
	assert.True(t, f.absent("k"), "still held after its undo")
	f.acquire(f.another(), exclusiveClaim("k", time.Second))
}

// stalledClaim sends a claim and its retry, which do not arrive, undoes it, and then lets both
// arrive.
func stalledClaim(t *testing.T, f *fixture, line *testserver.Line) (settled bool) {
	t.Helper()
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		return testserver.Fate{Stall: isModify(name) && isUpsert(c)}
	})
	c := exclusiveClaim("k", 30*time.Second)
	_, err := f.store.Acquire(f.brief(), c)
	require.Error(t, err, "stalled, and the outcome certain")
	require.False(t, store.IsCertain(err), "stalled, and the outcome certain: %v", err)
	line.Set(nil)
	settled, err = f.store.Undo(f.ctx(), c.Ref, nil)
	require.NoError(t, err)
	require.NotEmpty(t, line.Deliver(t), "nothing was stalled: the test shows nothing")
	return settled
}

func TestAClaimThatArrivesAfterItsUndoIsRefused(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	f, line := newFixtureOnLine(t)
	assert.True(t, stalledClaim(t, f, line), "not settled, though the session's numbers settle it")
	assert.True(t, f.absent("k"), "the late claim was applied after its undo was settled: a ghost")
}

func TestWithoutRetryableWritesAnUndoThatFindsNothingIsNotSettled(t *testing.T) {
	t.Parallel()
	line := &testserver.Line{}
	f := newFixture(t, line.Through, withoutRetries)
	f.acquire(f.store, exclusiveClaim("warm", time.Second))
	require.False(t, stalledClaim(t, f, line), "settled, and the claim arrived after it")
	require.False(t, f.absent("k"), "the late claim was refused: the test shows nothing")
	ref := store.Ref{Key: "k", ID: f.document("k").Holders[0].ID, Mode: store.Exclusive}
	settled, err := f.store.Undo(f.ctx(), ref, nil)
	assert.True(t, settled, "repeated, it is not settled")
	assert.NoError(t, err, "repeated, it is not settled")
	assert.True(t, f.absent("k"), "repeated, it is not settled")
}

// heldThenLate sends a claim that stalls while its retry is refused. Then the key becomes
// free, and the first one arrives.
func heldThenLate(t *testing.T, claim store.Claim, slow time.Duration) (f *fixture, err error) {
	t.Helper()
	f, line := newFixtureOnLine(t)
	other := f.another()
	holder := exclusiveClaim("k", 30*time.Second)
	f.acquire(other, holder)
	first := true
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		if isModify(name) && isUpsert(c) && first {
			first = false
			return testserver.Fate{Stall: true, Before: func() { time.Sleep(slow) }}
		}
		return testserver.Fate{}
	})
	_, err = f.store.Acquire(f.ctx(), claim)
	e := released(f.ctx(), other, holder.Ref, 0)
	require.NoError(t, e)
	require.Len(t, line.Deliver(t), 1, "nothing was stalled: the test shows nothing")
	return f, err
}

func TestTheLateTwinOfAWaitersClaimIsRefused(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	claim := exclusiveClaim("k", 30*time.Second)
	claim.Place = store.NewPlace(store.Exclusive, 1, 1, "here")
	f, err := heldThenLate(t, claim, 0)
	assert.ErrorIs(t, err, store.ErrHeld, "refused, and its twin holds the key")
	assert.Empty(t, f.document("k").Holders, "refused with %v, and its twin holds the key", err)
}

func TestTheLateTwinOfASlowRefusalIsRefused(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	f, err := heldThenLate(t, exclusiveClaim("k", 30*time.Second), server.Slow+100*time.Millisecond)
	assert.ErrorIs(t, err, store.ErrHeld, "refused, and its twin holds the key")
	assert.True(t, f.absent("k"), "refused with %v, and its twin holds the key", err)
}

// The control: the twin of a quick refusal, if nothing followed it, is applied. It expires
// (docs/internals/design.md §4).
func TestTheLateTwinOfAQuickRefusalIsAppliedAndExpires(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	f, err := heldThenLate(t, exclusiveClaim("k", 30*time.Second), 0)
	assert.ErrorIs(t, err, store.ErrHeld, "refused, no twin landed, so the other tests show nothing")
	assert.False(t, f.absent("k"), "refused with %v; no twin landed, so the other tests show nothing", err)
}

func TestATwinSeenInTheReplyIsRemoved(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	f, line := newFixtureOnLine(t)
	other := f.another()
	holder, claim := exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second)
	f.acquire(other, holder)
	first := true
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		switch {
		case isModify(name) && isUpsert(c) && first:
			first = false
			return testserver.Fate{Stall: true}
		case name == "find":
			return testserver.Fate{Before: func() {
				err := released(f.ctx(), other, holder.Ref, 0)
				assert.NoError(t, err)
				line.Deliver(t)
				_, landed := f.document("k").Has(claim.ID)
				assert.True(t, landed, "the twin did not land: the test shows nothing")
			}}
		}
		return testserver.Fate{}
	})
	_, err := f.store.Acquire(f.ctx(), claim)
	var held *store.HeldError
	require.ErrorAs(t, err, &held, "answered, not that the key is free by now")
	assert.True(t, held.Free(), "answered %v, not that the key is free by now", err)
	assert.True(t, f.absent("k"), "the twin still holds the key")
}

func TestAHandOverWhoseReplyIsLostIsUndoneOnBothSides(t *testing.T) {
	t.Parallel()
	for name, stall := range map[string]bool{"applied": false, "not applied": true} {
		t.Run(name, func(t *testing.T) {
			f, line := newFixtureOnLine(t)
			from, to := exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second)
			f.acquire(f.store, from)
			line.Set(func(name string, _ bson.Raw) testserver.Fate {
				return testserver.Fate{Lose: isModify(name) && !stall, Stall: isModify(name) && stall}
			})
			_, err := f.store.Transfer(f.brief(), from.Ref, to)
			require.Error(t, err, "certain")
			require.False(t, store.IsCertain(err), "certain: %v", err)
			line.Set(nil)
			settled, err := f.store.Undo(f.ctx(), to.Ref, &from.Ref)
			assert.True(t, settled, "settled")
			assert.NoError(t, err, "settled")
			line.Deliver(t)
			assert.True(t, f.absent("k"), "one of them still holds the key")
		})
	}
}

func TestAReleaseWhoseReplyIsLostIsGone(t *testing.T) {
	t.Parallel()
	f, line := newFixtureOnLine(t)
	c := exclusiveClaim("k", 30*time.Second)
	f.acquire(f.store, c)
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Lose: isModify(name)} })
	err := released(f.brief(), f.store, c.Ref, 0)
	assert.Error(t, err, "certain")
	assert.False(t, store.IsCertain(err), "certain: %v", err)
	line.Set(nil)
	err = released(f.ctx(), f.store, c.Ref, 0)
	assert.ErrorIs(t, err, store.ErrGone, "repeated")
}

func TestALateRenewalRevivesNothing(t *testing.T) {
	t.Parallel()
	f, line := newFixtureOnLine(t)
	c := exclusiveClaim("k", 30*time.Second)
	f.acquire(f.store, c)
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Stall: isModify(name)} })
	r := f.store.Renew(f.brief(), []store.Renewal{{Ref: c.Ref, TTL: time.Hour}})
	require.Error(t, r[0].Err, "certain")
	require.False(t, store.IsCertain(r[0].Err), "certain: %v", r[0].Err)
	line.Set(nil)
	err := released(f.ctx(), f.store, c.Ref, 0)
	require.NoError(t, err)
	next := exclusiveClaim("k", time.Second)
	f.acquire(f.store, next)
	line.Deliver(t)
	if r := f.document("k"); len(r.Holders) != 1 || r.Holders[0].ID != next.ID || f.end("k").After(time.Now().Add(time.Minute)) {
		t.Errorf("the late renewal changed the next holder's document: %+v", r)
	}
}

func TestAWriteConcernErrorIsNoGrant(t *testing.T) {
	t.Parallel()
	f, line := newFixtureOnLine(t)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		if !isModify(name) || !isUpsert(c) {
			return testserver.Fate{}
		}
		return testserver.Fate{Rewrite: func(r bson.Raw) bson.D {
			return testserver.Edit(r, nil, bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "codeName", Value: "WriteConcernTimeout"}, {Key: "errmsg", Value: "waiting for replication timed out"}}})
		}}
	})
	c := exclusiveClaim("k", 30*time.Second)
	_, err := f.store.Acquire(f.brief(), c)
	require.Error(t, err, "certain")
	require.False(t, store.IsCertain(err), "certain: %v", err)
	settled, err := f.store.Undo(f.ctx(), c.Ref, nil)
	assert.True(t, settled, "settled, absent")
	assert.NoError(t, err, "settled, absent")
	assert.True(t, f.absent("k"), "settled, absent")
}

func TestATransferFromALeaseThatRanOutIsRefusedAlsoRightAfterAFault(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "stepdown") // after a fault there may have been an election
	f, line := newFixtureOnLine(t)
	from := exclusiveClaim("k", time.Minute)
	f.acquire(f.another(), from)
	f.expire(from.Ref, time.Second)
	fault := func() {
		line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Lose: name == "find"} })
		ctx, cancel := context.WithTimeout(f.ctx(), 200*time.Millisecond)
		defer cancel()
		_, err := f.store.Look(ctx, []string{"k"})
		require.Error(t, err)
		line.Set(func(string, bson.Raw) testserver.Fate { return testserver.Fate{} })
	}
	fault()
	f.acquire(f.store, exclusiveClaim("another", time.Minute)) // asks who is primary; others leave that alone for a second
	fault()
	_, err := f.store.Transfer(f.ctx(), from.Ref, exclusiveClaim("k", time.Minute))
	assert.ErrorIs(t, err, store.ErrGone)
}
