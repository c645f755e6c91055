package mongolock

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// While claims fail, the heads of all keys together send one in this time. Once one is answered
// the others follow, each after that one.
const (
	probePause   = 500 * time.Millisecond
	probeIdle    = 5 * time.Second // after which another head asks, because the one whose turn it is cannot
	recoverPause = time.Millisecond
)

// nextProbe has the next of the heads ask whose claims have failed, in the order of their keys.
func (c *Client) nextProbe() {
	first, next := "", ""
	for key, q := range c.queues.All {
		if q.head == nil || !q.view.Failing() {
			continue
		}
		if first == "" || key < first {
			first = key
		}
		if key > c.probed && (next == "" || key < next) {
			next = key
		}
	}
	if c.probed = cmp.Or(next, first); c.probed != "" {
		c.queues.All[c.probed].head.poke()
	}
}

// recovered lets the heads ask whose claims have failed, because the store answers again.
func (c *Client) recovered(now monotonic.Moment) {
	if c.probeAt == 0 {
		return
	}
	c.probeAt, c.probed = 0, ""
	for _, key := range slices.Sorted(maps.Keys(c.queues.All)) {
		if q := c.queues.All[key]; q.head != nil && q.view.Failing() && !q.head.asking {
			q.view.Recovered(now)
			q.head.poke()
			now = now.Add(recoverPause)
		}
	}
}

// mayProbe returns when the head of a key may ask whose last claim failed.
func (c *Client) mayProbe(key string, now monotonic.Moment) (at monotonic.Moment) {
	if at = c.probeAt; c.probed != key {
		at = at.Add(probeIdle)
	}
	if at <= now {
		c.probed = key
	}
	return at
}
