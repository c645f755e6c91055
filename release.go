package mongolock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/term"
	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// A releaseState says how far a release has come.
type releaseState int

const (
	kept      releaseState = iota // no attempt was made
	releasing                     // the first attempt is under way
	unsettled                     // an attempt failed: the client repeats it in the background
	repeating                     // another attempt is under way, by the background or by the caller
	settled                       // the store has nothing of the lease, and never will have
)

// A release tracks how one lease is given back:
//
//	kept ──▶ releasing ──▶ settled ◀── repeating
//	              │                      ▲ │
//	              └──▶ unsettled ────────┘ │
//	                       ▲───────────────┘
//
// Any state may become settled. A release is protected by the holding's mu.
type release struct {
	state   releaseState
	inDoubt bool          // an attempt may have been applied although its reply was lost
	attempt chan struct{} // closed when the attempt under way is over; made by the first caller that waits for it
	err     error         // the last attempt's; once settled, what Release returns
	loss    *loss         // nil for most
}

// A loss is the end of a lease that its holder did not bring about.
type loss struct {
	notBefore monotonic.Moment // the holder is given until then to stop
	timer     *time.Timer      // gives the lease back
}

// settle ends the release. err is what Release returns from now on.
func (r *release) settle(err error) {
	r.state, r.err = settled, err
	if r.loss != nil && r.loss.timer != nil {
		r.loss.timer.Stop()
	}
	r.attemptIsOver()
}

func (r *release) attemptIsOver() {
	if r.attempt != nil {
		close(r.attempt)
		r.attempt = nil
	}
}

// giveBack makes one attempt to remove the lease from the store, which may take bound, or waits for
// the attempt under way.
func (h *holding) giveBack(bound time.Duration) error {
	other, over := h.beginRelease()
	if other != nil {
		<-other
	}
	if other != nil || over {
		_, err := h.outcome()
		return err
	}

	values, end := h.client.observe(h.values, OpRelease, h.ref.Key, h.terms)
	done, err := h.attempt(values, bound)
	end(Outcome{Err: err, Token: h.token, Count: 1})
	if !done && h.failedRelease(err) {
		h.client.background.Go(func() { h.client.returner.repeat(h) })
	}
	return err
}

// beginRelease makes the caller the one to attempt the release. If another attempt is under
// way, it returns a channel that closes with its end. over says that there is nothing left to
// release.
func (h *holding) beginRelease() (other <-chan struct{}, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.release.state == settled || h.err == ErrDetached || h.err == nil { //nolint:errorlint // the very cause
		return nil, true
	}
	r := &h.release
	switch r.state {
	case kept:
		r.state = releasing
	case unsettled:
		r.state = repeating
	default:
		if r.attempt == nil {
			r.attempt = make(chan struct{})
		}
		other = r.attempt
	}
	return other, false
}

// failedRelease ends an attempt that did not settle the release, and reports whether it was the first
// one: then the caller makes sure that others follow.
func (h *holding) failedRelease(err error) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &h.release
	if r.state == settled { // another attempt settled it meanwhile
		return false
	}
	first = r.state == releasing
	r.state, r.err = unsettled, err
	r.attemptIsOver()
	return first
}

// giveBackUnseen ends a lease that no caller has received, and frees the key at once, whatever
// its MinHold: a caller that was refused the key leaves nothing behind.
func (h *holding) giveBackUnseen(cause error) {
	h.unseen.Store(true)
	h.end(cause)
	h.giveBackInBackground()
}

// attempt hands the lease over to a waiter of this client, or removes it.
func (h *holding) attempt(values context.Context, bound time.Duration) (done bool, err error) {
	c := h.client
	until := c.clock.Now().Add(bound) // for both calls, if two are needed
	if w, s := c.queues.successor(h); w != nil {
		if done, handled, err := h.handOff(w, s, until); handled {
			return done, err
		}
	}
	ctx, cancel := c.background.Bound(values, until)
	told, at := h.announceBeside()
	answer, err := c.store.Release(ctx, h.ending())
	cancel()
	done, sure, err := h.released(answer, err)
	switch {
	case !sure:
		c.freed(h.ref.Key)
	case c.clock.Since(at) > besideStill: // whoever was told may ask no more
		c.watch.Announce(h.nowOffered(answer)...)
	default:
		c.watch.Announce(wake.Unsent(h.nowOffered(answer), told)...)
	}
	return done, err
}

// ending asks the store to release the holding.
func (h *holding) ending() store.Ending {
	return store.Ending{Ref: h.ref, Keep: h.keep(), Line: len(h.whoWaits()) > 0, Used: h.client.clock.Since(h.granted)}
}

// released handles the store's answer to a release. sure says that it tells who waits now:
// otherwise the attempt, or one before it, may have been applied.
func (h *holding) released(e store.Ended, err error) (done, sure bool, answer error) {
	if err != nil && !store.IsVerdict(err) {
		unknown := !store.IsCertain(err)
		if unknown {
			h.doubt()
		}
		err = failed("release", h.ref.Key, err)
		if ended := h.why(); isLoss(ended) {
			err = &fault{op: "release", key: h.ref.Key, err: fmt.Errorf("%w; and: %w", ended, err)}
		}
		return false, !unknown, err
	}
	h.client.queues.sawLine(h, e)
	h.mu.Lock()
	err = h.answered(err)
	inDoubt := h.release.inDoubt
	h.release.settle(err)
	h.mu.Unlock()
	h.client.queues.forget(h)
	return true, !inDoubt, err
}

// doubt remembers that an attempt may have been applied.
func (h *holding) doubt() {
	h.mu.Lock()
	h.release.inDoubt = true
	h.mu.Unlock()
}

// answered returns what Release returns once the store has answered err and has nothing of the
// holding left: nil, or why it had ended before.
func (h *holding) answered(err error) error {
	switch {
	case err != nil && !errors.Is(err, store.ErrGone):
		return &fault{op: "release", key: h.ref.Key, err: err}
	case isLoss(h.err):
		return &fault{op: "release", key: h.ref.Key, err: h.err}
	case err != nil && !h.release.inDoubt: // otherwise our own attempt removed it, and its reply was lost
		if err == store.ErrGone { //nolint:errorlint // without a word more
			return &fault{op: "release", key: h.ref.Key, err: errGone}
		}
		return &fault{op: "release", key: h.ref.Key, err: fmt.Errorf("%w (%w)", errGone, err)}
	}
	return nil
}

// settle ends the release. err is what Release returns from now on.
func (h *holding) settle(err error) {
	h.mu.Lock()
	h.release.settle(err)
	h.mu.Unlock()
	h.client.queues.forget(h)
}

// afterLoss plans when a lost lease is given back. Its holder first has one margin to stop, as
// if the lease had run out.
func (h *holding) afterLoss(cause error) {
	if errors.Is(cause, errGone) {
		h.settle(&fault{op: "release", key: h.ref.Key, err: cause})
		return
	}
	h.mu.Lock()
	if h.release.state != settled {
		h.release.loss.timer = time.AfterFunc(h.client.clock.Until(h.release.loss.notBefore), h.giveBackInBackground)
	}
	h.mu.Unlock()
}

// keep returns how long the key must still stay taken, because of MinHold; 0 once that time is
// over.
func (h *holding) keep() time.Duration {
	if h.unseen.Load() {
		return 0
	}
	return term.Keep(h.terms.minHold, h.granted, h.client.clock.Now())
}
