package mongostore_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
)

const shardTTL = 10 * time.Second

var oneWay, theOther = []string{"k", "near"}, []string{"near", "k"}

// A shardedWorld is two shards behind routers: keys that begin with "near" are on the first, and
// others on the second.
type shardedWorld struct {
	*docset.Set
	t *testing.T
}

// farApart runs a test with shards whose clocks are an hour apart, both ways.
func farApart(t *testing.T, test func(w shardedWorld)) {
	for _, ahead := range [][]time.Duration{{time.Hour, 0}, {0, time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			place := func(id string) int {
				if strings.HasPrefix(id, "near") {
					return 0
				}
				return 1
			}
			test(shardedWorld{docset.NewSharded(place, ahead...), t})
		})
	}
}

// process is a client of its own, and what cuts it off for good.
func (w shardedWorld) process(opts ...mongolock.ClientOption) (c *mongolock.Client, die func()) {
	w.t.Helper()
	var dead atomic.Bool
	client := w.Client(w.t, func(docdb.Command) (time.Duration, bool) {
		if dead.Load() {
			return 1000 * time.Hour, false
		}
		return 0, true
	})
	opts = append(opts, mongolock.TTL(shardTTL), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	c, err := mongolock.New(client.Database("d").Collection("locks"), opts...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c, func() { dead.Store(true) }
}

// holds is a process that holds keys on both shards. The clock of the first name's shard is the
// newest when several are claimed, and renewed, at once.
func (w shardedWorld) holds(names []string, opts ...mongolock.ClientOption) (all map[string]*mongolock.Lease, die func()) {
	w.t.Helper()
	c, die := w.process(opts...)
	all = make(map[string]*mongolock.Lease)
	acquire := func(name string) {
		lease, err := c.Acquire(w.t.Context(), name)
		require.NoError(w.t, err)
		all[name] = lease
	}
	acquire(names[1])
	acquire(names[0])
	several, err := mongolock.AcquireAll(w.t.Context(), c, []string{"k-1", "k-2", "near-1", "near-2"})
	require.NoError(w.t, err)
	for _, lease := range several {
		all[lease.Key()] = lease
	}
	acquire(names[0] + "-again")
	return all, die
}

// asksOnce is a process that asks once for a key, and is gone.
func (w shardedWorld) asksOnce(keys ...string) (taken string) {
	w.t.Helper()
	c, _ := w.process()
	for _, key := range keys {
		if lease, err := c.TryAcquire(w.t.Context(), key); err == nil {
			_ = lease.Release()
			taken = key
		}
	}
	return taken
}

// stolen is a key that a rival took from a process that was alive.
func (w shardedWorld) stolen(all map[string]*mongolock.Lease) string {
	w.t.Helper()
	for range 15 {
		for key, lease := range all {
			if taken := w.asksOnce(key); taken != "" {
				return taken
			}
			if err := lease.Err(); err != nil {
				return fmt.Sprintf("%s: %v", key, err)
			}
		}
		if taken := w.asksOnce("near", "k", "near-1", "k-1"); taken != "" { // each shard's clock is the newest once
			return taken
		}
		time.Sleep(7 * time.Second) // virtual
	}
	return ""
}

func TestNoLeaseIsTakenOverByTheClockOfAnotherShard(t *testing.T) {
	for _, names := range [][]string{oneWay, theOther} { // the first of a bulk is of either shard
		farApart(t, func(w shardedWorld) {
			all, _ := w.holds(names)
			assert.Empty(t, w.stolen(all))
		})
	}
}

// A process dies. Its keys go to a waiter that has seen it unchanged for its
// TTL, whatever the shards' clocks show, and not before its leases were over.
func TestAKeyOfADeadProcessIsTakenOverAcrossShards(t *testing.T) {
	farApart(t, func(w shardedWorld) {
		all, die := w.holds(oneWay)
		rival, _ := w.process()
		granted := make(chan time.Time, len(all))
		for _, key := range []string{"k", "near"} {
			go func() {
				lease, err := rival.Acquire(w.t.Context(), key)
				if assert.NoError(t, err) {
					assert.Error(t, all[key].Err(), "%s is taken, and its holder trusts it", key)
					assert.NoError(t, lease.Release())
				}
				granted <- time.Now()
			}()
		}
		time.Sleep(time.Minute) // virtual: six TTLs
		w.Take()
		time.Sleep(time.Minute) // virtual: six TTLs
		assert.Empty(t, granted, "taken from a live process")
		assert.Less(t, len(w.Take()), 120, "commands in a minute of two waiters, and of what keeps the keys")
		die()
		died := time.Now()
		for range 2 {
			assert.LessOrEqual(t, (<-granted).Sub(died), 3*shardTTL)
		}
	})
}

// A ticket is good until another process has had the key: no shard's clock says when it is over.
func TestATicketIsGoodUntilItsKeyWasTakenBehindARouter(t *testing.T) {
	for _, taken := range []bool{false, true} {
		for _, key := range []string{"k", "near"} {
			farApart(t, func(w shardedWorld) {
				c, _ := w.process()
				other, _ := w.process()
				lease, err := c.Acquire(w.t.Context(), key)
				require.NoError(w.t, err)
				ticket, err := lease.Detach(w.t.Context())
				require.NoError(w.t, err)
				rival, _ := w.process()
				_, err = rival.TryAcquire(w.t.Context(), key)
				require.ErrorIs(w.t, err, mongolock.ErrHeld)
				time.Sleep(shardTTL + time.Second) // virtual
				if taken {
					lease, err := rival.TryAcquire(w.t.Context(), key)
					require.NoError(w.t, err)
					defer func() { assert.NoError(w.t, lease.Release()) }()
				}
				resumed, err := other.Resume(w.t.Context(), ticket)
				if !taken {
					require.NoError(w.t, err)
					assert.NoError(w.t, resumed.Release())
					return
				}
				assert.ErrorIs(w.t, err, mongolock.ErrLost)
			})
		}
	}
}

// A process that asks twice, a TTL apart, has seen how long the dead one was silent. One that asks
// once has not, and no shard's clock tells it.
func TestADeadHoldersKeyIsTakenByAProcessThatAsksAgainAfterATTL(t *testing.T) {
	farApart(t, func(w shardedWorld) {
		all, die := w.holds(oneWay)
		time.Sleep(time.Minute) // virtual: six TTLs
		die()
		time.Sleep(10 * time.Minute) // virtual
		require.Error(w.t, all["k"].Err())
		require.Empty(w.t, w.asksOnce("k", "near"))
		rival, _ := w.process()
		for _, key := range []string{"k", "near"} {
			_, err := rival.TryAcquire(w.t.Context(), key)
			require.ErrorIs(w.t, err, mongolock.ErrHeld)
		}
		time.Sleep(shardTTL + time.Second) // virtual
		for _, key := range []string{"k", "near"} {
			lease, err := rival.TryAcquire(w.t.Context(), key)
			require.NoError(w.t, err)
			assert.NoError(w.t, lease.Release())
		}
	})
}

func TestAPlaceCountsWhereTheClockOfItsShardIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := shardedWorld{docset.NewSharded(func(id string) int { return len(id) % 2 }, 0, 59*time.Minute), t}
		holder, _ := w.process()
		lease, err := holder.Acquire(t.Context(), "k")
		require.NoError(t, err)
		waiter, die := w.process()
		go func() { _, _ = waiter.Acquire(t.Context(), "k") }()
		time.Sleep(2 * time.Second) // virtual: it waits
		die()
		require.NoError(t, lease.Release())
		assert.Equal(t, "near", w.asksOnce("near", "k"), "a process that asked once came before one that waits")
	})
}
