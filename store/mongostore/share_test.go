package mongostore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/store"
)

func mongoAskShared(key string, ttl time.Duration) store.Claim {
	c := mongoAsk(key, ttl)
	c.Mode, c.Limit = store.Shared, 0
	return c
}

func mongoAskPermit(key string, n int, ttl time.Duration) store.Claim {
	c := mongoAsk(key, ttl)
	c.Mode, c.Limit = store.Permits, n
	return c
}

const (
	sentNoWriter = "$or: [{exclusiveWantedUntil: {$not: {$gt: DATE}}}, {mode: exclusive}]"
	sentWriter   = "findAndModify new: true query: {_id: k, mongolock: 1, mode: {$ne: exclusive}} update: {$max: {wantedUntil: DATE, exclusiveWantedUntil: DATE}, $currentDate: {at: true}} " + sentSoftly
	sentNew      = "{owner: owner, note: note, since: DATE, expireAt: DATE}"
)

func sentSharedUpsert(id string) string {
	return "findAndModify new: true query: {_id: k, mongolock: 1, expireAt: {$lte: DATE}, " + sentNoWriter + "} update: " +
		"{$set: {mode: shared, limit: 0, holders: {" + id + ": " + sentNew + "}, expireAt: DATE, rev: REV}, $currentDate: {at: true}, $unset: {exclusiveWantedUntil: }} upsert: true " + sentDurably
}

func sentJoin(id string) string {
	return "findAndModify new: true query: {_id: k, mongolock: 1, rev: REV, " + sentNoWriter + "} update: " +
		"{$set: {holders." + id + ": " + sentNew + ", rev: REV}, $max: {expireAt: DATE}, $currentDate: {at: true}} " + sentDurably
}

func sentLeave(id, concern string) string {
	return "findAndModify new: true query: {_id: k, mongolock: 1, mode: shared, holders." + id + ": {$exists: true}} update: {$unset: {holders." + id + ": }, $currentDate: {at: true}} " + concern
}

func sentLast(concern string) string {
	return "findAndModify query: {_id: k, mongolock: 1, rev: REV, " + sentNoWriter + "} remove: true " + concern
}

func TestEachStepOfSharingSendsWhatTheProtocolSays(t *testing.T) {
	t.Parallel()
	mongoNeeds(t, "operationtime")
	b := mongoBenchFor(t)
	b.acquire(b.store, mongoAsk("warm", time.Second))
	b.tap.Take()
	one, two, three := mongoAskShared("k", 30*time.Second), mongoAskShared("k", 30*time.Second), mongoAskShared("k", 30*time.Second)
	names := []string{one.ID, two.ID, three.ID}

	b.acquire(b.store, one)
	b.expect("the first reader", names, sentSharedUpsert("ID"))
	b.acquire(b.store, two)
	b.expect("the second reader", names, sentSharedUpsert("ID2"), sentFind, sentJoin("ID2"))
	b.acquire(b.store, three)
	b.expect("a reader where others are known to be", names, sentFind, sentJoin("ID3"))

	b.release(three.Ref)
	b.expect("a leave", names, sentLeave("ID3", sentSoftly))

	writer := mongoAsk("k", 30*time.Second)
	writer.Want = time.Minute
	b.held(b.store, writer)
	b.expect("a writer", append(names, writer.ID), sentUpsert("ID4"), sentWriter)
	blind := writer
	blind.ID = mongoAsk("k", 1).ID
	b.store.joins.saw("k", 0, false)
	b.held(b.store, blind)
	b.expect("a writer that did not know of readers", []string{blind.ID}, sentUpsert("ID"), sentWord, sentWriter)

	waiting := mongoAskShared("k", 30*time.Second)
	waiting.Want = time.Minute
	b.held(b.store, waiting)
	b.expect("a reader whom a writer's word keeps out", names, sentFind,
		sentWord)

	b.release(two.Ref)
	b.tap.Take()
	b.release(one.Ref)
	b.expect("the last leave, with a writer's word", names, sentLeave("ID", sentSoftly),
		"findAndModify new: true query: {_id: k, mongolock: 1, rev: REV} update: {$set: {expireAt: DATE}, $currentDate: {at: true}} "+sentSoftly)
	if r := b.document("k"); len(r.holders) != 0 || r.expireAt.After(r.at) || r.at.Sub(r.expireAt) > time.Minute {
		t.Errorf("what is left for the writer: %+v", r)
	}
	b.acquire(b.store, writer)
	b.expect("the writer's turn", []string{writer.ID}, sentUpsert("ID"))
	b.release(writer.Ref)

	alone := mongoAskShared("k", 90*time.Second)
	b.acquire(b.store, alone)
	b.tap.Take()
	b.release(alone.Ref)
	b.expect("a leave of one and all", []string{alone.ID}, sentLeave("ID", sentVoted), sentLast(sentVoted))
	if !b.absent("k") {
		t.Error("the document is there")
	}
}

