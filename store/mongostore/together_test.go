package mongostore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// some returns claims of n keys.
func some(n int) (batch []store.Claim) {
	for i := range n {
		batch = append(batch, exclusiveClaim(fmt.Sprint("key-", i), 30*time.Second))
	}
	return batch
}

// claimAll claims free keys in one bulk.
func (f *fixture) claimAll(s *Store, batch []store.Claim) {
	f.t.Helper()
	for _, a := range s.AcquireMany(f.ctx(), batch) {
		require.NoError(f.t, a.Err)
	}
}

// isBulk tells the bulk of claims, in a test without wake-ups.
func isBulk(name string) bool { return name == "insert" }

func TestAThousandKeysAreTakenWithTwoCommandsSideBySide(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable", "operationtime")
	f := newFixture(t)
	f.acquire(f.store, exclusiveClaim("warm", time.Second))
	f.tap.Take()
	clock := []string{"hello"} // through a router its time is not the documents'
	if testserver.Has("router") {
		clock = []string{"update", "find"}
	}
	for _, n := range []int{2, 1000} {
		batch := some(n)
		f.claimAll(f.store, batch)
		sent := f.tap.Take()
		require.Len(t, sent, 1+len(clock), "commands for %d keys", n)
		slices.SortStableFunc(sent, func(a, b bson.Raw) int {
			return cmp.Compare(slices.Index(clock, a.Index(0).Key()), slices.Index(clock, b.Index(0).Key()))
		})
		assert.Equal(t, "insert", sent[0].Index(0).Key())
		for i, name := range clock {
			assert.Equal(t, name, sent[1+i].Index(0).Key())
		}
		ordered, _ := sent[0].Lookup("ordered").BooleanOK()
		assert.False(t, ordered, "the bulk is ordered: one key that is held would stop the rest")
		assert.Equal(t, "{w: majority, j: true}", renderedValue(sent[0].Lookup("writeConcern"), nil))
		assert.False(t, sent[0].Lookup("txnNumber").IsZero(), "a bulk that is sent again is done once")
		bulk, after := sent[0].Lookup("lsid"), sent[1].Lookup("lsid")
		assert.False(t, bulk.Equal(after), "the second command would tell the token")
		first := bson.Raw(sent[0].Lookup("documents").Array()).Index(0).Value()
		assert.Equal(t, "{_id: key-0, mongolock: 1, rev: REV, mode: exclusive, limit: 1, holders: {ID: "+sentNew+"}, expireAt: DATE, at: DATE}",
			renderedValue(first, []string{batch[0].ID}))
		for _, c := range batch {
			err := released(f.ctx(), f.store, c.Ref, 0)
			require.NoError(t, err)
		}
		f.tap.Take()
	}
}

func TestKeysThatAreHeldDoNotStopTheOthersOfABulk(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable", "operationtime")
	f := newFixture(t)
	batch := some(3)
	f.acquire(f.store, exclusiveClaim("key-1", 30*time.Second))
	f.tap.Take()
	answers := f.store.AcquireMany(f.ctx(), batch)
	assert.ErrorIs(t, answers[1].Err, store.ErrHeld)
	assert.NoError(t, errors.Join(answers[0].Err, answers[2].Err))
	f.tap.Take()
	for _, a := range f.store.AcquireMany(f.ctx(), some(3)) {
		assert.ErrorIs(t, a.Err, store.ErrHeld)
	}
	names := f.tap.TakeNames()
	slices.Sort(names)
	if !testserver.Has("router") {
		assert.Equal(t, []string{"hello", "insert"}, names)
	} else {
		assert.Equal(t, []string{"insert"}, names, "nothing was granted: nobody needs the time")
	}
}

// Without transaction numbers a bulk that the driver sends again could be applied twice, and
// nothing would refuse one that comes late.
func TestWithoutRetryableWritesKeysAreNotClaimedInBulk(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withoutRetries)
	for _, a := range f.store.AcquireMany(f.ctx(), some(2)) {
		assert.ErrorIs(t, a.Err, errors.ErrUnsupported)
		assert.True(t, store.IsCertain(a.Err))
	}
	assert.Zero(t, f.documents())
}

func TestTheDriversRetryDeliversABulkWhoseReplyWasLost(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable", "operationtime")
	f, line := newFixtureOnLine(t)
	lost := 0
	line.Set(func(name string, _ bson.Raw) testserver.Fate {
		if isBulk(name) && lost == 0 {
			lost++
			return testserver.Fate{Lose: true}
		}
		return testserver.Fate{}
	})
	batch := some(3)
	f.claimAll(f.store, batch)
	assert.Equal(t, 1, lost, "no reply was lost: the test shows nothing")
	for _, c := range batch {
		_, holds := f.document(c.Key).Holder(c.ID)
		assert.True(t, holds, c.Key)
	}
}

