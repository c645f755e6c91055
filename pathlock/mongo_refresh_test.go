package pathlock

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// A heldUp command, the first findAndModify of a client, waits before it is sent, and its answer before it is read.
type heldUp struct{ sending, send, answered, read chan struct{} }

func (h heldUp) on(o *options.ClientOptions) {
	var first, firstAnswer sync.Once
	o.SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "findAndModify" {
				first.Do(func() { close(h.sending); <-h.send })
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if e.CommandName == "findAndModify" {
				firstAnswer.Do(func() { close(h.answered); <-h.read })
			}
		},
	})
}

// aRefreshOfARevivedLock has one refresh applied after the end of its lock, whose record is
// still there, and another granted before the first is answered.
func aRefreshOfARevivedLock(t *testing.T) (*mongoFixture, *Tree, Lock) {
	t.Helper()
	f := newMongo(t)
	tree := f.tree(f.storage())
	l, err := tree.Lock(f.ctx(), Request{Path: "/a", Timeouts: []time.Duration{time.Second}})
	require.NoError(t, err)

	h := heldUp{make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})}
	slow := f.tree(f.storage(h.on))
	failed := make(chan error, 1)
	go func() {
		_, err := slow.Refresh(context.Background(), l.Token, 8*time.Second)
		failed <- err
	}()
	<-h.sending
	for !f.serverTime().After(l.ExpireAt) {
		time.Sleep(20 * time.Millisecond) // real: between two looks
	}
	close(h.send)
	<-h.answered
	_, err = tree.Refresh(f.ctx(), l.Token, 9*time.Second)
	require.NoError(t, err, "by another hand: the lock is there, and nobody was granted its path")
	close(h.read)
	require.ErrorIs(t, <-failed, ErrUnknownToken, "the first: it came too late")
	require.NoError(t, slow.Close()) // which waits for what it does in the background
	return f, tree, l
}

// Two callers have the token of a lock. The refresh of one came too late, and is undone; that
// of the other was granted after it.
func TestTheUndoOfALateRefreshLeavesALockThatWasRefreshedSince(t *testing.T) {
	testserver.Need(t, "!router")
	f, tree, l := aRefreshOfARevivedLock(t)
	_, err := tree.Lock(f.ctx(), exclusively("/a"))
	require.ErrorIs(t, err, ErrConflict, "the other trusts its lock")
	require.NoError(t, tree.Confirm(f.ctx(), []string{l.Token}, Modify("/a")))
	assert.NoError(t, tree.Release(f.ctx(), l.Token))
}