func (b *mongoBench) release(r store.Ref) {
	b.t.Helper()
	if _, err := b.store.Release(b.ctx(), r, 0); err != nil {
		b.t.Fatalf("release %q: %v", r.Key, err)
	}
}

// die sets a holder's end to the past, and leaves the document its own, which is the
// others'.
func (b *mongoBench) die(r store.Ref, ago time.Duration) {
	b.t.Helper()
	_, err := b.coll.UpdateOne(b.ctx(), bson.D{{Key: "_id", Value: r.Key}},
		bson.D{{Key: "$set", Value: bson.D{{Key: of(r.ID, fieldExpireAt), Value: time.Now().Add(-ago)}}}})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *mongoBench) held(s *Store, c store.Claim) *store.HeldError {
	b.t.Helper()
	_, err := s.Acquire(b.ctx(), c)
	held, ok := errors.AsType[*store.HeldError](err)
	if !ok {
		b.t.Fatalf("acquire %q: %v, want it held", c.Key, err)
	}
	return held
}

// meanwhile runs something once, just before a command of the store reaches the
// server.
func meanwhile(l *testserver.Line, is func(c bson.Raw) bool, do func()) (done func() bool) {
	did := false
	l.Set(func(name string, c bson.Raw) testserver.Fate {
		if did || !isModify(name) || !is(c) {
			return testserver.Fate{}
		}
		did = true
		return testserver.Fate{Before: do}
	})
	return func() bool { return did }
}

func isJoin(c bson.Raw) bool {
	return !c.Lookup("query", fieldRev).IsZero() && !isUpsert(c) && !isRemove(c)
}

func isRemove(c bson.Raw) bool { r, _ := c.Lookup("remove").BooleanOK(); return r }

func isUnset(c bson.Raw) bool { return !c.Lookup("update", "$unset").IsZero() }