// lateBulk sends a bulk that does not arrive, undoes its first claim, and lets the bulk arrive.
func lateBulk(t *testing.T) (f *fixture, undone, other store.Claim) {
	f, line := newFixtureOnLine(t)
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Stall: isBulk(name)} })
	batch := some(2)
	for _, a := range f.store.AcquireMany(f.brief(), batch) {
		require.Error(t, a.Err)
		require.False(t, store.IsCertain(a.Err), "%v", a.Err)
	}
	line.Set(nil)
	f.tap.Take()
	settled, err := f.store.Undo(f.ctx(), batch[0].Ref, nil)
	require.NoError(t, err)
	require.True(t, settled)
	require.NotEmpty(t, line.Deliver(t), "nothing was stalled: the test shows nothing")
	return f, batch[0], batch[1]
}

func TestABulkThatArrivesAfterTheUndoOfOneOfItsClaimsIsRefused(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	f, undone, other := lateBulk(t)
	assert.True(t, f.absent(undone.Key), "a ghost")
	assert.True(t, f.absent(other.Key), "a ghost")
	assert.Equal(t, []string{"delete", "update"}, f.tap.TakeNames(), "the undo")
	settled, err := f.store.Undo(f.ctx(), other.Ref, nil)
	assert.NoError(t, err)
	assert.True(t, settled)
	assert.Empty(t, f.tap.TakeNames(), "the undo of one is that of all whose outcome is unknown")
}

func TestABulkWhoseRepliesAreLostIsUndoneTogether(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	f, line := newFixtureOnLine(t)
	held := exclusiveClaim("key-1", 30*time.Second)
	f.acquire(f.store, held)
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Lose: isBulk(name)} })
	batch := some(3)
	for _, a := range f.store.AcquireMany(f.brief(), batch) {
		require.False(t, store.IsCertain(a.Err), "%v", a.Err)
	}
	require.False(t, f.absent("key-0"), "not applied: the test shows nothing")
	line.Set(nil)
	f.tap.Take()
	for _, c := range batch {
		settled, err := f.store.Undo(f.ctx(), c.Ref, nil)
		assert.NoError(t, err)
		assert.True(t, settled)
	}
	assert.Equal(t, []string{"delete", "update"}, f.tap.TakeNames(), "some were not found: perhaps others wait for them")
	assert.True(t, f.absent("key-0"))
	assert.True(t, f.absent("key-2"))
	_, holds := f.document("key-1").Holder(held.ID)
	assert.True(t, holds, "the clean-up removed another holder")
}

// Without the server's time it is not known how long a grant lasts.
func TestABulkAfterWhichTheTimeIsNotToldIsUnknownWhereItWasApplied(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable")
	if testserver.Has("router") {
		t.Skip("a router is asked for another time")
	}
	f, line := newFixtureOnLine(t)
	f.acquire(f.store, exclusiveClaim("key-1", 30*time.Second))
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Lose: name == "hello"} })
	answers := f.store.AcquireMany(f.brief(), some(3))
	line.Set(nil)
	for i, a := range answers {
		require.Error(t, a.Err)
		assert.Equal(t, i == 1, store.IsCertain(a.Err), "%d: %v", i, a.Err)
	}
}

// slowTwin sends a bulk that stalls while its retry is refused, slowly or not. Then the key
// becomes free, and the first one arrives.
func slowTwin(t *testing.T, slow time.Duration) (f *fixture, answers []store.Claimed) {
	f, line := newFixtureOnLine(t)
	other := f.another()
	holder := exclusiveClaim("key-1", 30*time.Second)
	f.acquire(other, holder)
	first := true
	line.Set(func(name string, _ bson.Raw) testserver.Fate {
		if isBulk(name) && first {
			first = false
			return testserver.Fate{Stall: true, Before: func() { time.Sleep(slow) }} // real: the refusal is a slow one
		}
		return testserver.Fate{}
	})
	answers = f.store.AcquireMany(f.ctx(), some(3))
	err := released(f.ctx(), other, holder.Ref, 0)
	require.NoError(t, err)
	require.Len(t, line.Deliver(t), 1, "nothing was stalled: the test shows nothing")
	return f, answers
}

func TestTheLateTwinOfASlowBulkIsRefused(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable", "operationtime")
	f, answers := slowTwin(t, mongobase.Slow+100*time.Millisecond)
	assert.NoError(t, errors.Join(answers[0].Err, answers[2].Err))
	assert.ErrorIs(t, answers[1].Err, store.ErrHeld)
	assert.True(t, f.absent("key-1"), "refused, and its twin holds the key")
	assert.False(t, f.absent("key-0"), "the clean-up of the refused removed what was granted")
}

// The control: the twin of a quick refusal, if nothing followed it, is applied. It expires
// (docs/internals/design.md §4.1).
func TestControlTheLateTwinOfAQuickBulkIsAppliedAndExpires(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "retryable", "operationtime")
	f, answers := slowTwin(t, 0)
	assert.ErrorIs(t, answers[1].Err, store.ErrHeld)
	assert.False(t, f.absent("key-1"), "no twin landed, so the other test shows nothing")
}
