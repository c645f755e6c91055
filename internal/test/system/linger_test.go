package system

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// lingers has a client keep a key, and returns the lease that it released.
func (f *fixture) lingers(c *mongolock.Client, key string, d time.Duration) (l *mongolock.Lease) {
	f.t.Helper()
	f.until(time.Now().Add(20*time.Second), "a key that lingers", func() bool { // once the feed is open
		l = f.acquire(c, key, mongolock.Linger(d))
		f.release(l)
		return c.Stats().Idle == 1
	})
	return l
}

// commands are those that were sent since the last call, but for reads of the feed.
func commands(tap *testserver.Tap) int {
	return len(slices.DeleteFunc(tap.TakeNames(), func(name string) bool { return name == "getMore" }))
}

func TestALingeringKeyCostsNoCommandsAndARivalOneHandOver(t *testing.T) {
	f := newFeedFixture(t)
	tap := &testserver.Tap{}
	c, rival := f.warm(f.clientOn(f.reached(tap.On))), f.client()
	last := f.lingers(c, "k", time.Minute)
	f.until(time.Now().Add(20*time.Second), "a base of tokens that was not used", func() bool {
		commands(tap)
		last = f.acquire(c, "k", mongolock.Linger(time.Minute))
		f.release(last)
		return commands(tap) > 0 // 127 local grants are over
	})
	commands(tap)
	began := time.Now()
	for range 100 {
		l := f.acquire(c, "k", mongolock.Linger(time.Minute))
		assert.Greater(t, l.Token(), last.Token())
		f.release(l)
		last = l
	}
	t.Logf("a local pair takes %v", time.Since(began)/100)
	assert.Zero(t, commands(tap), "commands of 100 pairs")
	assert.Equal(t, []string{last.ID()}, f.holders("k"), "the holder is the same")

	began = time.Now()
	l := f.acquire(rival, "k")
	t.Logf("the rival waited for %v", time.Since(began))
	assert.Less(t, time.Since(began), feedSoon())
	assert.Greater(t, l.Token(), last.Token())
	assert.Zero(t, c.Stats().Idle)
	assert.ErrorIs(t, last.Err(), mongolock.ErrReleased)
	f.release(l)
}

// Two processes that linger both get the key, in turns, however busy each is.
func TestTwoClientsThatLingerTakeTurns(t *testing.T) {
	f := newFeedFixture(t)
	clients := []*mongolock.Client{f.client(), f.client()}
	f.lingers(clients[0], "k", time.Minute)
	over := time.Now().Add(2 * time.Second)
	grants := make(chan int64, 1<<20)
	done := make(chan int, len(clients))
	for _, c := range clients {
		go func() {
			n := 0
			for ; time.Now().Before(over); n++ {
				l, err := c.Acquire(f.ctx(), "k", mongolock.Linger(time.Minute))
				if !assert.NoError(t, err) {
					break
				}
				grants <- l.Token() // while the key is held
				assert.NoError(t, l.Release())
			}
			done <- n
		}()
	}
	counts := []int{<-done, <-done}
	close(grants)
	t.Log("grants: ", counts)
	for _, n := range counts {
		assert.Greater(t, n, 2)
	}
	var tokens []int64
	for token := range grants {
		tokens = append(tokens, token)
	}
	assert.True(t, slices.IsSorted(tokens), "tokens rise from grant to grant")
	require.Len(t, slices.Compact(tokens), counts[0]+counts[1], "and none comes twice")
}
