package mongostore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

func sharedClaim(key string, ttl time.Duration) store.Claim {
	c := exclusiveClaim(key, ttl)
	c.Mode, c.Limit = store.Shared, 0
	return c
}

func permitClaim(key string, n int, ttl time.Duration) store.Claim {
	c := exclusiveClaim(key, ttl)
	c.Mode, c.Limit = store.Permits, n
	return c
}

func (f *fixture) release(r store.Ref) {
	f.t.Helper()
	err := released(f.ctx(), f.store, r, 0)
	require.NoError(f.t, err, "release %q", r.Key)
}

// die sets a holder's end to the past. The document keeps its own end, which is that of the
// others.
func (f *fixture) die(r store.Ref, ago time.Duration) {
	f.t.Helper()
	_, err := f.coll.UpdateOne(f.ctx(), bson.D{{Key: "_id", Value: r.Key}},
		bson.D{{Key: "$set", Value: bson.D{{Key: path(r.ID).Path(fieldExpireAt), Value: time.Now().Add(-ago)}}}})
	require.NoError(f.t, err)
}

func (f *fixture) held(s *Store, c store.Claim) *store.HeldError {
	f.t.Helper()
	_, err := s.Acquire(f.ctx(), c)
	var held *store.HeldError
	ok := errors.As(err, &held)
	require.True(f.t, ok, "acquire %q: %v, want it held", c.Key, err)
	return held
}

// meanwhile runs something once, just before a command of the store reaches the
// server.
func meanwhile(l *testserver.Line, is func(c bson.Raw) bool, do func()) (done func() bool) {
	did := false
	l.Set(func(name string, c bson.Raw) testserver.Fate {
		if did || !isModify(name) || !is(c) {
			return testserver.Fate{}
		}
		did = true
		return testserver.Fate{Before: do}
	})
	return func() bool { return did }
}

func isJoin(c bson.Raw) bool {
	return !c.Lookup("query", fieldRev).IsZero() && !isUpsert(c) && !isRemove(c)
}

func isRemove(c bson.Raw) bool { r, _ := c.Lookup("remove").BooleanOK(); return r }

func isUnset(c bson.Raw) bool { return !c.Lookup("update", "$unset").IsZero() }

// These are the safeties of sharing, each in the race that it is for. A scenario returns what
// went wrong; the controls show what goes wrong without the safety.
var shareRaces = []struct {
	name   string
	safety string // the switch of internal/test/knob that takes it out
	run    func(f *fixture, line *testserver.Line) string
}{
	{
		"a join writes field by field", "JoinWritesMap",
		func(f *fixture, line *testserver.Line) string {
			stays := sharedClaim("k", 5*time.Second)
			other := f.another()
			f.acquire(other, stays)
			did := meanwhile(line, isJoin, func() {
				other.Renew(f.ctx(), []store.Renewal{{Ref: stays.Ref, TTL: time.Minute}})
			})
			f.acquire(f.store, sharedClaim("k", 5*time.Second))
			if h, ok := f.document("k").Has(stays.ID); !did() || !ok || time.Until(h.ExpireAt) < 30*time.Second {
				return "a renewal was taken back by a join"
			}
			return ""
		},
	},
	{
		"a permit is granted by the number of its own claim", "LargestLimit",
		func(f *fixture, _ *testserver.Line) string {
			f.acquire(f.store, permitClaim("k", 4, time.Minute))
			f.acquire(f.store, permitClaim("k", 4, time.Minute))
			if _, err := f.store.Acquire(f.ctx(), permitClaim("k", 2, time.Minute)); err == nil {
				return "a third holds one of two permits"
			}
			return ""
		},
	},
	{
		"a join changes rev", "JoinKeepsRev",
		func(f *fixture, line *testserver.Line) string {
			other := f.another()
			f.acquire(other, permitClaim("k", 2, time.Minute))
			meanwhile(line, isJoin, func() { f.acquire(other, permitClaim("k", 2, time.Minute)) })
			_, _ = f.store.Acquire(f.ctx(), permitClaim("k", 2, time.Minute))
			if n := len(f.document("k").Holders); n > 2 {
				return "three of two permits are given out"
			}
			return ""
		},
	},
	{
		"a join asks that nobody waits", "GrantOutOfTurn",
		func(f *fixture, line *testserver.Line) string {
			other := f.another()
			f.acquire(other, sharedClaim("k", time.Minute))
			meanwhile(line, isJoin, func() { f.waits(other, exclusiveClaim("k", time.Minute)) })
			if _, err := f.store.Acquire(f.ctx(), sharedClaim("k", time.Minute)); err == nil {
				return "a reader passed a waiting writer"
			}
			return ""
		},
	},
	{
		"the last to leave deletes what nobody holds", "LastDeletesHeld",
		func(f *fixture, line *testserver.Line) string {
			other := f.another()
			first, second := sharedClaim("k", time.Minute), sharedClaim("k", time.Minute)
			f.acquire(f.store, first)
			meanwhile(line, isRemove, func() { f.acquire(other, second) })
			f.release(first.Ref)
			if f.absent("k") {
				return "a holder that joined while another left is gone"
			}
			return ""
		},
	},
	{
		"the beat of a dropped holder is in the filter", "JoinDropsTheLiving",
		func(f *fixture, line *testserver.Line) string {
			other := f.another()
			late, stays := sharedClaim("k", time.Minute), sharedClaim("k", time.Minute)
			f.acquire(other, late)
			f.acquire(other, stays)
			f.die(late.Ref, time.Second)
			meanwhile(line, isJoin, func() { // a renewal, judged by the server's time of a trip ago
				_, err := f.coll.UpdateOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}}, lease.Extend("", path(late.ID), lease.Validity{
					Until: time.Now().Add(time.Minute), TTL: time.Minute, Beat: f.store.base.Beat(), By: f.store.base.ClockBasis(),
				}))
				assert.NoError(f.t, err)
			})
			f.acquire(f.store, sharedClaim("k", time.Minute))
			if _, ok := f.document("k").Has(late.ID); !ok {
				return "a holder that was renewed in time is dropped"
			}
			return ""
		},
	},
	{
		"the clean-up of a join is a leave", "UndoDeletes",
		func(f *fixture, line *testserver.Line) string {
			stays := sharedClaim("k", time.Minute)
			f.acquire(f.another(), stays)
			line.Set(func(name string, c bson.Raw) testserver.Fate {
				return testserver.Fate{Lose: isModify(name) && isJoin(c)}
			})
			c := sharedClaim("k", time.Minute)
			if _, err := f.store.Acquire(f.brief(), c); err == nil || store.IsCertain(err) {
				f.t.Fatalf("the reply is lost, and the outcome certain: %v", err)
			}
			line.Set(nil)
			settled, err := f.store.Undo(f.ctx(), c.Ref, nil)
			assert.True(f.t, settled, "settled")
			assert.NoError(f.t, err, "settled")
			if f.absent("k") {
				return "the other holder went with the claim"
			}
			_, ok := f.document("k").Has(c.ID)
			assert.False(f.t, ok, "it is not cleaned up")
			return ""
		},
	},
}

