package mongostore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// heldBy are keys that a store holds, and renewals that put them under a session.
func (f *fixture) heldBy(s *Store, session store.Session, ttl time.Duration, keys ...string) (batch []store.Renewal) {
	f.t.Helper()
	for _, key := range keys {
		c := exclusiveClaim(key, ttl)
		f.acquire(s, c)
		batch = append(batch, store.Renewal{Ref: c.Ref, TTL: ttl, Session: session.ID})
	}
	return batch
}

func isUpdate(name string) bool { return name == "update" }

func needTogether(t *testing.T) { testserver.Need(t, "retryable", "!router") }

func TestOneUpdatePutsManyHoldersUnderASession(t *testing.T) {
	t.Parallel()
	needTogether(t)
	f := newFixture(t)
	session := beginSession(f, f.store, time.Minute)
	batch := f.heldBy(f.store, session, time.Minute, "a", "b", "c")
	before := f.document("b").Holders[0]
	f.tap.Take()
	for _, a := range f.store.Renew(f.ctx(), batch) {
		require.NoError(t, a.Err)
		assert.Zero(t, a.Left, "its own end stays as it is")
	}
	f.expect("coming under", []string{session.ID},
		"update ordered: false "+sentDurably+" updates: [{q: {_id: {$in: [a, b, c]}, mongolock: 1, mode: exclusive, rev: {$in: [BEAT, BEAT, BEAT]}, session: {$in: [null, ID]}}, "+
			"u: {$set: {session: ID, expireAt: DATE}, $currentDate: {at: true}}, multi: true}]")
	after := f.document("b").Holders[0]
	assert.Equal(t, session.ID, after.Session)
	assert.Equal(t, before.Beat, after.Beat)
	assert.Equal(t, before.ExpireAt, after.ExpireAt)
}

func TestABrokenHolderDoesNotComeUnderASessionWithOthers(t *testing.T) {
	t.Parallel()
	needTogether(t)
	f := newFixture(t)
	session := beginSession(f, f.store, time.Minute)
	batch := f.heldBy(f.store, session, time.Minute, "a", "broken", "c")
	require.NoError(t, f.another().Break(f.ctx(), batch[1].Ref, "why", false))
	answers := f.store.Renew(f.ctx(), batch)
	var broken *store.BrokenError
	assert.ErrorAs(t, answers[1].Err, &broken)
	assert.NoError(t, answers[0].Err)
	assert.NoError(t, answers[2].Err)
	assert.Empty(t, f.document("broken").Holders[0].Session)
	assert.Equal(t, session.ID, f.document("c").Holders[0].Session)
}

func TestAnEntranceWithoutAnAnswerIsAskedAfter(t *testing.T) {
	t.Parallel()
	needTogether(t)
	f, line := newFixtureOnLine(t)
	session := beginSession(f, f.store, time.Minute)
	batch := f.heldBy(f.store, session, time.Minute, "a", "b")
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Lose: isUpdate(name)} })
	for _, a := range f.store.Renew(f.brief(), batch) {
		assert.NoError(t, a.Err, "a majority has it")
	}
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Stall: isUpdate(name)} })
	for _, a := range f.store.Renew(f.brief(), f.heldBy(f.store, session, time.Minute, "c", "d")) {
		assert.Error(t, a.Err, "nobody has it")
	}
}

func TestATakeoverMissesAHolderThatCameUnderASessionWithOthers(t *testing.T) {
	t.Parallel()
	needTogether(t)
	assert.True(t, enteredSinceTheLook(t), "taken from a live holder")
}

// enteredSinceTheLook has a rival look at a holder that ran out, whose process then puts it under
// a session.
func enteredSinceTheLook(t *testing.T) (holds bool) {
	f, line := newFixtureOnLine(t)
	process := f.another()
	session := beginSession(f, process, time.Minute)
	batch := f.heldBy(process, session, time.Minute, "k", "other")
	f.expire(batch[0].Ref, time.Hour) // by a clock that was stepped, say
	takeovers := 0
	line.Set(func(_ string, c bson.Raw) (fate testserver.Fate) {
		if isTakeover(c) {
			if takeovers++; takeovers == 1 {
				fate.Before = func() {
					for _, a := range process.Renew(f.ctx(), batch) {
						assert.NoError(t, a.Err)
					}
				}
			}
		}
		return fate
	})
	_, _ = f.store.Acquire(f.ctx(), exclusiveClaim("k", time.Minute))
	require.Positive(t, takeovers, "it was not tried: this shows nothing")
	_, holds = f.document("k").Holder(batch[0].ID)
	return holds
}

func TestASweepMissesAHolderThatCameUnderAnotherSessionWithOthers(t *testing.T) {
	t.Parallel()
	needTogether(t)
	assert.True(t, enteredSinceTheSweepsLook(t), "the sweep removed a live holder")
}

