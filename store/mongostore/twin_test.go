package mongostore

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/store"
)

// onLine is a bench whose store's commands go over a line.
func onLine(t testing.TB) (*mongoBench, *testserver.Line) {
	line := &testserver.Line{}
	b := mongoBenchFor(t, line.Through)
	if _, err := b.store.Look(b.ctx(), []string{"warm"}); err != nil { // the clock is known
		t.Fatal(err)
	}
	b.tap.Take()
	return b, line
}

// brief bounds a call that gets no reply: the driver retries until its context ends.
func (b *mongoBench) brief() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	b.t.Cleanup(cancel)
	return ctx
}

func isUpsert(c bson.Raw) bool { u, _ := c.Lookup("upsert").BooleanOK(); return u }

func isModify(name string) bool { return name == "findAndModify" }

func TestAGrantWhoseReplyIsLostOnceIsStillTheCallers(t *testing.T) {
	t.Parallel()
	mongoNeeds(t, "retryable", "operationtime")
	b, line := onLine(t)
	lost := false
	line.Set(func(name string, _ bson.Raw) testserver.Fate {
		if isModify(name) && !lost {
			lost = true
			return testserver.Fate{Lose: true}
		}
		return testserver.Fate{}
	})
	c := mongoAsk("k", 30*time.Second)
	g := b.acquire(b.store, c)
	if _, holds := b.document("k").Holder(c.ID); !holds || g.Token == 0 {
		t.Errorf("granted %+v, and the document has %+v", g, b.document("k").holders)
	}
}

func TestAGrantWhoseReplyIsLostForGoodIsUndone(t *testing.T) {
	t.Parallel()
	b, line := onLine(t)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		return testserver.Fate{Lose: isModify(name) && isUpsert(c)}
	})
	c := mongoAsk("k", 30*time.Second)
	_, err := b.store.Acquire(b.brief(), c)
	if err == nil || store.IsCertain(err) {
		t.Fatalf("the reply is lost, and the outcome certain: %v", err)
	}
	if b.absent("k") {
		t.Fatal("not applied: the test shows nothing")
	}
	if settled, err := b.store.Undo(b.ctx(), c.Ref, nil); !settled || err != nil {
		t.Errorf("settled %v, %v", settled, err)
	}
	if !b.absent("k") {
		t.Error("still held after its undo")
	}
	b.acquire(b.another(), mongoAsk("k", time.Second))
}

// stalledClaim is a claim neither of whose sends arrives, undone, and then both do.
func stalledClaim(t *testing.T, b *mongoBench, line *testserver.Line) (settled bool) {
	t.Helper()
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		return testserver.Fate{Stall: isModify(name) && isUpsert(c)}
	})
	c := mongoAsk("k", 30*time.Second)
	if _, err := b.store.Acquire(b.brief(), c); err == nil || store.IsCertain(err) {
		t.Fatalf("stalled, and the outcome certain: %v", err)
	}
	line.Set(nil)
	settled, err := b.store.Undo(b.ctx(), c.Ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(line.Deliver(t)) == 0 {
		t.Fatal("nothing was stalled: the test shows nothing")
	}
	return settled
}

func TestAClaimThatArrivesAfterItsUndoIsRefused(t *testing.T) {
	t.Parallel()
	mongoNeeds(t, "retryable")
	b, line := onLine(t)
	if !stalledClaim(t, b, line) {
		t.Error("not settled, though the session's numbers settle it")
	}
	if !b.absent("k") {
		t.Error("the late claim was applied after its undo was settled: a ghost")
	}
}