func TestEachSafetyOfSharingHoldsInItsRace(t *testing.T) {
	t.Parallel()
	for _, race := range shareRaces {
		t.Run(race.name, func(t *testing.T) {
			f, line := newFixtureOnLine(t)
			assert.Empty(t, race.run(f, line))
		})
	}
}

// stalledJoin sends a join that does not arrive, undoes it, and then lets it arrive.
func stalledJoin(t *testing.T, opts ...func(*options.ClientOptions)) (settled bool, f *fixture, joined store.Claim) {
	t.Helper()
	line := &testserver.Line{}
	f = newFixture(t, append(opts, line.Through)...)
	stays := sharedClaim("k", time.Minute)
	f.acquire(f.another(), stays)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		return testserver.Fate{Stall: isModify(name) && isJoin(c)}
	})
	joined = sharedClaim("k", time.Minute)
	_, err := f.store.Acquire(f.brief(), joined)
	require.Error(t, err, "stalled, and the outcome certain")
	require.False(t, store.IsCertain(err), "stalled, and the outcome certain: %v", err)
	line.Set(nil)
	settled, err = f.store.Undo(f.ctx(), joined.Ref, nil)
	require.NoError(t, err)
	for _, reply := range line.Deliver(t) {
		t.Log("what came late was answered", renderedValue(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: reply})[:60])
	}
	return settled, f, joined
}

func TestAJoinThatArrivesAfterItsCleanUpIsNotApplied(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]func(*options.ClientOptions){
		"with transaction numbers":    nil,
		"without transaction numbers": {withoutRetries}, // there the new revision alone refuses it
	} {
		t.Run(name, func(t *testing.T) {
			settled, f, joined := stalledJoin(t, opts...)
			assert.True(t, settled, "not settled, though the revision that it named is gone")
			_, landed := f.document("k").Has(joined.ID)
			assert.False(t, landed, "it landed: %+v", f.document("k").Holders)
			assert.Len(t, f.document("k").Holders, 1, "it landed")
		})
	}
}

// A reader that dies between leaving and deleting leaves an empty document. Its end lies in
// the future, but it blocks no claim.
func TestASharerThatDiesBetweenLeavingAndDeletingBlocksNoClaim(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]store.Claim{
		"a writer": exclusiveClaim("k", time.Minute), "a reader": sharedClaim("k", time.Minute), "a permit": permitClaim("k", 1, time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			f, line := newFixtureOnLine(t)
			c := sharedClaim("k", time.Minute)
			f.acquire(f.store, c)
			line.Set(func(name string, c bson.Raw) testserver.Fate {
				return testserver.Fate{Stall: isModify(name) && isRemove(c)}
			})
			err := released(f.brief(), f.store, c.Ref, 0)
			assert.NoError(t, err, "it has left")
			r := f.document("k")
			require.Empty(t, r.Holders, "the test shows nothing: %+v", r)
			require.True(t, f.end("k").After(time.Now()), "the test shows nothing: %+v", r)
			f.acquire(f.another(), next)
			line.Deliver(t) // the delete, late
			_, holds := f.document("k").Has(next.ID)
			assert.True(t, holds, "a delete that came late took the next holder along")
		})
	}
}

