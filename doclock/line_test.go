package doclock

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store"
)

// A waiter takes an update and a place, and from then on each step of the line one command.
func TestAWaitersStepsTakeOneCommandEach(t *testing.T) {
	t.Parallel()
	f := newTapped(t)
	holder := f.taken(1)[0]
	c := claimOf(0)
	c.ID, c.Place = "waits", place
	sent := func(what string, n int) {
		t.Helper()
		names := f.tap.TakeNames()
		assert.Len(t, names, n, "%s: %v", what, names)
	}
	_, err := f.store.Acquire(t.Context(), c)
	require.ErrorIs(t, err, store.ErrHeld)
	sent("a claim of a document that is held", 2)
	c.ID, c.InLine = "waits again", true
	_, err = f.store.Acquire(t.Context(), c)
	require.ErrorIs(t, err, store.ErrHeld)
	sent("one that stands in line", 1)
	holder.Line = true
	ended, err := f.store.Release(t.Context(), holder)
	require.NoError(t, err)
	assert.Equal(t, store.ReleaseResult{Line: []store.Place{place}}, ended)
	sent("a release that knows of the line", 1)
	c.ID, c.Offered = "takes", true
	f.take(f.store, c)
	sent("the claim of an offer", 1)
	_, err = f.store.Release(t.Context(), store.ReleaseRequest{Ref: c.Ref})
	require.NoError(t, err)
	sent("a release", 1)
	assert.True(t, f.isFree(0))
}

// Nothing of the lock is left in a document of the application when the last waiter has gone.
func TestTheLastInLineLeavesTheDocumentAsItWas(t *testing.T) {
	t.Parallel()
	f := newTapped(t)
	before := contents(t, f.coll)
	for name, end := range map[string]func(store.ReleaseRequest){
		"gives up": func(e store.ReleaseRequest) {
			_, err := f.store.Leave(t.Context(), e.Key, place)
			require.NoError(t, err)
			_, _ = f.store.Release(t.Context(), e)
		},
		"gives up once the document is free": func(e store.ReleaseRequest) {
			_, _ = f.store.Release(t.Context(), e)
			_, err := f.store.Leave(t.Context(), e.Key, place)
			require.NoError(t, err)
		},
		"gives up before a release that expects it": func(e store.ReleaseRequest) {
			_, err := f.store.Leave(t.Context(), e.Key, place)
			require.NoError(t, err)
			e.Line = true
			_, _ = f.store.Release(t.Context(), e)
		},
	} {
		holder := f.taken(1)[0]
		f.waits(0)
		end(holder)
		assert.True(t, f.isFree(0), "%s: %v", name, get(t, f.coll, "0"))
		_, err := f.coll.DeleteOne(t.Context(), ID("0"))
		require.NoError(t, err)
	}
	assert.Equal(t, before, contents(t, f.coll))
}

// A claim of one of many takes whatever document is free, also one for which somebody waits by its
// name: that one comes next. The line outlasts it, and the marks that it leaves.
func TestAClaimOfOneOfManyHeedsNoLine(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	put(t, coll, order{ID: "0", State: "ready"})
	locks := locksOn[order](t, coll)
	holder := claimOf(0)
	_, err := locks.store.Acquire(t.Context(), holder)
	require.NoError(t, err)
	waiting := holder
	waiting.ID, waiting.Place = "waits", place
	_, err = locks.store.Acquire(t.Context(), waiting)
	require.ErrorIs(t, err, store.ErrHeld)
	_, err = locks.store.Release(t.Context(), store.ReleaseRequest{Ref: holder.Ref})
	require.NoError(t, err)

	claimed := must(locks.TryClaim(t.Context(), ready, nil))(t)
	require.NoError(t, claimed.Complete(t.Context()))
	lock := readLock(get(t, coll, "0"), "lock")
	assert.True(t, lock.done)
	assert.Equal(t, 1, lock.attempts)
	require.Len(t, lock.Line, 1)

	waiting.ID = "takes"
	_, err = locks.store.Acquire(t.Context(), waiting)
	require.NoError(t, err)
	_, err = locks.store.Release(t.Context(), store.ReleaseRequest{Ref: waiting.Ref})
	require.NoError(t, err)
	lock = readLock(get(t, coll, "0"), "lock")
	assert.True(t, lock.done)
	assert.Empty(t, lock.Line)
}