// Each safety of sharing, in the one race that it is there for; what the race came to
// without it is the control. The scenarios answer what was wrong.
var mongoShareRaces = []struct {
	name   string
	safety string // the switch of internal/knob that takes it out
	run    func(b *mongoBench, line *testserver.Line) string
}{
	{
		"a join writes field by field", "JoinWritesMap",
		func(b *mongoBench, line *testserver.Line) string {
			stays := mongoAskShared("k", 5*time.Second)
			other := b.another()
			b.acquire(other, stays)
			did := meanwhile(line, isJoin, func() {
				other.Renew(b.ctx(), []store.Renewal{{Ref: stays.Ref, TTL: time.Minute}})
			})
			b.acquire(b.store, mongoAskShared("k", 5*time.Second))
			if h, ok := b.document("k").Holder(stays.ID); !did() || !ok || time.Until(h.ExpireAt) < 30*time.Second {
				return "a renewal was taken back by a join"
			}
			return ""
		},
	},
	{
		"a join changes rev", "JoinKeepsRev",
		func(b *mongoBench, line *testserver.Line) string {
			other := b.another()
			b.acquire(other, mongoAskPermit("k", 2, time.Minute))
			meanwhile(line, isJoin, func() { b.acquire(other, mongoAskPermit("k", 2, time.Minute)) })
			_, _ = b.store.Acquire(b.ctx(), mongoAskPermit("k", 2, time.Minute))
			if n := len(b.document("k").holders); n > 2 {
				return "three of two permits are given out"
			}
			return ""
		},
	},
	{
		"a join heeds a writer's word", "JoinIgnoresWord",
		func(b *mongoBench, line *testserver.Line) string {
			other := b.another()
			b.acquire(other, mongoAskShared("k", time.Minute))
			writer := mongoAsk("k", time.Minute)
			writer.Want = time.Minute
			meanwhile(line, isJoin, func() { b.held(other, writer) })
			if _, err := b.store.Acquire(b.ctx(), mongoAskShared("k", time.Minute)); err == nil {
				return "a reader passed a writer who waits"
			}
			return ""
		},
	},
	{
		"the last to leave deletes what it saw", "DeleteWithoutRev",
		func(b *mongoBench, line *testserver.Line) string {
			other := b.another()
			first, second := mongoAskShared("k", time.Minute), mongoAskShared("k", time.Minute)
			b.acquire(b.store, first)
			meanwhile(line, isRemove, func() { b.acquire(other, second) })
			b.release(first.Ref)
			if b.absent("k") {
				return "who joined while another left is gone"
			}
			return ""
		},
	},
	{
		"the end of who is dropped is in the filter", "JoinDropsTheLiving",
		func(b *mongoBench, line *testserver.Line) string {
			other := b.another()
			late, stays := mongoAskShared("k", time.Minute), mongoAskShared("k", time.Minute)
			b.acquire(other, late)
			b.acquire(other, stays)
			b.die(late.Ref, time.Second)
			meanwhile(line, isJoin, func() { // its renewal was judged by a server time of a trip ago
				in := time.Now().Add(time.Minute)
				_, err := b.coll.UpdateOne(b.ctx(), bson.D{{Key: "_id", Value: "k"}},
					bson.D{{Key: "$max", Value: bson.D{{Key: of(late.ID, fieldExpireAt), Value: in}, {Key: fieldExpireAt, Value: in}}}})
				if err != nil {
					b.t.Error(err)
				}
			})
			b.acquire(b.store, mongoAskShared("k", time.Minute))
			if _, ok := b.document("k").Holder(late.ID); !ok {
				return "who was renewed in time is dropped"
			}
			return ""
		},
	},
	{
		"the clean-up of a join is a leave", "UndoDeletes",
		func(b *mongoBench, line *testserver.Line) string {
			stays := mongoAskShared("k", time.Minute)
			b.acquire(b.another(), stays)
			line.Set(func(name string, c bson.Raw) testserver.Fate {
				return testserver.Fate{Lose: isModify(name) && isJoin(c)}
			})
			c := mongoAskShared("k", time.Minute)
			if _, err := b.store.Acquire(b.brief(), c); err == nil || store.IsCertain(err) {
				b.t.Fatalf("the reply is lost, and the outcome certain: %v", err)
			}
			line.Set(nil)
			if settled, err := b.store.Undo(b.ctx(), c.Ref, nil); !settled || err != nil {
				b.t.Errorf("settled %v, %v", settled, err)
			}
			if b.absent("k") {
				return "with the claim went who was in"
			}
			if _, ok := b.document("k").Holder(c.ID); ok {
				b.t.Error("it is not cleaned up")
			}
			return ""
		},
	},
}

