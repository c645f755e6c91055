package mongolock

import "errors"

// Yielding makes those who wait for the key in other processes tell its holder at once, which learns
// it by Lease.Wanted. It is for long work that can stop between two pieces. While this client hears
// no wake-ups (WithoutFeed, a store without a feed) the holder learns of them by a renewal.
// Yielding cannot be combined with Shared or OneOf. A lease that was resumed does not yield.
func Yielding() AcquireOption {
	return acquireOption(func(t *terms) error { t.yields = true; return nil })
}

func (t *terms) checkYielding() error {
	if t.yields && t.shares() {
		return errors.New("mongolock: Yielding with Shared or OneOf: only who has the key alone can make room")
	}
	return nil
}

// Wanted returns a channel that is closed once another caller waits for the key, in this process
// or elsewhere. It stays closed, even if the waiter gives up; after the lease's end it says nothing.
// Another process that waits tells the holder at once if the lease was acquired with Yielding.
// Otherwise a renewal shows that it waits, within a third of the TTL: not on MongoDB one that
// is sent together with others. A refused TryAcquire does not wait.
func (l *Lease) Wanted() <-chan struct{} {
	h, qs := l.holding, &l.holding.client.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wanted == nil {
		h.wanted = make(chan struct{})
		if h.awaited || h.queue.head != nil {
			close(h.wanted)
		}
	}
	return h.wanted
}

// heardWaiter records that another process waits.
func (h *holding) heardWaiter() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.awaited = true
	h.tellWanted()
}

// tellWanted closes the channel of Wanted.
func (h *holding) tellWanted() {
	if h.wanted == nil {
		return
	}
	select {
	case <-h.wanted:
	default:
		close(h.wanted)
	}
}
