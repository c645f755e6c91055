package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/mongolock/mongolock/store"
)

var contextClaims = []claim{
	{"ACallReturnsSoonAfterItsContextEnded", aCallReturnsSoonAfterItsContextEnded},
	{"AnEndedContextIsNoVerdict", anEndedContextIsNoVerdict},
	{"AGrantOutlivesItsContext", aGrantOutlivesItsContext},
}

// calls returns every call of a store, made on the key that h holds.
func (e *env) calls(h held) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error {
			_, err := e.store.Acquire(ctx, e.claim(h.Key, long))
			return err
		},
		"renew": func(ctx context.Context) error {
			return e.store.Renew(ctx, []store.Renewal{{Ref: h.Ref, TTL: long}})[0].Err
		},
		"release": func(ctx context.Context) error {
			_, err := e.store.Release(ctx, store.ReleaseRequest{Ref: h.Ref})
			return err
		},
		"leave": func(ctx context.Context) error {
			_, err := e.store.Leave(ctx, h.Key, "x:here:0")
			return err
		},
		"transfer": func(ctx context.Context) error {
			_, err := e.store.Transfer(ctx, h.Ref, e.claim(h.Key, long))
			return err
		},
		"undo": func(ctx context.Context) error {
			_, err := e.store.Undo(ctx, h.Ref, nil)
			return err
		},
		"break": func(ctx context.Context) error {
			return e.store.Break(ctx, h.Ref, "why not", true)
		},
		"look": func(ctx context.Context) error {
			_, err := e.store.Look(ctx, []string{h.Key})
			return err
		},
		"list": func(ctx context.Context) error {
			for _, err := range e.store.List(ctx, h.Key) {
				return err
			}
			return nil
		},
	}
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func aCallReturnsSoonAfterItsContextEnded(e *env) {
	for op, call := range e.calls(e.hold(e.key("context"), long)) {
		sent := time.Now()
		_ = call(ended())
		// Generous for busy machines: the claim is about calls that hang.
		if took := time.Since(sent); took > 4*e.slack() {
			e.Errorf("%s took %v though its context had ended", op, took)
		}
	}
}

// A call whose context has ended may have been applied nevertheless. If it was, its error must
// not deny that, nor give a wrong state of the key.
func anEndedContextIsNoVerdict(e *env) {
	for _, op := range []string{"acquire", "renew", "release", "transfer", "undo", "break", "look", "list"} {
		h := e.hold(e.key("context"), long)
		before := e.look(h.Key)
		err := e.calls(h)[op](ended())
		for _, verdict := range []error{store.ErrGone, store.ErrModeMismatch, store.ErrForeign, store.ErrTooLarge} {
			if errors.Is(err, verdict) {
				e.Errorf("%s on an ended context: %v", op, err)
			}
		}
		after := e.look(h.Key)
		if after.Now = before.Now; errors.Is(err, store.ErrNotApplied) && !same(before, after) {
			e.Errorf("%s answered %v, but changed\n%+v to\n%+v", op, err, before, after)
		}
	}

	c := e.claim(e.key("context"), long)
	_, err := e.store.Acquire(ended(), c)
	status := e.look(c.Key)
	switch landed := len(status.Holders) == 1; {
	case err == nil && !landed:
		e.Error("a claim on an ended context was granted, but holds nothing")
	case errors.Is(err, store.ErrNotApplied) && landed:
		e.Errorf("a claim that answered ErrNotApplied holds the key: %v", err)
	case errors.Is(err, store.ErrHeld):
		e.Errorf("a claim of a free key on an ended context: %v", err)
	}
}

func aGrantOutlivesItsContext(e *env) {
	c := e.claim(e.key("context"), long)
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	_, err := e.store.Acquire(ctx, c)
	cancel()
	if err != nil {
		e.Fatalf("claim: %v", err)
	}
	time.Sleep(e.slack())
	e.holds(held{Claim: c})
	e.refused(e.claim(c.Key, long))
	e.release(c.Ref)
}