func TestWithoutNumbersAnUndoThatFindsNothingIsNotSettled(t *testing.T) {
	t.Parallel()
	line := &testserver.Line{}
	b := mongoBenchFor(t, line.Through, withoutRetries)
	if _, err := b.store.Look(b.ctx(), []string{"warm"}); err != nil {
		t.Fatal(err)
	}
	if stalledClaim(t, b, line) {
		t.Fatal("settled, and the claim arrived after it")
	}
	if b.absent("k") {
		t.Fatal("the late claim was refused: the test shows nothing")
	}
	ref := store.Ref{Key: "k", ID: b.document("k").holders[0].ID, Mode: store.Exclusive}
	if settled, err := b.store.Undo(b.ctx(), ref, nil); !settled || err != nil || !b.absent("k") {
		t.Errorf("repeated, it is not settled: %v, %v", settled, err)
	}
}

// heldThenLate is a claim whose first send stalls while its retry is refused; then
// the key becomes free, and the first arrives.
func heldThenLate(t *testing.T, claim store.Claim, slow time.Duration) (b *mongoBench, err error) {
	t.Helper()
	b, line := onLine(t)
	other := b.another()
	holder := mongoAsk("k", 30*time.Second)
	b.acquire(other, holder)
	first := true
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		if isModify(name) && isUpsert(c) && first {
			first = false
			return testserver.Fate{Stall: true, Before: func() { time.Sleep(slow) }}
		}
		return testserver.Fate{}
	})
	_, err = b.store.Acquire(b.ctx(), claim)
	if _, e := other.Release(b.ctx(), holder.Ref, 0); e != nil {
		t.Fatal(e)
	}
	if len(line.Deliver(t)) != 1 {
		t.Fatal("nothing was stalled: the test shows nothing")
	}
	return b, err
}

func TestTheLateTwinOfAWaitersClaimIsRefused(t *testing.T) {
	t.Parallel()
	mongoNeeds(t, "retryable")
	claim := mongoAsk("k", 30*time.Second)
	claim.Want = time.Minute
	b, err := heldThenLate(t, claim, 0)
	if !errors.Is(err, store.ErrHeld) || !b.absent("k") {
		t.Errorf("refused with %v, and its twin holds the key", err)
	}
}

func TestTheLateTwinOfASlowRefusalIsRefused(t *testing.T) {
	t.Parallel()
	mongoNeeds(t, "retryable")
	b, err := heldThenLate(t, mongoAsk("k", 30*time.Second), mongobase.Slow+100*time.Millisecond)
	if !errors.Is(err, store.ErrHeld) || !b.absent("k") {
		t.Errorf("refused with %v, and its twin holds the key", err)
	}
}

// The control: the twin of a quick refusal that nothing followed is applied. It runs
// out by itself (docs/design.md §4).
func TestTheLateTwinOfAQuickTryRunsOutByItself(t *testing.T) {
	t.Parallel()
	mongoNeeds(t, "retryable")
	b, err := heldThenLate(t, mongoAsk("k", 30*time.Second), 0)
	if !errors.Is(err, store.ErrHeld) || b.absent("k") {
		t.Errorf("refused with %v; no twin landed, so the other tests show nothing", err)
	}
}

func TestATwinSeenInTheImageIsRemoved(t *testing.T) {
	t.Parallel()
	mongoNeeds(t, "retryable")
	b, line := onLine(t)
	other := b.another()
	holder, claim := mongoAsk("k", 30*time.Second), mongoAsk("k", 30*time.Second)
	b.acquire(other, holder)
	first := true
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		switch {
		case isModify(name) && isUpsert(c) && first:
			first = false
			return testserver.Fate{Stall: true}
		case name == "find":
			return testserver.Fate{Before: func() {
				if _, err := other.Release(b.ctx(), holder.Ref, 0); err != nil {
					t.Error(err)
				}
				line.Deliver(t)
				if _, landed := b.document("k").Holder(claim.ID); !landed {
					t.Error("the twin did not land: the test shows nothing")
				}
			}}
		}
		return testserver.Fate{}
	})
	_, err := b.store.Acquire(b.ctx(), claim)
	var held *store.HeldError
	if !errors.As(err, &held) || !held.Free() {
		t.Errorf("answered %v, not that the key is free by now", err)
	}
	if !b.absent("k") {
		t.Error("the twin still holds the key")
	}
}

