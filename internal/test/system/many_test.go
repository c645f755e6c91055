package system

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// acquireMany takes n keys, some at a time.
func (f *fixture) acquireMany(c *mongolock.Client, n int, opts ...mongolock.AcquireOption) []*mongolock.Lease {
	f.t.Helper()
	leases := make([]*mongolock.Lease, n)
	var wg sync.WaitGroup
	for part := range 16 {
		wg.Go(func() {
			for i := part; i < n; i += 16 {
				l, err := c.Acquire(f.t.Context(), fmt.Sprint("key-", i), opts...)
				assert.NoError(f.t, err)
				leases[i] = l
			}
		})
	}
	wg.Wait()
	require.False(f.t, f.t.Failed())
	return leases
}

func TestCloseFreesHundredsOfKeysOverASlowLink(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, proxy := f.behind(withRetries, mongolock.TTL(2*time.Minute), mongolock.WithMargin(100*time.Millisecond))
	f.acquireMany(c, 300)
	released := f.on(proxy, faultproxy.Command("findAndModify"), faultproxy.DelayReply(20*time.Millisecond))
	deleted := f.on(proxy, faultproxy.Command("delete"), faultproxy.DelayReply(20*time.Millisecond))
	start := time.Now()
	require.NoError(t, c.Close())
	f.within(5*time.Second, time.Since(start), "Close of many leases")
	assert.Equal(t, 300, released.Hits())
	assert.Zero(t, deleted.Hits())
	f.mustHoldNothing()
}

// Alone: 64 commands at a time are all that a server on a small machine can do.
func TestAThousandFreeKeysAreAcquiredTogether(t *testing.T) {
	f := newFixture(t)
	c := f.client(mongolock.TTL(2 * time.Minute))
	var keys []string
	for i := range 1000 {
		keys = append(keys, fmt.Sprint("key-", i))
	}
	all, err := mongolock.AcquireAll(f.ctx(), c, keys)
	require.NoError(t, err)
	assert.NoError(t, all.Err())
	if err := all.Release(); err != nil { // a busy machine: the rest is released in the background
		t.Logf("not all within the bound of a release: %.200v", err)
	}
	require.Eventually(t, func() bool {
		left, err := f.coll.CountDocuments(f.ctx(), bson.D{})
		return err == nil && left == 0
	}, time.Minute, 100*time.Millisecond, "keys are taken yet")
}

func TestAReleaseOfManyThatMeetsAFaultLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Action{
		"command dropped":    faultproxy.DropCommand(),
		"reply dropped":      faultproxy.DropReply(),
		"reply never comes":  faultproxy.SwallowReply(),
		"not primary":        faultproxy.NotPrimary(),
		"interrupted":        faultproxy.NotPrimaryReply(),
		"left in a socket":   faultproxy.Orphan(),
		"a refusal":          faultproxy.Fail(13),
		"applied late":       faultproxy.DelayCommand(1500 * time.Millisecond),
		"write concern lost": faultproxy.WriteConcernError(faultproxy.CodeShutdownInProgress),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			c, proxy := f.behind(noRetries, mongolock.TTL(30*time.Second), mongolock.WithMargin(100*time.Millisecond))
			f.acquireMany(c, 40)
			waiter := f.inBackground(f.ctx(), f.client(), "key-7")
			f.awaited("key-7")
			rule := f.on(proxy, faultproxy.Command("findAndModify").Next(1), fault)
			assert.NoError(t, c.Close())
			assert.Equal(t, 1, rule.Hits())
			closed := time.Now()
			got := f.granted(waiter)
			f.within(2*time.Second, got.when.Sub(closed), "from Close to the grant of a waiter")
			rule.Release()
			f.mustHold(got.lease)
			f.release(got.lease)
		})
	}
}
