package memmongo_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"runtime"
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
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/store"
)

var crowdProcesses = flag.Int("crowd.processes", 3, "how many processes wait in the tests of a crowd, with 100 waiters each; docs/internals/figures.md has the figures of 100")

const (
	crowdWaiters = 100 // in each process
	crowdTrip    = time.Millisecond
)

// A crowd is many processes with 100 waiters each, ten for a key, which one more process holds. A
// client with a driver of its own stands for a process. All of it is in virtual time, where a
// command takes a millisecond and the server answers any number at once.
type crowd struct {
	t      *testing.T
	links  []*memmongo.Link
	all    []*mongolock.Client
	holder *mongolock.Client
	held   []*mongolock.Lease
	keys   []string

	sent   []atomic.Int64 // commands of each process; the last is the holder's
	claims atomic.Int64   // and of those how many would take a key
	served atomic.Int64
	ended  sync.WaitGroup
}

// inCrowd runs a test when all wait, and frees the keys afterwards.
func inCrowd(t *testing.T, test func(t *testing.T, c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := *crowdProcesses
		c := &crowd{t: t, sent: make([]atomic.Int64, n+1)}
		server := memmongo.New()
		defer c.close()
		for i := range n {
			c.all = append(c.all, c.process(server, i))
		}
		c.holder = c.process(server, n)
		for i := range n * crowdWaiters / 10 {
			key := fmt.Sprintf("key-%d", i)
			c.keys = append(c.keys, key)
			lease, err := c.holder.Acquire(t.Context(), key)
			require.NoError(t, err)
			c.held = append(c.held, lease)
		}
		test(t, c)
	})
}

func (c *crowd) process(server *memmongo.Server, i int) *mongolock.Client {
	link := server.Link()
	c.links = append(c.links, link)
	driver, err := mongo.Connect(options.Client().ApplyURI("mongodb://memory:27017/?directConnection=true").SetDialer(distant{link}).
		SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			c.sent[i].Add(1)
			if !e.Command.Lookup("update", "$set", "holders").IsZero() {
				c.claims.Add(1)
			}
		}}))
	require.NoError(c.t, err)
	client, err := mongolock.New(driver.Database("d").Collection("locks"), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = driver.Disconnect(context.Background()) })
	return client
}

// distant is a link on which what the client sends takes a millisecond.
type distant struct{ *memmongo.Link }

func (d distant) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Link.DialContext(ctx, network, address)
	return late{conn}, err
}

type late struct{ net.Conn }

func (l late) Write(b []byte) (int, error) {
	time.Sleep(crowdTrip) // virtual: on the way
	return l.Conn.Write(b)
}

func (c *crowd) close() {
	for _, client := range append(c.all, c.holder) {
		_ = client.Close()
	}
	for _, link := range c.links {
		c.t.Cleanup(link.Close)
	}
}

// wait has every process wait for its keys: each gives one back as soon as it has it.
func (c *crowd) wait() {
	for i, client := range c.all {
		for w := range crowdWaiters {
			key := c.keys[(i*crowdWaiters/10+w*7)%len(c.keys)]
			c.ended.Go(func() {
				lease, err := client.Acquire(context.Background(), key)
				if err == nil {
					err = lease.Release()
				}
				if err == nil {
					c.served.Add(1)
				} else if !errors.Is(err, mongolock.ErrClosed) {
					c.t.Errorf("%s: %v", key, err)
				}
			})
		}
	}
}

func (c *crowd) waiters() int64 { return int64(len(c.all) * crowdWaiters) }

// sentSoFar is what the waiting processes have sent.
func (c *crowd) sentSoFar() (sum int64) {
	for i := range c.all {
		sum += c.sent[i].Load()
	}
	return sum
}

// peak lets time pass and returns what was sent, and the most in one second.
func (c *crowd) peak(d time.Duration) (all, most int64) {
	before := c.sentSoFar()
	for at := before; d > 0; d -= time.Second {
		time.Sleep(time.Second) // virtual: a second to count
		now := c.sentSoFar()
		most, at = max(most, now-at), now
	}
	return c.sentSoFar() - before, most
}

