package memmongo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// The longest time for which a key may idle while somebody alive waits, however many died before that one.
const (
	idleMost   = 1500 * time.Millisecond
	idlePolled = 3500 * time.Millisecond
)

// Processes are made of one store. kill lets one die: nothing that it sends arrives, and nothing
// reaches it.
type processes struct {
	start func(t *testing.T, opts ...mongolock.ClientOption) (c *mongolock.Client, kill func())
	sent  *atomic.Int64 // commands of all
}

var errDead = errors.New("the process is dead")

func inMemory() processes {
	mem, sent := memstore.New(), new(atomic.Int64)
	return processes{func(t *testing.T, opts ...mongolock.ClientOption) (*mongolock.Client, func()) {
		var dead atomic.Bool
		link := lab.New(mem)
		link.All(func(_ context.Context, call *lab.Call) error {
			sent.Add(1)
			time.Sleep(crowdTrip)
			if dead.Load() {
				return errors.Join(store.ErrNotApplied, errDead)
			}
			return call.Do()
		})
		c, err := mongolock.NewWithStore(link, append(opts, mongolock.WithLogger(slog.New(slog.DiscardHandler)))...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c, func() { dead.Store(true) }
	}, sent}
}

func onServer() processes {
	server, sent := memmongo.New(), new(atomic.Int64)
	count := &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { sent.Add(1) }}
	return processes{func(t *testing.T, opts ...mongolock.ClientOption) (*mongolock.Client, func()) {
		link := server.Link()
		driver, err := mongo.Connect(options.Client().ApplyURI("mongodb://memory:27017/?directConnection=true").SetDialer(distant{link}).SetMonitor(count))
		require.NoError(t, err)
		c, err := mongolock.New(driver.Database("d").Collection("locks"), append(opts, mongolock.WithLogger(slog.New(slog.DiscardHandler)))...)
		require.NoError(t, err)
		t.Cleanup(link.Close)
		t.Cleanup(func() { _ = driver.Disconnect(context.Background()) })
		t.Cleanup(func() { _ = c.Close() })
		return c, func() { link.Cut(errDead) }
	}, sent}
}

// onEachStore runs a test on both stores, where waiters hear notices and where they poll.
func onEachStore(t *testing.T, test func(t *testing.T, start func() processes, most time.Duration, opts []mongolock.ClientOption)) {
	for name, start := range map[string]func() processes{"memstore": inMemory, "docdb": onServer} {
		t.Run(name+"/notices", func(t *testing.T) { test(t, start, idleMost, nil) })
		t.Run(name+"/polled", func(t *testing.T) {
			test(t, start, idlePolled, []mongolock.ClientOption{mongolock.WithoutFeed()})
		})
	}
}

// The holder stays, or takes a place in line again, or its client closes once it has released the key.
func TestAnyNumberOfDeadPlacesIdleAKeyForOneGrace(t *testing.T) {
	onEachStore(t, func(t *testing.T, start func() processes, most time.Duration, opts []mongolock.ClientOption) {
		for _, how := range []string{"stays", "again", "closes"} {
			for _, dead := range []int{1, 3, 5, 10, 30} {
				t.Run(fmt.Sprint("the holder ", how, "/", dead), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						took, sent := idleBehind(t, start(), dead, how, opts)
						t.Logf("%d dead: idle for %v, %d commands", dead, took, sent)
						assert.LessOrEqual(t, took, most)
					})
				})
			}
		}
	})
}

// idleBehind returns for how long a key idles behind some dead places, and how many commands that takes.
func idleBehind(t *testing.T, all processes, dead int, how string, opts []mongolock.ClientOption) (time.Duration, int64) {
	holder, _ := all.start(t, opts...)
	lease, err := holder.Acquire(t.Context(), "k", mongolock.TTL(time.Hour))
	require.NoError(t, err)
	ctx, over := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	var kills []func()
	for range dead {
		c, kill := all.start(t, opts...)
		kills = append(kills, kill)
		waiting.Go(func() { _, _ = c.Acquire(ctx, "k") })
		time.Sleep(50 * time.Millisecond)
	}
	for _, kill := range kills {
		kill()
	}
	waiter, _ := all.start(t, opts...)
	granted := make(chan time.Time, 1)
	takes := func(c *mongolock.Client, then func()) {
		l, err := c.Acquire(context.Background(), "k")
		if assert.NoError(t, err) {
			then()
			assert.NoError(t, l.Release())
		}
	}
	waiting.Go(func() { takes(waiter, func() { granted <- time.Now() }) })
	time.Sleep(3 * time.Second)
	before, begin := all.sent.Load(), time.Now()
	require.NoError(t, lease.Release())
	switch how {
	case "again":
		waiting.Go(func() { takes(holder, func() {}) })
	case "closes":
		assert.NoError(t, holder.Close())
	}
	took, sent := (<-granted).Sub(begin), all.sent.Load()-before
	over()
	waiting.Wait()
	return took, sent
}

// Of three processes one is killed again and again. The key idles for no longer than a dead holder's TTL,
// or a grace.
func TestACrashLoopKeepsTheKeyInUse(t *testing.T) {
	onEachStore(t, func(t *testing.T, start func() processes, most time.Duration, opts []mongolock.ClientOption) {
		var whole int
		length, least := 15*time.Second, 0.85
		if most == idlePolled { // when they look is drawn by chance: of three minutes 0.84 to 0.94 was seen, of fifteen 0.87 to 0.91
			length, least = 3*time.Minute, 0.8
		}
		for _, c := range []struct {
			every time.Duration // 0: nobody is killed
			least float64       // of the grants without kills
		}{{0, 1}, {3 * time.Second, least}, {500 * time.Millisecond, 0.25}} {
			synctest.Test(t, func(t *testing.T) {
				grants, kills, idle := crashLoop(t, start(), c.every, length, opts)
				whole = max(whole, grants)
				share := float64(grants) / float64(whole)
				t.Logf("killed every %v, %d times: %d grants (%.2f), idle for %v at most", c.every, kills, grants, share, idle)
				assert.GreaterOrEqual(t, share, c.least, "every %v", c.every)
				assert.LessOrEqual(t, idle, most, "every %v", c.every)
			})
		}
	})
}

// crashLoop has two processes, and a third that is killed every so often, take a key in a loop for some time.
func crashLoop(t *testing.T, all processes, every, length time.Duration, opts []mongolock.ClientOption) (grants, kills int, idle time.Duration) {
	ctx, over := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var mu sync.Mutex
	last := time.Now()
	granted := func() {
		mu.Lock()
		defer mu.Unlock()
		grants, idle, last = grants+1, max(idle, time.Since(last)), time.Now()
	}
	loop := func(ctx context.Context) (kill func()) {
		c, kill := all.start(t, opts...)
		running.Go(func() {
			for ctx.Err() == nil {
				l, err := c.Acquire(ctx, "k", mongolock.TTL(700*time.Millisecond))
				if err != nil {
					continue // the process is dead, or the test is over
				}
				granted()
				time.Sleep(2 * time.Millisecond)
				_ = l.Release()
			}
		})
		return kill
	}
	loop(ctx)
	loop(ctx)
	end := time.Now().Add(length)
	for time.Now().Before(end) {
		life, die := context.WithCancel(ctx)
		kill := loop(life)
		if every == 0 {
			time.Sleep(time.Until(end))
			die()
			break
		}
		time.Sleep(every)
		kill()
		kills++
		die()
		time.Sleep(100 * time.Millisecond) // until it is up again
	}
	over()
	running.Wait()
	return grants, kills, idle
}