func TestSharingHoldsInEachOfItsRaces(t *testing.T) {
	t.Parallel()
	for _, race := range mongoShareRaces {
		t.Run(race.name, func(t *testing.T) {
			b, line := onLine(t)
			if wrong := race.run(b, line); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// stalledJoin is a join that does not arrive, is undone, and then does.
func stalledJoin(t *testing.T, opts ...func(*options.ClientOptions)) (settled bool, b *mongoBench, joined store.Claim) {
	t.Helper()
	line := &testserver.Line{}
	b = mongoBenchFor(t, append(opts, line.Through)...)
	stays := mongoAskShared("k", time.Minute)
	b.acquire(b.another(), stays)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		return testserver.Fate{Stall: isModify(name) && isJoin(c)}
	})
	joined = mongoAskShared("k", time.Minute)
	if _, err := b.store.Acquire(b.brief(), joined); err == nil || store.IsCertain(err) {
		t.Fatalf("stalled, and the outcome certain: %v", err)
	}
	line.Set(nil)
	settled, err := b.store.Undo(b.ctx(), joined.Ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, reply := range line.Deliver(t) {
		t.Log("what came late was answered", mongoShowValue(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: reply}, nil)[:60])
	}
	return settled, b, joined
}

func TestAJoinThatComesAfterItsCleanUpDoesNotLand(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]func(*options.ClientOptions){
		"with transaction numbers":    nil,
		"without transaction numbers": {withoutRetries}, // there the new revision alone bars it
	} {
		t.Run(name, func(t *testing.T) {
			settled, b, joined := stalledJoin(t, opts...)
			if !settled {
				t.Error("not settled, though the revision that it named is gone")
			}
			if _, landed := b.document("k").Holder(joined.ID); landed || len(b.document("k").holders) != 1 {
				t.Errorf("it landed: %+v", b.document("k").holders)
			}
		})
	}
}

// A reader that dies between leaving and deleting leaves an empty document, whose end
// lies in the future, and which is in nobody's way.
func TestWhoDiesBetweenLeavingAndDeletingBlocksNobody(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]store.Claim{
		"a writer": mongoAsk("k", time.Minute), "a reader": mongoAskShared("k", time.Minute), "a permit": mongoAskPermit("k", 1, time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			b, line := onLine(t)
			c := mongoAskShared("k", time.Minute)
			b.acquire(b.store, c)
			line.Set(func(name string, c bson.Raw) testserver.Fate {
				return testserver.Fate{Stall: isModify(name) && isRemove(c)}
			})
			if _, err := b.store.Release(b.brief(), c.Ref, 0); err != nil {
				t.Errorf("it has left: %v", err)
			}
			if r := b.document("k"); len(r.holders) != 0 || !r.expireAt.After(time.Now()) {
				t.Fatalf("the test shows nothing: %+v", r)
			}
			b.acquire(b.another(), next)
			line.Deliver(t) // the delete, late
			if _, holds := b.document("k").Holder(next.ID); !holds {
				t.Error("a delete that came late took the next holder along")
			}
		})
	}
}

func TestALeaveSaidTwiceEndsWhatTheFirstBegan(t *testing.T) {
	t.Parallel()
	b, line := onLine(t)
	c := mongoAskShared("k", time.Minute)
	b.acquire(b.store, c)
	line.Set(func(name string, c bson.Raw) testserver.Fate {
		return testserver.Fate{Lose: isModify(name) && isUnset(c)}
	})
	if _, err := b.store.Release(b.brief(), c.Ref, 0); err == nil || store.IsCertain(err) {
		t.Fatalf("its reply is lost, and the outcome certain: %v", err)
	}
	if b.absent("k") {
		t.Fatal("the test shows nothing")
	}
	line.Set(nil)
	if _, err := b.store.Release(b.ctx(), c.Ref, 0); !errors.Is(err, store.ErrGone) {
		t.Errorf("said again: %v", err)
	}
	if !b.absent("k") {
		t.Error("the empty document is left")
	}
}