// free gives the keys back and returns how long it took until every waiter had its turn, and
// what was sent for it.
func (c *crowd) free() (took time.Duration, sent int64) {
	before, began := c.sentSoFar(), time.Now()
	for _, lease := range c.held {
		c.ended.Go(func() {
			if err := lease.Release(); err != nil {
				c.t.Error(err)
			}
		})
	}
	c.ended.Wait()
	return time.Since(began), c.sentSoFar() - before
}

func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func TestACrowdOfWaitersCostsTheServerNextToNothingAndIsServed(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		n := float64(len(c.all))
		goroutines, memory := runtime.NumGoroutine(), heap()
		c.wait()
		coming, most := c.peak(30 * time.Second)
		t.Logf("%d waiters of %.0f processes for %d keys", c.waiters(), n, len(c.keys))
		t.Logf("until they wait: %.2f commands each, at most %d in a second", float64(coming)/float64(c.waiters()), most)
		t.Logf("a process, with its connections in the server: %.0f goroutines, %.0f kB", float64(runtime.NumGoroutine()-goroutines)/n, (heap()-memory)/n/1000)
		assert.Less(t, float64(coming)/float64(c.waiters()), 6.0, "commands of a waiter that comes")

		const long = 2 * time.Minute
		idle, most := c.peak(long)
		rate := float64(idle) / long.Seconds()
		t.Logf("while they wait: %.2f commands a second of all, %.4f of a waiter; at most %d in a second", rate, rate/float64(c.waiters()), most)
		assert.Less(t, rate/float64(c.waiters()), 0.05, "commands a second of a waiter that waits")

		took, sent := c.free()
		t.Logf("all served in %v, with %.1f commands each", took, float64(sent)/float64(c.waiters()))
		assert.Equal(t, c.waiters(), c.served.Load())
		assert.Less(t, took, time.Minute)
	})
}

func TestACrowdIsServedAfterARestartOfTheServer(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		c.wait()
		c.peak(30 * time.Second)
		for _, link := range c.links {
			link.Cut(errors.New("the server restarts"))
		}
		time.Sleep(5 * time.Second) // virtual: the cut
		for _, link := range c.links {
			link.Cut(nil)
		}
		again, most := c.peak(30 * time.Second)
		t.Logf("after a restart: %.2f commands of a waiter within 30 s, at most %d in a second", float64(again)/float64(c.waiters()), most)
		assert.Less(t, float64(again)/float64(c.waiters()), 6.0, "commands of a waiter")
		took, sent := c.free()
		t.Logf("all served in %v, with %.1f commands each", took, float64(sent)/float64(c.waiters()))
		assert.Equal(t, c.waiters(), c.served.Load())
		assert.Less(t, took, time.Minute)
	})
}

// More notices at once than their collection holds: readers lose their place in it.
func TestACrowdThatFallsBehindItsNoticesLooksAtItsKeysOnce(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		c.wait()
		c.peak(40 * time.Second) // past the moment when the holder's first grant would be over
		burst := make([]store.Notice, 2000)
		for i := range burst {
			burst[i] = store.Notice{Topic: store.TopicLocks, Key: fmt.Sprintf("another-%d", i), Kind: store.KindOffered, To: "elsewhere"}
		}
		before := c.claims.Load()
		require.NoError(t, c.holder.Feed().Notify(t.Context(), burst...))
		again, most := c.peak(10 * time.Second)
		t.Logf("after an overrun: %.1f commands of a process within 10 s, at most %d of all in a second", float64(again)/float64(len(c.all)), most)
		assert.Less(t, float64(again)/float64(len(c.all)), 60.0, "commands of a process")
		assert.Equal(t, before, c.claims.Load(), "they read their keys, and claim none that is held")
		took, sent := c.free()
		t.Logf("all served in %v, with %.1f commands each", took, float64(sent)/float64(c.waiters()))
		assert.Equal(t, c.waiters(), c.served.Load())
		assert.Less(t, took, time.Minute)
	})
}
