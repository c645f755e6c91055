package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock/internal/leasectx"
	"github.com/mongolock/mongolock/store"
)

// The exported methods of a Hold are what a lease does. They are safe for concurrent use.

// Err returns nil while the hold is trusted, and then why it ended. It reads the clock itself, so a process that was
// paused learns of the end at once.
func (h *Hold) Err() error {
	e := h.outside.engine
	e.mu.Lock()
	err := h.err
	over := err == nil && h.term.over(e.clock.Now())
	e.mu.Unlock()
	if !over {
		return err
	}
	e.step(Event{Kind: Tick})
	e.mu.Lock()
	defer e.mu.Unlock()
	return h.err
}

// Glance is Err, and how long the hold may be trusted, without an effect: it does not end a hold that has run out, as
// that cancels contexts and calls the logger, which may be the caller.
func (h *Hold) Glance() (left time.Duration, err error) {
	e := h.outside.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	switch now := e.clock.Now(); {
	case h.err != nil:
		return 0, h.err
	case h.term.over(now):
		return 0, h.term.why()
	default:
		return h.term.ends().Sub(now), nil
	}
}

// Contexts returns what makes the contexts of a lease.
func (h *Hold) Contexts(owner leasectx.Owner) *leasectx.Tether {
	e := h.outside.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.outside.contexts == nil {
		h.outside.contexts = leasectx.New(owner)
		if h.err != nil {
			h.outside.contexts.End(h.err)
		}
	}
	return h.outside.contexts
}

// cancel ends the contexts of a lease that goes on.
func (h *Hold) cancel(cause error) { h.Contexts(h).End(cause) }

// Done returns a channel that is closed when the hold ends.
func (h *Hold) Done() <-chan struct{} {
	e := h.outside.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.outside.done == nil {
		h.outside.done = make(chan struct{})
		if h.err != nil {
			close(h.outside.done)
		}
	}
	return h.outside.done
}

// Wanted returns a channel that is closed once another caller waits for the key.
func (h *Hold) Wanted() <-chan struct{} {
	e := h.outside.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.outside.wanted == nil {
		h.outside.wanted = make(chan struct{})
		if h.awaited || h.queue.head != nil {
			close(h.outside.wanted)
		}
	}
	return h.outside.wanted
}

// Progress puts MaxStall off.
func (h *Hold) Progress() {
	e := h.outside.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	if h.term.stall != 0 && h.err == nil && !h.term.over(now) {
		h.term.stall = now.Add(h.Terms.MaxStall)
	}
}

// Renew renews the hold now, and waits for the answer until ctx ends.
func (h *Hold) Renew(ctx context.Context) error {
	if ctx.Err() != nil {
		return h.fault("renew", ContextError(ctx))
	}
	e := h.outside.engine
	var a Asker
	if !e.background.Do(func() { e.step(Event{Kind: Renew, Hold: h, Asker: &a}) }) {
		return h.fault("renew", ErrClosed)
	}
	if err := e.wait(ctx, &a); err != nil {
		if fault := (*Fault)(nil); errors.As(err, &fault) {
			return err
		}
		return h.fault("renew", err)
	}
	return nil
}

// Release ends the hold and gives it back, or makes another attempt at that.
func (h *Hold) Release() error {
	e, a := h.outside.engine, h.asker()
	e.step(Event{Kind: Release, Hold: h, Asker: a}) // ends it first: a holder that still trusts the lease must learn of its end before the next one can begin
	return e.wait(context.Background(), a)
}

// asker returns one for a release: mostly there is one release of a hold.
func (h *Hold) asker() *Asker {
	e := h.outside.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.outside.asked {
		return new(Asker)
	}
	h.outside.asked = true
	return &h.outside.asker
}

// ReleaseAll ends holds and then gives them back, some at a time: one that hangs holds up no other. Of many, each
// attempt has less time than one; those that fail go on in the background. With unseen no user has received them.
// It returns what each has come to.
func ReleaseAll(all []*Hold, unseen bool) (errs []error) {
	for _, h := range all {
		h.outside.engine.step(Event{Kind: End, Hold: h, Unseen: unseen})
	}
	bound := releaseBound
	if len(all) > 1 {
		bound = releaseBound * 2 / 5
	}
	errs = make([]error, len(all))
	SideBySide(len(all), func(i int) bool {
		e := all[i].outside.engine
		a := all[i].asker()
		e.step(Event{Kind: Release, Hold: all[i], Asker: a, Bound: bound})
		errs[i] = e.wait(context.Background(), a)
		return true
	})
	return errs
}

// Outcome returns whether the hold is given back, and the error of that so far.
func (h *Hold) Outcome() (done bool, err error) {
	e := h.outside.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	return h.state == settled, h.late
}

// Detach ends the hold here without giving it back. It returns what is left of MinHold.
func (h *Hold) Detach() (keep time.Duration, err error) {
	e := h.outside.engine
	var a Asker
	e.step(Event{Kind: Detach, Hold: h, Asker: &a})
	return max(0, h.Terms.MinHold-e.clock.Since(h.granted)), a.Err
}

// Values is the context of the call that asked for the hold, for its values.
func (h *Hold) Values() context.Context { return h.outside.values }

// Go runs f in the background of the client; after Close on the calling goroutine.
func (h *Hold) Go(f func()) { h.outside.engine.background.Run(f) }

// Of reports whether the hold is one of that engine.
func (h *Hold) Of(e *Engine) bool { return h.outside.engine == e }

// Logger is that of the client.
func (h *Hold) Logger() *slog.Logger { return h.outside.engine.config.Logger }

// Status describes the hold as a store would.
func (h *Hold) Status() store.Status {
	e := h.outside.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.now = max(e.core.now, e.clock.Now())
	return e.core.statusOf(h)
}

// String shows the key, the token and the state, and never the ID.
func (h *Hold) String() string {
	left, err := h.Glance()
	if err != nil {
		return fmt.Sprintf("lease of %q with token %d, ended: %v", h.Ref.Key, h.Token, err)
	}
	return fmt.Sprintf("lease of %q with token %d, %v left", h.Ref.Key, h.Token, left)
}

// LogValue shows the same in a log.
func (h *Hold) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("key", h.Ref.Key), slog.Int64("token", h.Token)}
	if left, err := h.Glance(); err != nil {
		attrs = append(attrs, slog.String("ended", err.Error()))
	} else {
		attrs = append(attrs, slog.Duration("remaining", left))
	}
	return slog.GroupValue(attrs...)
}

// sendOnly is a feed that sends notices and hears none.
type sendOnly struct{ store.Feed }

// Watch yields that there is nothing to hear.
func (sendOnly) Watch(context.Context, store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) { yield(store.Notice{}, errors.ErrUnsupported) }
}