// enteredSinceTheSweepsLook has a sweep look at a primary on which a holder is under a session that is
// over. That is rolled back, and the holder comes under the next one.
func enteredSinceTheSweepsLook(t *testing.T) (holds bool) {
	f, line := newFixtureOnLine(t)
	process := f.another()
	old, next := beginSession(f, process, time.Minute), beginSession(f, process, time.Minute)
	batch := f.heldBy(process, next, time.Minute, "k", "other")
	entrance := func(session string) bson.D {
		return bson.D{{Key: "$set", Value: bson.D{{Key: fieldSession, Value: session}, {Key: fieldExpireAt, Value: farEnd(session)}}}}
	}
	f.expire(batch[0].Ref, time.Hour) // by a clock that was stepped, say
	_, err := f.coll.UpdateByID(f.ctx(), "k", entrance(old.ID))
	require.NoError(t, err)
	require.NoError(t, f.store.EndSession(f.ctx(), old.ID))
	swept := 0
	line.Set(func(name string, _ bson.Raw) (fate testserver.Fate) {
		if name == "delete" {
			if swept++; swept == 1 {
				fate.Before = func() {
					_, err := f.coll.UpdateByID(f.ctx(), "k", bson.D{{Key: "$unset", Value: bson.D{{Key: fieldSession, Value: ""}}}})
					assert.NoError(t, err)
					for _, a := range process.Renew(f.ctx(), batch) {
						assert.NoError(t, a.Err)
					}
				}
			}
		}
		return fate
	})
	_, err = f.store.Sweep(f.ctx())
	require.NoError(t, err)
	require.Positive(t, swept, "nothing was swept: this shows nothing")
	return !f.absent("k")
}

func TestALateRenewalPutsNoHolderUnderAnOldSession(t *testing.T) {
	t.Parallel()
	needTogether(t)
	trusted, shown := lateAfterTogether(t)
	assert.Equal(t, trusted, shown)
}

// lateAfterTogether has a renewal of one holder come late, which names a session, when its process
// has been told that the holder is under the next.
func lateAfterTogether(t *testing.T) (trusted, shown string) {
	f, line := newFixtureOnLine(t)
	old, next := beginSession(f, f.store, time.Minute), beginSession(f, f.store, time.Minute)
	batch := f.heldBy(f.store, old, time.Minute, "k", "other")
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Stall: isModify(name)} })
	require.Error(t, f.store.Renew(f.brief(), batch[:1])[0].Err)
	line.Set(nil)
	batch[0].Session, batch[1].Session = next.ID, next.ID
	for _, a := range f.store.Renew(f.ctx(), batch) {
		require.NoError(t, a.Err)
	}
	require.NotEmpty(t, line.Deliver(t), "nothing was stalled: the test shows nothing")
	return next.ID, f.document("k").Holders[0].Session
}

func TestALateEntrancePutsNoHolderUnderASessionThatItLeft(t *testing.T) {
	t.Parallel()
	needTogether(t)
	assert.Empty(t, lateAfterLeaving(t))
}

func lateAfterLeaving(t *testing.T) (session string) {
	f, line := newFixtureOnLine(t)
	batch := f.heldBy(f.store, beginSession(f, f.store, time.Minute), time.Minute, "k", "other")
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Stall: isUpdate(name)} })
	for _, a := range f.store.Renew(f.brief(), batch) {
		require.Error(t, a.Err)
	}
	line.Set(nil)
	batch[0].Session, batch[0].Alone = "", true
	require.NoError(t, f.store.Renew(f.ctx(), batch[:1])[0].Err)
	require.NotEmpty(t, line.Deliver(t), "nothing was stalled: the test shows nothing")
	return f.document("k").Holders[0].Session
}

// After a hand-over the document belongs to the next holder alone.
func TestTheNextHolderIsUnderNoSessionOfTheLast(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := beginSession(f, f.store, time.Minute)
	batch := f.heldBy(f.store, session, time.Minute, "handed", "taken", "joined")
	for _, a := range f.store.Renew(f.ctx(), batch) {
		require.NoError(t, a.Err)
	}
	_, err := f.store.Transfer(f.ctx(), batch[0].Ref, exclusiveClaim("handed", time.Minute))
	require.NoError(t, err)
	for _, r := range batch[1:] {
		f.expire(r.Ref, time.Hour)
	}
	require.NoError(t, f.store.EndSession(f.ctx(), session.ID))
	f.takesOver(f.another(), "taken")
	require.Eventually(t, func() bool {
		_, err := f.another().Acquire(f.ctx(), sharedClaim("joined", time.Minute))
		return err == nil
	}, pace.Of(20*time.Second), 20*time.Millisecond)
	for _, r := range batch {
		assert.Empty(t, f.document(r.Key).session, fmt.Sprint(r.Key))
	}
}
