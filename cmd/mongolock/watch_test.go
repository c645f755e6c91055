//go:build linux

package main

import (
	"context"
	"iter"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func (p *program) owner(name string) *mongolock.Client {
	p.t.Helper()
	client, err := mongolock.New(p.database().Collection("locks"), mongolock.WithOwner(name))
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestWatchShowsWhatIsGrantedAndFreed(t *testing.T) {
	p := newProgram(t)
	w := p.start("watch", "--every", "50ms")
	lease, err := p.owner("one").Acquire(t.Context(), "nightly")
	require.NoError(t, err)
	w.says("\tgranted\tnightly\tone\t")
	require.NoError(t, lease.Release())
	w.says("\tfreed\tnightly\tone\t")
	w.signal(syscall.SIGINT)
	assert.Equal(t, 0, w.code())
}

// An early store's clock is an hour ahead.
type early struct{ store.Store }

func (e early) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		for s, err := range e.Store.List(ctx, prefix) {
			s.Now = s.Now.Add(time.Hour)
			for i := range s.Holders {
				s.Holders[i].Since = s.Holders[i].Since.Add(time.Hour)
				s.Holders[i].ExpireAt = s.Holders[i].ExpireAt.Add(time.Hour)
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// A key that has vanished shows no time.
func TestHowLongAVanishedKeyWasHeldIsByTheServersClock(t *testing.T) {
	t.Parallel()
	client, err := mongolock.NewWithStore(early{memstore.New()})
	require.NoError(t, err)
	defer client.Close()
	lease, err := client.Acquire(t.Context(), "k")
	require.NoError(t, err)
	var c watchCmd
	before, err := c.look(t.Context(), client)
	require.NoError(t, err)
	require.Len(t, before.keys, 1)
	require.NoError(t, lease.Release())
	now, err := c.look(t.Context(), client)
	require.NoError(t, err)
	require.Empty(t, now.keys)
	changes := now.since(before)
	require.Len(t, changes, 1)
	assert.WithinDuration(t, time.Now().Add(time.Hour), changes[0].At, 10*time.Minute)
}
