package mongolock

import (
	"time"

	"github.com/mongolock/mongolock/internal/seam"
)

func init() {
	seam.Look = func(client any, key string) seam.Waiting {
		c := client.(*Client)
		c.mu.Lock()
		defer c.mu.Unlock()
		w := seam.Waiting{
			Unsettled: len(c.unknown), Waiters: c.waiting,
			Listening: c.watch.feed.Live(), Announces: c.feed != nil, FeedOpen: c.watch.feed.Open(),
		}
		if q := c.queues[key]; q != nil {
			w.Woken, w.Seen = q.wakeUp != noWakeUp, q.plan.seen != nil
			if h := q.head; h != nil {
				w.Refused, w.Asking = h.refused, h.asking
			}
		}
		return w
	}
	seam.FeedLinger = func(client any, d time.Duration) { client.(*Client).watch.feed.Linger = d }
	seam.EndLinger = func(client any) {
		c := client.(*Client)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.watch.feed.Linger = 0 // read by Leave alone, which is called with c.mu held
		c.watch.feed.Join()
		c.watch.feed.Leave()
	}
	seam.Freed = func(client any, key string) { client.(*Client).freed(key) }
	seam.Undo = func(lease any, within time.Duration) {
		l := lease.(*Lease)
		l.client.undo(l.ref(), nil, l.client.clock.Now().Add(within))
	}
	seam.Honoured = func(lease any) time.Time {
		l := lease.(*Lease)
		return l.client.clock.Time(l.trustedUntil().Add(l.margin))
	}
	seam.Abandon = func(lease any) {
		l := lease.(*Lease)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.release.state = settled
	}
}