func TestAHandOverWhoseReplyIsLostIsUndoneOnBothSides(t *testing.T) {
	t.Parallel()
	for name, stall := range map[string]bool{"applied": false, "not applied": true} {
		t.Run(name, func(t *testing.T) {
			b, line := onLine(t)
			from, to := mongoAsk("k", 30*time.Second), mongoAsk("k", 30*time.Second)
			b.acquire(b.store, from)
			line.Set(func(name string, _ bson.Raw) testserver.Fate {
				return testserver.Fate{Lose: isModify(name) && !stall, Stall: isModify(name) && stall}
			})
			if _, err := b.store.Transfer(b.brief(), from.Ref, to); err == nil || store.IsCertain(err) {
				t.Fatalf("certain: %v", err)
			}
			line.Set(nil)
			if settled, err := b.store.Undo(b.ctx(), to.Ref, &from.Ref); !settled || err != nil {
				t.Errorf("settled %v, %v", settled, err)
			}
			line.Deliver(t)
			if !b.absent("k") {
				t.Error("one of them still holds the key")
			}
		})
	}
}

func TestAReleaseWhoseReplyIsLostIsGone(t *testing.T) {
	t.Parallel()
	b, line := onLine(t)
	c := mongoAsk("k", 30*time.Second)
	b.acquire(b.store, c)
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Lose: isModify(name)} })
	if _, err := b.store.Release(b.brief(), c.Ref, 0); err == nil || store.IsCertain(err) {
		t.Errorf("certain: %v", err)
	}
	line.Set(nil)
	if _, err := b.store.Release(b.ctx(), c.Ref, 0); !errors.Is(err, store.ErrGone) {
		t.Errorf("repeated: %v", err)
	}
}

func TestARenewalThatComesLateRevivesNothing(t *testing.T) {
	t.Parallel()
	b, line := onLine(t)
	c := mongoAsk("k", 30*time.Second)
	b.acquire(b.store, c)
	line.Set(func(name string, _ bson.Raw) testserver.Fate { return testserver.Fate{Stall: isModify(name)} })
	if r := b.store.Renew(b.brief(), []store.Renewal{{Ref: c.Ref, TTL: time.Hour}}); r[0].Err == nil || store.IsCertain(r[0].Err) {
		t.Fatalf("certain: %v", r[0].Err)
	}
	line.Set(nil)
	if _, err := b.store.Release(b.ctx(), c.Ref, 0); err != nil {
		t.Fatal(err)
	}
	next := mongoAsk("k", time.Second)
	b.acquire(b.store, next)
	line.Deliver(t)
	if r := b.document("k"); len(r.holders) != 1 || r.holders[0].ID != next.ID || r.expireAt.After(time.Now().Add(time.Minute)) {
		t.Errorf("the late renewal changed the next holder's document: %+v", r)
	}
}

func TestAWriteConcernErrorIsNoGrant(t *testing.T) {
	t.Parallel()
	b, line := onLine(t)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		if !isModify(name) || !isUpsert(c) {
			return testserver.Fate{}
		}
		return testserver.Fate{Rewrite: func(r bson.Raw) bson.D {
			return testserver.Edit(r, nil, bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "codeName", Value: "WriteConcernTimeout"}, {Key: "errmsg", Value: "waiting for replication timed out"}}})
		}}
	})
	c := mongoAsk("k", 30*time.Second)
	if _, err := b.store.Acquire(b.brief(), c); err == nil || store.IsCertain(err) {
		t.Fatalf("certain: %v", err)
	}
	if settled, err := b.store.Undo(b.ctx(), c.Ref, nil); !settled || err != nil || !b.absent("k") {
		t.Errorf("settled %v, %v, absent %v", settled, err, b.absent("k"))
	}
}
