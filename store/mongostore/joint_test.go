package mongostore

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// needJoint skips a test where one deletion may not remove several documents.
func needJoint(t *testing.T) {
	t.Helper()
	testserver.Need(t, "retryable")
	if testserver.Has("router") {
		t.Skip("a router is sent one deletion for each document")
	}
}

func endings(batch []store.Claim) (all []store.Ending) {
	for _, c := range batch {
		all = append(all, store.Ending{Ref: c.Ref})
	}
	return all
}

func TestAFewReleasesTakeOneCommand(t *testing.T) {
	t.Parallel()
	needJoint(t)
	f := newFixture(t)
	for _, n := range []int{2, 10, mongolease.MostUnseen} {
		batch := f.taken(n, shortClaim)
		f.tap.Take()
		for _, answer := range f.store.ReleaseMany(f.ctx(), batch) {
			require.NoError(t, answer.Err)
			require.False(t, answer.Wanted)
		}
		sent := f.tap.Take()
		require.Len(t, sent, 1, "%d releases", n)
		deletes, err := bson.Raw(sent[0].Lookup("deletes").Array()).Elements()
		require.NoError(t, err)
		require.Len(t, deletes, 1, "%d releases", n)
		filter := deletes[0].Value().Document().Lookup("q").Document()
		keys, err := filter.Lookup("_id", "$in").Array().Values()
		require.NoError(t, err)
		assert.Len(t, keys, n, "it names the documents: %s", filter)
		for i := range batch {
			_, named := filter.Lookup("$and", "0", "$or", strconv.Itoa(i), "holders."+batch[i].ID).DocumentOK()
			assert.True(t, named, "it names the acquisition %s: %s", batch[i].ID, filter)
		}
		assert.Zero(t, f.documents())
	}
}

// releasedWithAWord releases ten holders of which one is waited for, and tells which of the
// answers say so, and what was sent.
func releasedWithAWord(t *testing.T) (wanted []int, sent []string) {
	f := newFixture(t)
	batch := f.taken(10, shortClaim)
	waiting := shortClaim("key-7")
	waiting.Want = time.Minute
	_, err := f.store.Acquire(f.ctx(), waiting)
	require.ErrorIs(t, err, store.ErrHeld)
	f.tap.Take()
	for i, answer := range f.store.ReleaseMany(f.ctx(), batch) {
		require.NoError(t, answer.Err)
		if answer.Wanted {
			wanted = append(wanted, i)
		}
	}
	sent = f.tap.TakeNames()
	assert.Zero(t, f.documents())
	return wanted, sent
}

// A document with a word is not deleted before the word was seen.
func TestAFewReleasesSeeAWord(t *testing.T) {
	t.Parallel()
	needJoint(t)
	wanted, sent := releasedWithAWord(t)
	assert.Equal(t, []int{7}, wanted)
	assert.Equal(t, []string{"delete", "find", "delete"}, sent)
}

// It is not known which of the missing holders were gone before their release. All are answered as possibly gone.
func TestAHolderThatWasGoneIsNotToldThatItHeldToTheEnd(t *testing.T) {
	t.Parallel()
	needJoint(t)
	f := newFixture(t)
	batch := f.taken(4, shortClaim)
	waiting := shortClaim("key-3")
	waiting.Want = time.Minute
	_, err := f.store.Acquire(f.ctx(), waiting)
	require.ErrorIs(t, err, store.ErrHeld)
	require.NoError(t, f.another().Break(f.ctx(), batch[1].Ref, "by hand", true))
	for i, answer := range f.store.ReleaseMany(f.ctx(), batch) {
		if i == 3 {
			require.NoError(t, answer.Err, "it was there: it carried a word")
			assert.True(t, answer.Wanted)
			continue
		}
		require.ErrorIs(t, answer.Err, store.ErrGone)
		assert.ErrorContains(t, answer.Err, "of 4 keys released together 1 were not held any more")
	}
	assert.Zero(t, f.documents())
}