func TestARepeatedLeaveDeletesTheEmptyDocument(t *testing.T) {
	t.Parallel()
	f, line := newFixtureOnLine(t)
	c := sharedClaim("k", time.Minute)
	f.acquire(f.store, c)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		return testserver.Fate{Lose: isModify(name) && isUnset(c)}
	})
	err := released(f.brief(), f.store, c.Ref, 0)
	require.Error(t, err, "its reply is lost, and the outcome certain")
	require.False(t, store.IsCertain(err), "its reply is lost, and the outcome certain: %v", err)
	require.False(t, f.absent("k"), "the test shows nothing")
	line.Set(nil)
	err = released(f.ctx(), f.store, c.Ref, 0)
	assert.ErrorIs(t, err, store.ErrGone, "said again")
	assert.True(t, f.absent("k"), "the empty document is left")
}

// A waiter that joins the line when the last holder has left, and before the document is deleted,
// is its own next look: it finds the key free.
func TestAPlaceThatIsTakenJustBeforeTheDeleteIsKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]store.Claim{"a writer": exclusiveClaim("k", time.Minute), "another": permitClaim("k", 1, time.Minute)} {
		t.Run(name, func(t *testing.T) {
			f, line := newFixtureOnLine(t)
			mine := permitClaim("k", 1, time.Minute)
			f.acquire(f.store, mine)
			other := f.another()
			did := meanwhile(line, isRemove, func() {
				p := string(store.NewPlace(c.Mode, c.Limit, 1, "here")) // as a claim that dies right after it
				_, err := f.coll.UpdateByID(f.ctx(), "k", bson.D{
					{Key: "$push", Value: bson.D{{Key: lease.FieldLine, Value: p}}}, {Key: "$currentDate", Value: bson.D{{Key: "waits." + p + ".seen", Value: true}}},
				})
				assert.NoError(t, err)
				c.Place = store.Place(p)
			})
			f.release(mine.Ref)
			require.True(t, did())
			require.False(t, f.absent("k"), "the place went with the document")
			f.held(other, permitClaim("k", 1, time.Second))
			f.acquire(other, c)
		})
	}
}

func TestAFullDocumentTakesNoFurtherHolder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := sharedClaim("k", time.Minute)
	f.acquire(f.store, c)
	_, err := f.coll.UpdateOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}},
		bson.D{{Key: "$set", Value: bson.D{{Key: path(c.ID).Path("padding"), Value: strings.Repeat("x", fullAt)}}}})
	require.NoError(t, err)
	_, err = f.store.Acquire(f.ctx(), sharedClaim("k", time.Minute))
	assert.ErrorIs(t, err, store.ErrTooLarge)
	assert.NoError(t, f.store.Renew(f.ctx(), []store.Renewal{{Ref: c.Ref, TTL: c.TTL}})[0].Err, "the holder is disturbed")
	f.release(c.Ref)
	f.acquire(f.store, sharedClaim("k", time.Minute))
}

func TestThroughARouterNoDateEndsASharer(t *testing.T) {
	t.Parallel()
	f, _ := asRouter(t, unsharded)
	dead, stays := sharedClaim("k", 30*time.Second), sharedClaim("k", 30*time.Second)
	other := f.another()
	f.acquire(other, dead)
	f.acquire(other, stays)
	f.die(dead.Ref, time.Minute+time.Second) // rule 3 would end it behind no router
	f.acquire(f.store, sharedClaim("k", 30*time.Second))
	r := f.document("k")
	_, kept := r.Has(dead.ID)
	assert.True(t, kept, "%+v", r.Holders)
	assert.Len(t, r.Holders, 3)
}

// A claim waits for its turn among those of its process, but no longer than its context.
func TestAJoinWaitsForTheGateNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	f, line := newFixtureOnLine(t)
	f.acquire(f.another(), sharedClaim("k", time.Minute))
	inside, goOn := make(chan struct{}), make(chan struct{})
	meanwhile(line, isJoin, func() { close(inside); <-goOn })
	answered := make(chan error, 1)
	go func() {
		_, err := f.store.Acquire(f.ctx(), sharedClaim("k", time.Minute))
		answered <- err
	}()
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := f.store.Acquire(ctx, sharedClaim("k", time.Minute))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorIs(t, err, store.ErrNotApplied)
	close(goOn)
	assert.NoError(t, <-answered)
	assert.Empty(t, f.store.joins.gates, "a gate is left where nobody is")
}
