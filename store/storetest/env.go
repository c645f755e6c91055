package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/mongolock/mongolock/store"
)

const (
	short = 300 * time.Millisecond // a TTL that a claim waits for
	long  = time.Minute            // a TTL that no claim sees the end of
	bound = 10 * time.Second       // of a single call, as the engine bounds it
)

// env is the environment of a claim: a test, a store and helpers to use it.
type env struct {
	testing.TB
	mode  Mode
	store store.Store
}

func newEnv(t testing.TB, mode Mode, newStore func(testing.TB) store.Store) *env {
	return &env{TB: t, mode: mode, store: newStore(t)}
}

// rounds is how often to repeat an attempt that does not fail every time. In virtual
// time waiting costs nothing.
func (e *env) rounds(inVirtual, inReal int) int {
	if e.mode == Virtual {
		return inVirtual
	}
	return inReal
}

// ctx returns a context with a deadline, as the engine gives a store. In real time the
// deadline is later, because a busy machine is no reason to fail a store.
func (e *env) ctx() context.Context {
	most := bound
	if e.mode == Real {
		most *= 3
	}
	// Not the test's own context, which has ended when clean-up runs.
	ctx, cancel := context.WithTimeout(context.Background(), most)
	e.Cleanup(cancel)
	return ctx
}

// key returns a unique key, because others may use the same store.
func (e *env) key(shape string) string { return shape + rand.Text() }

func (e *env) claim(key string, ttl time.Duration) store.Claim {
	return store.Claim{
		Ref:   store.Ref{Key: key, ID: rand.Text(), Mode: store.Exclusive},
		Limit: 1, TTL: ttl, Owner: "storetest", Note: "a claim",
	}
}

// A held is a grant, with the times of its request and its reply by the caller's clock.
type held struct {
	store.Claim
	grant         store.Grant
	sent, replied time.Time
}

// honoured returns the time until which the key may not be granted to another.
func (h held) honoured() time.Time { return h.sent.Add(h.grant.Left) }

// inTime reports whether the engine would have accepted the grant.
func (h held) inTime() bool { return h.replied.Before(h.honoured()) }

// try makes a claim.
func (e *env) try(c store.Claim) (held, error) {
	h := held{Claim: c, sent: time.Now()}
	grant, err := e.store.Acquire(e.ctx(), c)
	h.grant, h.replied = grant, time.Now()
	switch {
	case err == nil:
		e.Cleanup(func() { e.end(c.Ref, 0) })
	case c.Place != "":
		e.Cleanup(func() { e.store.Leave(e.ctx(), c.Key, c.Place) })
	}
	return h, err
}

// hold makes a claim that must be granted.
func (e *env) hold(key string, ttl time.Duration) held {
	e.Helper()
	return e.granted(e.claim(key, ttl))
}

func (e *env) granted(c store.Claim) held {
	e.Helper()
	h, err := e.try(c)
	if err != nil {
		e.Fatalf("claim of %q, which should be free: %v", c.Key, err)
	}
	e.took(h.replied.Sub(h.sent))
	return h
}

// refused makes a claim that must be refused because the key is held.
func (e *env) refused(c store.Claim) *store.HeldError {
	e.Helper()
	_, err := e.try(c)
	return e.refusal(c, err)
}

// refusedUntil makes a claim that must be refused if it is answered before end. After
// a later grant it checks nothing.
func (e *env) refusedUntil(end time.Time, c store.Claim) {
	e.Helper()
	h, err := e.try(c)
	if err == nil && h.replied.After(end) {
		e.Logf("claim of %q: answered %v too late to be refused", c.Key, h.replied.Sub(end))
		e.release(h.Ref)
		return
	}
	e.refusal(c, err)
}

func (e *env) refusal(c store.Claim, err error) *store.HeldError {
	e.Helper()
	var refusal *store.HeldError
	if !errors.As(err, &refusal) {
		e.Fatalf("claim of %q, which is held: got %v, want a *HeldError", c.Key, err)
	}
	return refusal
}

// end releases a holder.
func (e *env) end(r store.Ref, keep time.Duration) error {
	e.Helper()
	_, err := e.store.Release(e.ctx(), store.ReleaseRequest{Ref: r, Keep: keep})
	return err
}

// release releases a holder that must be there, and returns who waits.
func (e *env) release(r store.Ref) []store.Place {
	e.Helper()
	answer, err := e.store.Release(e.ctx(), store.ReleaseRequest{Ref: r})
	if err != nil {
		e.Fatalf("release of %q: %v", r.Key, err)
	}
	return answer.Line
}

// ends releases a holder, and checks the answer: how many holders are left, and who waits.
func (e *env) ends(what string, of store.ReleaseRequest, left int, line ...store.Claim) {
	e.Helper()
	answer, err := e.store.Release(e.ctx(), of)
	if err != nil || answer.HoldersLeft != left {
		e.Errorf("release of %s: %d holders are left, %v; want %d", what, answer.HoldersLeft, err, left)
	}
	e.places("release of "+what, answer.Line, line...)
}

func (e *env) transfer(from store.Ref, to store.Claim) (held, error) {
	h := held{Claim: to, sent: time.Now()}
	grant, err := e.store.Transfer(e.ctx(), from, to)
	h.grant, h.replied = grant, time.Now()
	if err == nil {
		e.Cleanup(func() { e.end(to.Ref, 0) })
	}
	return h, err
}

