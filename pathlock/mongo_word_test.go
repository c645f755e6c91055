package pathlock

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/kit/pace"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func shared(path string) Request {
	r := exclusively(path)
	r.Mode = Shared
	return r
}

// aWaiter waits for /a, which is shared, and has written its reservation. Its process is that of m.
func (f *mongoFixture) aWaiter(m *Mongo, on *Tree) (held Lock, giveUp func(), served <-chan Lock) {
	f.t.Helper()
	held, err := on.Lock(f.ctx(), shared("/a/b"))
	require.NoError(f.t, err)
	time.Sleep(doubtMost) // real: until it is no longer in doubt
	ctx, cancel := context.WithCancel(f.ctx())
	got := make(chan Lock, 1)
	waiting := f.tree(m)
	go func() {
		if l, err := waiting.LockWait(ctx, exclusively("/a")); err == nil {
			got <- l
		}
	}()
	now := f.serverTime()
	require.Eventually(f.t, func() bool {
		return slices.ContainsFunc(f.reserved(), func(v reservation) bool { return v.Path == "/a" && v.stands(interval{now, now}) })
	}, pace.Of(10*time.Second), 5*time.Millisecond)
	return held, cancel, got
}

// reserved returns the reservations of the tree.
func (f *mongoFixture) reserved() []reservation {
	f.t.Helper()
	raw, err := f.coll.FindOne(f.ctx(), bson.D{{Key: "_id", Value: "files"}}).Raw()
	if err != nil {
		return nil
	}
	return readReserved(raw.Lookup(fieldReserved))
}

func TestAReservationGoesWithTheWordAndIsRemovedWhenItsWaiterIsServed(t *testing.T) {
	testserver.Need(t, "!router")
	f := newMongo(t)
	on, m := f.tree(f.storage()), f.tapped()
	held, _, served := f.aWaiter(m, on)
	assert.Equal(t, 2, strings.Count(f.took(), "findAndModify"), "it withdrew its lock, and wrote word and reservation at once")
	_, err := on.Lock(f.ctx(), shared("/a/c"))
	var c *ConflictError
	require.ErrorAs(t, err, &c)
	assert.Equal(t, []Request{{Path: "/a", Mode: Exclusive, Depth: Infinity}}, c.Waiting)
	require.NoError(t, on.Release(f.ctx(), held.Token))
	l := <-served
	assert.Eventually(t, func() bool { return len(f.reserved()) == 0 }, pace.Of(10*time.Second), 5*time.Millisecond)
	require.NoError(t, on.Release(f.ctx(), l.Token))
	_, err = on.Lock(f.ctx(), shared("/a/c"))
	assert.NoError(t, err)
}

func TestAReservationIsRemovedWhenItsWaiterGivesUp(t *testing.T) {
	f := newMongo(t)
	on := f.tree(f.storage())
	_, giveUp, _ := f.aWaiter(f.storage(), on)
	got := make(chan error, 1)
	go func() {
		_, err := on.LockWait(f.ctx(), shared("/a/c"))
		got <- err
	}()
	time.Sleep(100 * time.Millisecond) // real: it waits
	giveUp()
	require.NoError(t, <-got, "it was kept out by nothing else")
	assert.Empty(t, f.reserved())
}

// What is in the tree's document was left by processes that died, by a primary whose clock was an
// hour ahead, or by something else.
func TestAReservationCountsUntilItsEndAndNoEndIsFarAway(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	e := tree.store.(*mongoTree)
	_, err := e.leaveWord(f.ctx(), nil)
	require.NoError(t, err)
	now := f.serverTime()
	entry := func(path string, until any) bson.D {
		return bson.D{{Key: fieldPath, Value: path}, {Key: fieldDepth, Value: "infinity"}, {Key: fieldUntil, Value: until}}
	}
	for id, v := range map[string]any{
		"over": entry("/a", now.Add(-time.Second)), "ahead": entry("/a", now.Add(time.Hour)),
		"text": "no document", "undated": entry("/a", "soon"), "unclean": entry("a//b", now.Add(reservedFor/2)),
		"elsewhere": entry("/b", now.Add(reservedFor/2)),
	} {
		_, err := f.coll.UpdateByID(f.ctx(), "files", bson.D{{Key: "$set", Value: bson.D{{Key: reservedBy(id), Value: v}}}})
		require.NoError(t, err)
	}
	first, err := tree.Lock(f.ctx(), shared("/a"))
	require.NoError(t, err)
	_, err = tree.Lock(f.ctx(), shared("/b/c"))
	require.ErrorIs(t, err, ErrConflict, "that one stands")
	l, err := tree.Lock(f.ctx(), exclusively("/b/c"))
	require.NoError(t, err, "exclusive requests have no order among each other")
	require.NoError(t, tree.Release(f.ctx(), l.Token))

	_, giveUp, _ := f.aWaiter(f.storage(), tree) // beside /a
	var ids []string
	for _, v := range f.reserved() {
		ids = append(ids, v.ID)
	}
	assert.Len(t, ids, 2, "of those that are over none is left: %v", ids)
	assert.Contains(t, ids, "elsewhere")
	giveUp()
	require.NoError(t, tree.Release(f.ctx(), first.Token))
}

// A token comes from a client, which may send any text. The document with the word has the tree's name for its ID.
func TestTheNameOfATreeIsNoTokenOfIt(t *testing.T) {
	f := newMongo(t)
	tree := f.tree(f.storage())
	_, err := tree.store.(*mongoTree).leaveWord(f.ctx(), &reservation{ID: "JN4", Path: "/a", Depth: Infinity, Until: f.serverTime().Add(reservedFor)})
	require.NoError(t, err)
	assert.ErrorIs(t, tree.Release(f.ctx(), "files"), ErrUnknownToken)
	_, err = tree.Refresh(f.ctx(), "files", time.Hour)
	assert.ErrorIs(t, err, ErrUnknownToken)
	assert.Len(t, f.reserved(), 1, "the word of waiters is gone")
}
