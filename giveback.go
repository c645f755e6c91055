package mongolock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
)

// most is how many keys a call asks for, or releases, at a time.
const most = 64

// sideBySide calls f with the numbers from 0 to n-1, in their order, some at a time. It begins no
// more calls once one has returned false.
func sideBySide(n int, f func(i int) bool) {
	if n == 1 { // a goroutine for it would take longer than all else that this process does
		f(0)
		return
	}
	var next atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	for range min(most, n) {
		wg.Go(func() {
			for !over.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if !f(i) {
					over.Store(true)
				}
			}
		})
	}
	wg.Wait()
}

// giveBackAll gives leases back, with several calls under way at once: one that hangs holds up no
// other. Failed releases are repeated in the background: within the time of Close, too, so each of
// many has less time than one.
func giveBackAll(leases []*holding) {
	bound := releaseBound
	if len(leases) > 1 {
		bound = releaseBound * 2 / 5
	}
	sideBySide(len(leases), func(i int) bool {
		_ = leases[i].giveBack(bound) // the lease keeps the error
		return true
	})
}

// These limit how many releases of a client are under way in the background.
const (
	lostMost   = 4  // of leases that have no holder any more
	repeatMost = 16 // of those that failed before
)

// A returner gives back, in the background, the leases of a client that have no holder any more:
// those that were lost, and those that came too late for their callers. It also repeats the
// releases that failed. Thousands may be lost at once, because a server is too slow: all their
// releases at a time would keep it from renewing the others.
type returner struct {
	client  *Client
	repeats chan struct{} // one for each repetition that is under way

	mu      sync.Mutex // protects what follows
	leases  []*holding
	busy    int  // number of goroutines
	failing bool // the last of them was not given back
}

func (h *holding) giveBackInBackground() {
	r := &h.client.returner
	r.mu.Lock()
	r.leases = append(r.leases, h)
	mine := r.busy < lostMost
	if mine {
		r.busy++
	}
	r.mu.Unlock()
	if mine {
		h.client.background.Run(r.unheld)
	}
}

// unheld gives back what has no holder. While that fails, leases that have run out meanwhile are left
// to themselves: a store that hangs takes a release's time for each.
func (r *returner) unheld() {
	for {
		h, failing := r.next()
		if h == nil {
			return
		}
		if failing && h.isGivenBack() {
			continue
		}
		_ = h.giveBack(releaseBound) // the lease keeps the error
		done, _ := h.outcome()
		r.mu.Lock()
		r.failing = !done
		r.mu.Unlock()
	}
}

// next returns the next lease to give back; nil: there is none, and the goroutine ends.
func (r *returner) next() (h *holding, failing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.leases) > 0 {
		h, r.leases = r.leases[0], r.leases[1:]
		return h, r.failing
	}
	r.leases = nil
	if r.busy--; r.busy == 0 {
		r.failing = false
	}
	return nil, false
}

// repeat makes further attempts at a release, until the lease is given back or has run out.
func (r *returner) repeat(h *holding) {
	for pause := backoff.New(50*time.Millisecond, 5*time.Second); r.client.background.Pause(pause.Next()) && !h.isGivenBack(); {
		r.repeats <- struct{}{}
		if !h.isGivenBack() { // it may have waited long for its turn
			_ = h.giveBack(releaseBound) // the lease keeps the error
		}
		<-r.repeats
	}
}

// isGivenBack reports whether the lease is settled. A lease that has run out is.
func (h *holding) isGivenBack() bool {
	c := h.client
	h.mu.Lock()
	done, ranOut := h.release.state == settled, c.clock.Now() >= h.term.Honoured()
	if ranOut && !done {
		h.release.settle(h.answered(nil))
	}
	h.mu.Unlock()
	if ranOut && !done {
		c.logger.Info("mongolock: could not give a lease back before it ran out", "key", h.ref.Key, "token", h.token)
		c.queues.forget(h)
		c.freed(h.ref.Key)
	}
	return done || ranOut
}