func TestAWordThatSlipsInBeforeTheDeleteIsSeen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]store.Claim{"a writer's": mongoAsk("k", time.Minute), "another's": mongoAskPermit("k", 1, time.Minute)} {
		t.Run(name, func(t *testing.T) {
			b, line := onLine(t)
			mine := mongoAskPermit("k", 1, time.Minute)
			b.acquire(b.store, mine)
			other := b.another()
			c.Want = time.Minute
			// The word comes while the holder is still in, and its answer after it has left:
			// so it is written by hand.
			meanwhile(line, isRemove, func() {
				word := fieldWanted
				if c.Mode == store.Exclusive {
					word = fieldExclusiveWanted
				}
				_, err := b.coll.UpdateOne(b.ctx(), bson.D{{Key: "_id", Value: "k"}},
					bson.D{{Key: "$set", Value: bson.D{{Key: word, Value: time.Now().Add(time.Minute)}}}})
				if err != nil {
					t.Error(err)
				}
			})
			if wanted, err := b.store.Release(b.ctx(), mine.Ref, 0); !wanted || err != nil {
				t.Errorf("wanted %v, %v", wanted, err)
			}
			if kept := !b.absent("k"); kept != (c.Mode == store.Exclusive) {
				t.Errorf("the document is kept: %v", kept)
			}
			if c.Mode == store.Exclusive {
				b.held(other, mongoAskPermit("k", 1, time.Second))
			}
			b.acquire(other, c)
		})
	}
}

func TestARecordThatIsFullTakesNobodyElse(t *testing.T) {
	t.Parallel()
	b := mongoBenchFor(t)
	c := mongoAskShared("k", time.Minute)
	b.acquire(b.store, c)
	_, err := b.coll.UpdateOne(b.ctx(), bson.D{{Key: "_id", Value: "k"}},
		bson.D{{Key: "$set", Value: bson.D{{Key: of(c.ID, "padding"), Value: strings.Repeat("x", fullAt)}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.Acquire(b.ctx(), mongoAskShared("k", time.Minute)); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("answered %v", err)
	}
	if r := b.store.Renew(b.ctx(), []store.Renewal{{Ref: c.Ref, TTL: c.TTL}}); r[0].Err != nil {
		t.Errorf("who is in is disturbed: %v", r[0].Err)
	}
	b.release(c.Ref)
	b.acquire(b.store, mongoAskShared("k", time.Minute))
}

func TestThroughARouterSharersAreJudgedByTheDocumentsClock(t *testing.T) {
	t.Parallel()
	b, _ := asRouter(t, unsharded)
	dead, stays := mongoAskShared("k", 30*time.Second), mongoAskShared("k", 30*time.Second)
	other := b.another()
	b.acquire(other, dead)
	b.acquire(other, stays)
	b.die(dead.Ref, time.Second)
	mine := mongoAskShared("k", 30*time.Second)
	b.acquire(b.store, mine)
	r := b.document("k")
	_, there := r.Holder(stays.ID)
	if _, dropped := r.Holder(dead.ID); dropped || !there || len(r.holders) != 2 {
		t.Errorf("%+v", r.holders)
	}
}

// A claim waits for its turn among those of its process no longer than its context.
func TestAJoinWaitsForItsTurnNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	b, line := onLine(t)
	b.acquire(b.another(), mongoAskShared("k", time.Minute))
	inside, goOn := make(chan struct{}), make(chan struct{})
	meanwhile(line, isJoin, func() { close(inside); <-goOn })
	answered := make(chan error, 1)
	go func() {
		_, err := b.store.Acquire(b.ctx(), mongoAskShared("k", time.Minute))
		answered <- err
	}()
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := b.store.Acquire(ctx, mongoAskShared("k", time.Minute)); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("answered %v", err)
	}
	close(goOn)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if len(b.store.joins.gates) != 0 {
		t.Error("a door is left where nobody is")
	}
}
