package memmongo_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
)

// herd lets n processes take one key in a loop, in virtual time, where a command takes a
// millisecond on the way. It returns the grants of some time, the commands of all processes for
// each, and Jain's index.
func herd(t *testing.T, n int, opts ...mongolock.AcquireOption) (grants, commands, even float64) {
	grants, commands, even, _ = herdOn(t, memmongo.Work{}, 2*time.Second, n, opts...)
	return grants, commands, even
}

// herdOn is herd for some time, on a server that works like that. It also returns how many times the median wait the
// longest is.
func herdOn(t *testing.T, works memmongo.Work, d time.Duration, n int, opts ...mongolock.AcquireOption) (grants, commands, even, longest float64) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, sent: make([]atomic.Int64, n)}
		server := memmongo.New()
		server.Works(works)
		ctx, stop := context.WithCancel(t.Context())
		each := make([]atomic.Int64, n)
		var all sync.WaitGroup
		var mu sync.Mutex // protects waits
		start := time.Now()
		var waits []time.Duration
		var clients []*mongolock.Client
		for i := range n {
			client := c.process(server, i)
			clients = append(clients, client)
			all.Go(func() {
				for {
					began := time.Now()
					lease, err := client.Acquire(ctx, "key", opts...)
					if ctx.Err() != nil {
						return
					}
					if !assert.NoError(t, err) {
						return
					}
					time.Sleep(5 * time.Millisecond) // virtual: work
					if waited := time.Since(began); began.Sub(start) > time.Second {
						mu.Lock()
						waits = append(waits, waited)
						mu.Unlock()
					}
					assert.NoError(t, lease.Release())
					each[i].Add(1)
				}
			})
		}
		time.Sleep(time.Second) // virtual: they know of each other
		var before, sent int64
		had := make([]int64, n)
		for i := range n {
			before, had[i] = before+c.sent[i].Load(), each[i].Load()
		}
		time.Sleep(d)
		var squares float64
		for i := range n {
			sent += c.sent[i].Load()
			mine := float64(each[i].Load() - had[i])
			grants, squares = grants+mine, squares+mine*mine
		}
		mu.Lock()
		slices.Sort(waits)
		t.Logf("of %d processes the median wait is %v, the longest %v", n, waits[len(waits)/2], waits[len(waits)-1])
		longest = float64(waits[len(waits)-1]) / float64(waits[len(waits)/2])
		mu.Unlock()
		commands, even = float64(sent-before)/grants, grants*grants/(float64(n)*squares)
		stop()
		all.Wait()
		for _, client := range clients {
			require.NoError(t, client.Close())
		}
		for _, link := range c.links {
			t.Cleanup(link.Close)
		}
	})
	return grants, commands, even, longest
}

// The crowd of processes sends for each grant what one waiter costs, and all have their turns.
func TestACrowdOnOneKeySendsSevenCommandsAGrant(t *testing.T) {
	two, _, _ := herd(t, 2)
	for _, n := range []int{2, 8, 32} {
		grants, commands, even := herd(t, n)
		t.Logf("%d processes: %.0f grants in two seconds, %.2f commands a grant, Jain's index %.4f", n, grants, commands, even)
		assert.LessOrEqual(t, commands, 7.0, "of %d processes", n)
		assert.GreaterOrEqual(t, grants, 0.9*two, "of %d processes", n)
		assert.GreaterOrEqual(t, even, 0.98, "of %d processes", n)
	}
}

// Permits cost a crowd what a key costs that one has alone.
func TestACrowdOnPermitsSendsSevenCommandsAGrant(t *testing.T) {
	for name, opts := range map[string][]mongolock.AcquireOption{
		"permits": {mongolock.OneOf(3)}, "weights": {mongolock.OneOf(6), mongolock.Weight(2)},
	} {
		for _, n := range []int{2, 8, 32} {
			grants, commands, even := herd(t, n, opts...)
			t.Logf("%s, %d processes: %.0f grants in two seconds, %.2f commands a grant, Jain's index %.4f", name, n, grants, commands, even)
			assert.LessOrEqual(t, commands, 7.0, "%s of %d processes", name, n)
			assert.GreaterOrEqual(t, even, 0.98, "%s of %d processes", name, n)
		}
	}
}

// More processes than a line has places take turns, and those outside ask at little cost.
func TestMoreProcessesThanALineHasPlacesTakeTurns(t *testing.T) {
	grants, commands, even, longest := herdOn(t, memmongo.Work{}, 12*time.Second, 100)
	t.Logf("%.0f grants in twelve seconds, %.2f commands a grant, Jain's index %.4f", grants, commands, even)
	assert.LessOrEqual(t, commands, 7.0)
	assert.GreaterOrEqual(t, even, 0.98)
	assert.LessOrEqual(t, longest, 4.0, "median waits")
}