func (e *env) renew(r store.Ref, ttl time.Duration) (time.Duration, error) {
	e.Helper()
	answers := e.store.Renew(e.ctx(), []store.Renewal{{Ref: r, TTL: ttl}})
	if len(answers) != 1 {
		e.Fatalf("a batch of one got %d answers", len(answers))
	}
	return answers[0].Left, answers[0].Err
}

func (e *env) look(key string) store.Status {
	e.Helper()
	begun := time.Now()
	all, err := e.store.Look(e.ctx(), []string{key})
	e.took(time.Since(begun))
	if err != nil || len(all) != 1 {
		e.Fatalf("look at %q: %d answers, %v", key, len(all), err)
	}
	return all[0]
}

// holder returns the only holder of key, live or expired.
func (e *env) holder(key string) store.Holder {
	e.Helper()
	return e.only(e.look(key))
}

func (e *env) only(s store.Status) store.Holder {
	e.Helper()
	if len(s.Holders) != 1 {
		e.Fatalf("want one holder: %+v", s)
	}
	return s.Holders[0]
}

// holds checks that h is the only holder of its key.
func (e *env) holds(h held) {
	e.Helper()
	status := e.look(h.Key)
	if len(status.Holders) != 1 || status.Holders[0].ID != h.ID || status.Free() {
		e.Errorf("%q is not held by %s: %+v", h.Key, h.ID, status)
	}
}

// free checks that the key has no holder, and that no former holder is left in its record.
func (e *env) free(key string) {
	e.Helper()
	if status := e.look(key); len(status.Holders) != 0 || !status.Free() {
		e.Errorf("%q is not free: %+v", key, status)
	}
}

// gone checks that a call answered ErrGone.
func (e *env) gone(what string, err error) {
	e.Helper()
	if !errors.Is(err, store.ErrGone) {
		e.Errorf("%s: got %v, want ErrGone", what, err)
	}
}

// broken checks that a call answered a BrokenError with this reason.
func (e *env) broken(what string, err error, reason string) {
	e.Helper()
	var verdict *store.BrokenError
	if !errors.As(err, &verdict) || verdict.Reason != reason {
		e.Errorf("%s: got %v, want a *BrokenError because %q", what, err, reason)
	}
}

// unchanged checks that do leaves key as it is.
func (e *env) unchanged(key string, do func()) {
	e.Helper()
	before := e.look(key)
	before.Holders, before.Line = slices.Clone(before.Holders), slices.Clone(before.Line) // do may change what the store returned
	do()
	after := e.look(key)
	after.Now = before.Now
	if !same(before, after) {
		e.Errorf("%q was changed\nfrom %+v\nto   %+v", key, before, after)
	}
}

// same compares what two statuses say of the record; times may differ in their location.
func same(a, b store.Status) bool {
	for _, s := range []*store.Status{&a, &b} {
		s.Now = s.Now.Round(0).UTC()
		holders := make([]store.Holder, len(s.Holders))
		for i, h := range s.Holders {
			h.Since, h.ExpireAt = h.Since.Round(0).UTC(), h.ExpireAt.Round(0).UTC()
			h.KnownBy = time.Time{} // it depends on the reader, not on the record
			holders[i] = h
		}
		s.Holders = holders
		line := make([]store.Waiter, len(s.Line))
		for i, w := range s.Line {
			w.Since, w.Seen = w.Since.Round(0).UTC(), w.Seen.Round(0).UTC()
			line[i] = w
		}
		s.Line = line
	}
	return reflect.DeepEqual(a, b)
}

func (e *env) sleepUntil(at time.Time) { time.Sleep(time.Until(at)) }

// outlive waits until h has certainly expired, if nothing renewed it.
func (e *env) outlive(h held) { e.sleepUntil(h.replied.Add(h.TTL + e.slack())) }

// takenUntil claims key repeatedly and checks that no claim is granted before promised,
// and that one is granted at free. It checks nothing between the two, so a slow machine
// cannot make it fail: a reply that came before promised was also decided before.
func (e *env) takenUntil(key string, promised, free time.Time) {
	e.Helper()
	edge := promised.Add(-e.slack())
	step := max(time.Until(edge)/8, time.Millisecond)
	for {
		h, err := e.try(e.claim(key, long))
		switch {
		case err == nil:
			if early := promised.Sub(h.replied); early > 0 {
				e.Errorf("%q was granted at least %v before it was free", key, early)
			}
			return
		case !errors.Is(err, store.ErrHeld):
			e.Fatalf("claim of %q: %v", key, err)
		case !h.sent.Before(free):
			e.Errorf("%q is still held, %v after it should be free: %v", key, h.sent.Sub(free)+e.slack(), err)
			return
		}
		if next := time.Now().Add(step); next.Before(edge) {
			e.sleepUntil(next)
		} else if time.Now().Before(edge) {
			e.sleepUntil(edge)
		} else {
			e.sleepUntil(free)
		}
	}
}

// soon claims key until it is granted, for a key that may need some time to be free.
func (e *env) soon(key string, ttl time.Duration) held {
	e.Helper()
	give := time.Now().Add(bound)
	for {
		h, err := e.try(e.claim(key, ttl))
		if err == nil {
			return h
		}
		if !errors.Is(err, store.ErrHeld) || time.Now().After(give) {
			e.Fatalf("claim of %q, which should soon be free: %v", key, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