// A holder without a lease in memory, or with one that may have run out, is read first: then it is
// known which of them are gone.
func TestReleasesThatMayBeGoneAreLookedForFirst(t *testing.T) {
	t.Parallel()
	needJoint(t)
	f := newFixture(t)
	batch := f.taken(3, shortClaim)
	require.NoError(t, f.another().Break(f.ctx(), batch[1].Ref, "by hand", true))
	f.store.steps.Memory.Forget(batch[1].ID)
	f.tap.Take()
	for i, answer := range f.store.ReleaseMany(f.ctx(), batch) {
		assert.Equal(t, i == 1, errors.Is(answer.Err, store.ErrGone), "%d: %v", i, answer.Err)
	}
	assert.Equal(t, []string{"find", "delete"}, f.tap.TakeNames())
}

// The driver does not send such a deletion again. A find tells what became of it.
func TestAFewReleasesWhoseReplyIsLostAreDoneWithinTheCall(t *testing.T) {
	t.Parallel()
	needJoint(t)
	for _, applied := range []bool{true, false} {
		f, line := newFixtureOnLine(t)
		batch := some(3)
		f.claimAll(f.store, batch)
		lost := 0
		line.Set(func(name string, _ bson.Raw) testserver.Fate {
			if name != "delete" || lost > 0 {
				return testserver.Fate{}
			}
			lost++
			return testserver.Fate{Lose: applied, Stall: !applied}
		})
		for _, answer := range f.store.ReleaseMany(f.ctx(), endings(batch)) {
			require.NoError(t, answer.Err)
		}
		assert.Equal(t, 1, lost, "no reply was lost: the test shows nothing")
		for _, c := range batch {
			assert.True(t, f.absent(c.Key), "%s, applied: %v", c.Key, applied)
		}
		if !applied { // it does not concern the next holders of the keys
			next := some(3)
			f.claimAll(f.store, next)
			require.NotEmpty(t, line.Deliver(t), "nothing was stalled: the test shows nothing")
			for _, c := range next {
				_, holds := f.document(c.Key).Holder(c.ID)
				assert.True(t, holds, "a late deletion removed another holder")
			}
		}
	}
}

func TestAFewReleasesThatAreNotAnsweredAreUnknown(t *testing.T) {
	t.Parallel()
	needJoint(t)
	f, line := newFixtureOnLine(t)
	batch := some(3)
	f.claimAll(f.store, batch)
	line.Set(func(name string, _ bson.Raw) testserver.Fate {
		return testserver.Fate{Lose: name == "delete" || name == "find"}
	})
	for _, answer := range f.store.ReleaseMany(f.brief(), endings(batch)) {
		require.Error(t, answer.Err)
		require.False(t, store.IsCertain(answer.Err), "%v", answer.Err)
	}
	line.Set(nil)
	for _, answer := range f.store.ReleaseMany(f.ctx(), endings(batch)) {
		require.ErrorIs(t, answer.Err, store.ErrGone, "the first call was applied")
	}
}

// Without transaction numbers the server may be one that would read every document for such
// a deletion.
func TestAFewReleasesGoSideBySideWhereWritesHaveNoNumbers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withoutRetries)
	batch := f.taken(3, shortClaim)
	waiting := shortClaim("key-1")
	waiting.Want = time.Minute
	_, err := f.store.Acquire(f.ctx(), waiting)
	require.ErrorIs(t, err, store.ErrHeld)
	f.tap.Take()
	var waited []bool
	for _, answer := range f.store.ReleaseMany(f.ctx(), batch) {
		require.NoError(t, answer.Err)
		waited = append(waited, answer.Wanted)
	}
	assert.Equal(t, []bool{false, true, false}, waited)
	assert.Equal(t, []string{"findAndModify", "findAndModify", "findAndModify"}, f.tap.TakeNames())
}
