package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

// A scenario brings about the situation that one safety is made for, and describes the
// violation that it saw, if any. Here no scenario may report one. control_knobs_test.go
// takes the safety out, and then each must.
type scenario func(t *testing.T) (violation string)

var scenarios = map[string]scenario{
	"the deadline counts from the request":        deadlineUnderSlowReplies,
	"a margin pays for late timers":               func(t *testing.T) string { return marginAgainst(t, time.Second) },
	"release goes by identity":                    func(t *testing.T) string { return lateRelease(t, false) },
	"an unknown outcome is cleaned up":            unknownOutcome,
	"a lost lease is given back a margin later":   lossWithALiveStore,
	"the old holder is told before the hand-over": handOverOrder,
	"every claim has an ID of its own":            cleanUpBesideAClaim,
}

func TestNoScenarioReportsAViolation(t *testing.T) {
	for name, run := range scenarios {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, inBubble(t, run))
		})
	}
}

func inBubble(t *testing.T, run scenario) (violation string) {
	synctest.Test(t, func(t *testing.T) { violation = run(t) })
	return violation
}

// toldInTime describes the violation if the holder was not told of its loss at least one
// margin before the rival was granted the key. The holder is told when Err says so.
func toldInTime(l *mongolock.Lease, rival <-chan result, margin time.Duration) string {
	var told time.Time
	for {
		select {
		case r := <-rival:
			switch {
			case r.err != nil:
				return "the rival: " + r.err.Error()
			case told.IsZero() && l.Err() == nil:
				return "two live leases"
			case told.IsZero():
				told = r.when
			}
			if gap := r.when.Sub(told); gap < margin {
				return fmt.Sprintf("told %v before the next was granted, want %v", gap, margin)
			}
			return ""
		case <-time.After(time.Millisecond):
			if told.IsZero() && l.Err() != nil {
				told = time.Now()
			}
		}
	}
}

func deadlineUnderSlowReplies(t *testing.T) string {
	b := lab.New(memstore.New())
	b.On(lab.Acquire, lab.Slow(0, 4*time.Second))
	b.On(lab.Release, lab.Fail(errNet))
	l := acquire(t, newClient(t, b), "k", mongolock.TTL(10*time.Second), mongolock.NoRenewal())
	rival := inBackground(t.Context(), newClient(t, b.Mem), "k")
	return toldInTime(l, rival, 950*time.Millisecond)
}

// marginAgainst cuts a holder off from the store. Timers may be late by half a second.
func marginAgainst(t *testing.T, margin time.Duration) string {
	b := lab.New(memstore.New())
	l := acquire(t, newClient(t, b, mongolock.WithMargin(margin)), "k")
	b.On(lab.Renew, lab.Fail(errNet))
	b.On(lab.Release, lab.Fail(errNet))
	rival := inBackground(t.Context(), newClient(t, b.Mem), "k")
	return toldInTime(l, rival, 0)
}

// lateRelease lets the removal of a lost lease arrive when the next holder has the key.
// A removal by key alone removes that holder.
func lateRelease(t *testing.T, byKey bool) string {
	b := lab.New(memstore.New())
	l := acquire(t, newClient(t, b), "k")
	b.On(lab.Renew, lab.Fail(errNet))
	b.On(lab.Release, func(_ context.Context, call *lab.Call) error {
		time.Sleep(2 * time.Second)
		if byKey {
			b.Mem.Delete(call.Key)
		}
		return call.Do()
	})
	next := acquire(t, newClient(t, b.Mem), "k")
	_ = l.Release()
	time.Sleep(3 * time.Second)
	if _, err := newClient(t, b.Mem).TryAcquire(t.Context(), "k"); err == nil && next.Err() == nil {
		return "two live leases"
	}
	return ""
}

func unknownOutcome(t *testing.T) string {
	b := lab.New(memstore.New())
	b.On(lab.Acquire, unknownOutcomes["applied, reply lost"])
	if _, err := newClient(t, b).TryAcquire(t.Context(), "k"); err == nil {
		return "granted"
	}
	time.Sleep(time.Second)
	if !isFree(t, b, "k") {
		return "nobody has a lease of the key, but it is held"
	}
	return ""
}

func lossWithALiveStore(t *testing.T) string {
	b := lab.New(memstore.New())
	l := acquire(t, newClient(t, b), "k", mongolock.MaxHold(10*time.Second))
	rival := inBackground(t.Context(), newClient(t, b.Mem), "k")
	return toldInTime(l, rival, 990*time.Millisecond)
}

func handOverOrder(t *testing.T) (violation string) {
	b := lab.New(memstore.New())
	c := newClient(t, b)
	l := acquire(t, c, "k")
	b.On(lab.Transfer, func(_ context.Context, call *lab.Call) error {
		err := call.Do()
		if l.Err() == nil {
			violation = "the next holder has the key, and the last one was not told"
		}
		return err
	})
	wait := inBackground(t.Context(), c, "k")
	synctest.Wait()
	_ = l.Release()
	if r := <-wait; r.err != nil {
		return r.err.Error()
	}
	return violation
}

// cleanUpBesideAClaim lets a second claim succeed while the first one, whose outcome is
// unknown, is still being cleaned up.
func cleanUpBesideAClaim(t *testing.T) string {
	b := lab.New(memstore.New())
	c := newClient(t, b)
	b.On(lab.Acquire, unknownOutcomes["not applied"])
	b.On(lab.Undo, lab.Slow(time.Second, 0))
	if _, err := c.TryAcquire(t.Context(), "k"); !errors.Is(err, mongolock.ErrOutcomeUnknown) {
		return "not unknown"
	}
	b.On(lab.Acquire, nil)
	l := acquire(t, c, "k")
	time.Sleep(2 * time.Second)
	if _, err := newClient(t, b.Mem, mongolock.WithOwner("rival")).TryAcquire(t.Context(), "k"); err == nil && l.Err() == nil {
		return "two live leases"
	}
	return ""
}
