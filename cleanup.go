package mongolock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// cleanUpsAtOnce is how many clean-ups a client has under way at a time.
const cleanUpsAtOnce = 16

// A cleaner undoes the claims of unknown outcome. It repeats each clean-up until the store says
// that the claim is settled, or until the grant that the claim may have got has run out. One
// goroutine does this for all claims. Meanwhile no more claims of the same key are sent. It is
// protected by Client.mu.
type cleaner struct {
	client   *Client
	claims   map[store.Ref]*openClaim
	running  bool           // whether the goroutine runs
	attempts sync.WaitGroup // which the goroutine waits for
	nudge    chan struct{}  // of capacity 1: look again at what is due
}

// An openClaim is a claim that may hold its key.
type openClaim struct {
	claim store.Ref
	from  *store.Ref       // the acquisition that a hand-over named; nil for other claims
	until monotonic.Moment // a grant of the claim has run out by then
	due   monotonic.Moment // when the next attempt is due
	pause *backoff.Backoff
	tried chan struct{} // closed when the attempt that is under way, or else the next one, is over
	busy  bool          // an attempt is under way

	// answered says that a clean-up found nothing, on a store whose writes have no transaction
	// numbers, where that proves nothing. The clean-up goes on, but other claims may be sent:
	// the store works.
	answered bool
}

// undo cleans up after a claim of unknown outcome, in the background.
func (c *Client) undo(claim store.Ref, from *store.Ref, until monotonic.Moment) {
	if knob.UnknownIsNotHeld {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &c.cleaner
	w.claims[claim] = &openClaim{
		claim: claim, from: from, until: until, due: c.clock.Now(), pause: backoff.New(10*time.Millisecond, 5*time.Second), tried: make(chan struct{}),
	}
	switch {
	case w.running:
		w.wake()
	case c.enterLocked():
		w.running = true
		go func() {
			defer c.background.Done()
			w.run()
		}()
	}
}

// wake makes the cleaner check again which attempts are due. Call it with Client.mu held.
func (w *cleaner) wake() {
	select {
	case w.nudge <- struct{}{}:
	default:
	}
}

// run cleans up until no claim is left, or the client is torn down: Close names the claims that
// are left.
func (w *cleaner) run() {
	defer w.attempts.Wait()
	for {
		next, more := w.begin()
		if !more {
			return
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-w.nudge:
		case <-w.client.background.Base().Done():
			timer.Stop()
			w.client.mu.Lock()
			w.running = false
			w.client.mu.Unlock()
			return
		}
		timer.Stop()
	}
}

// begin starts the attempts that are due, as far as there is room, and returns how long to wait
// before the next call. If more is false the goroutine ends.
func (w *cleaner) begin() (next time.Duration, more bool) {
	c := w.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(w.claims) == 0 {
		w.running = false
		return 0, false
	}
	room, waiting := cleanUpsAtOnce, make([]*openClaim, 0, len(w.claims))
	for _, u := range w.claims {
		if u.busy {
			room--
		} else {
			waiting = append(waiting, u)
		}
	}
	slices.SortFunc(waiting, func(a, b *openClaim) int { // in a fixed order, so that a simulation can be repeated
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.claim.Key, b.claim.Key), cmp.Compare(a.claim.ID, b.claim.ID))
	})
	now := c.clock.Now()
	for _, u := range waiting {
		if u.due > now {
			return u.due.Sub(now), true
		}
		if room == 0 {
			break
		}
		room--
		u.busy = true
		w.attempts.Go(func() { w.try(u) })
	}
	return time.Hour, true // an attempt that ends wakes it
}

// try makes one attempt.
func (w *cleaner) try(u *openClaim) {
	c := w.client
	ctx, cancel := c.within(context.Background(), min(maxCall, max(c.clock.Until(u.until), time.Second)))
	settled, err := c.store.Undo(ctx, u.claim, u.from)
	cancel()
	over := c.clock.Now() >= u.until
	if settled = settled || store.IsVerdict(err); !settled && over {
		c.logger.Info("mongolock: gave up cleaning up a claim, which has run out", "key", u.claim.Key, "error", err)
	}
	c.mu.Lock()
	first := err == nil && !u.answered
	u.answered = u.answered || err == nil
	if settled || over {
		delete(w.claims, u.claim)
	}
	u.due = c.clock.Now().Add(min(u.pause.Next(), max(c.clock.Until(u.until), time.Millisecond)))
	close(u.tried)
	u.tried, u.busy = make(chan struct{}), false
	w.wake()
	c.mu.Unlock()
	if settled || over || first {
		c.freed(u.claim.Key)
	}
}

// of returns the claims of the key that may hold it and have not been cleaned up. Call it with
// Client.mu held.
func (w *cleaner) of(key string) (all []*openClaim) {
	if knob.ReuseID || knob.OneID {
		return nil // so that the next claim can have the same ID
	}
	for _, u := range w.claims {
		if u.claim.Key == key && !u.answered {
			all = append(all, u)
		}
	}
	return all
}

var errUnsettled = errors.New("an earlier claim of this client is not settled yet")

// settleFirst cleans up this client's earlier claims that may hold the key before another one
// is sent: at once, with one attempt each, for no longer than ctx lasts. An attempt that was
// under way before does not count if it fails: another one follows it. An error says that such a
// claim may still hold the key.
func (c *Client) settleFirst(ctx context.Context, key string) error {
	again, err := c.tryToSettle(ctx, key)
	if again {
		_, err = c.tryToSettle(ctx, key)
	}
	return err
}

// tryToSettle waits for one attempt of each clean-up of the key. If it fails, again says that an
// attempt had begun before the call.
func (c *Client) tryToSettle(ctx context.Context, key string) (again bool, err error) {
	c.mu.Lock()
	open := c.cleaner.of(key)
	tried := make([]<-chan struct{}, len(open))
	for i, u := range open {
		again = again || u.busy
		u.due, tried[i] = min(u.due, c.clock.Now()), u.tried
		c.cleaner.wake()
	}
	c.mu.Unlock()
	for _, over := range tried {
		select {
		case <-over:
		case <-ctx.Done():
			return false, &fault{op: "acquire", key: key, err: fmt.Errorf("%w: %w", errUnsettled, contextError(ctx)), unknown: true}
		case <-c.draining:
			return false, &fault{op: "acquire", key: key, err: ErrClosed}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range open { // a claim that failed meanwhile is the next caller's business
		if c.cleaner.claims[u.claim] == u && !u.answered {
			return again, &fault{op: "acquire", key: key, err: errUnsettled, unknown: true}
		}
	}
	return false, nil
}

// givers is how many parts of the abandoned leases are given back at a time.
const givers = 4

// A returner gives back the leases of a client that have no holder any more: those that were
// lost, and those that came too late for their callers. Thousands may be lost at once, because
// a server is too slow: one command for each would keep the server from renewing the others. It
// is protected by Client.mu.
type returner struct {
	leases []*Lease
	busy   int // number of goroutines
}

// giveBackInBackground gives the lease back alone if few others are being given back, and
// otherwise together with them.
func (l *Lease) giveBackInBackground() {
	c := l.client
	c.mu.Lock()
	r := &c.returner
	r.leases = append(r.leases, l)
	switch {
	case r.busy >= givers:
		c.mu.Unlock()
	case c.enterLocked():
		r.busy++
		c.mu.Unlock()
		go func() {
			defer c.background.Done()
			c.giveBackUnheld()
		}()
	default: // the client is closing, and waits for the goroutine that runs this
		r.busy++
		c.mu.Unlock()
		c.giveBackUnheld()
	}
}

func (c *Client) giveBackUnheld() {
	r := &c.returner
	for {
		c.mu.Lock()
		n := min(len(r.leases), batchSize)
		if n == 0 {
			r.leases = nil
			r.busy--
			c.mu.Unlock()
			return
		}
		part := r.leases[:n:n]
		r.leases = r.leases[n:]
		c.mu.Unlock()
		c.giveWay()
		c.giveBackIn(c.bulks(part), bulkBound)
	}
}

// A sweeper removes what dead sessions left, one sweep at a time. It is protected by Client.mu.
type sweeper struct{ busy, again bool }

// sweep removes what dead sessions left, of this client and of others, as far as the store has
// met them. If a sweep is under way, another one follows it.
func (c *Client) sweep() {
	c.mu.Lock()
	first := !c.sweeper.busy
	c.sweeper = sweeper{busy: true, again: true}
	c.mu.Unlock()
	for first && c.sweepAgain() {
		c.giveWay()
		ctx, cancel := c.within(context.Background(), maxCall)
		freed, err := c.sessions.Sweep(ctx)
		cancel()
		if len(freed) > 0 {
			c.freed(freed...)
		}
		if err != nil && c.background.Base().Err() == nil {
			c.logger.Info("mongolock: what dead sessions left is not removed yet", "error", err)
		}
	}
}

func (c *Client) sweepAgain() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	again := c.sweeper.again
	c.sweeper = sweeper{busy: again}
	return again
}
