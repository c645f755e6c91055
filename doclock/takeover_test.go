package doclock

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/store"
)

const deadTTL = 10 * time.Second

// A dead holder has document "o", and will not renew it unless told to.
type dead struct {
	*docStore
	claim store.Claim
}

// dies inserts document "o" and locks it, by a process that is not heard of again.
func dies(t *testing.T, s *replicaSet) dead {
	t.Helper()
	coll := s.collection(t)
	put(t, coll, order{ID: "o", State: "ready"})
	d := dead{newDocStore(coll, "lock"), store.Claim{
		Ref: store.Ref{Key: `{"_id":"o"}`, ID: "dead", Mode: store.Exclusive}, Limit: 1, TTL: deadTTL, Owner: "dead",
	}}
	must(d.Acquire(t.Context(), d.claim))(t)
	return d
}

func (d dead) renew(t *testing.T) {
	t.Helper()
	require.NoError(t, d.Renew(t.Context(), []store.Renewal{{Ref: d.claim.Ref, TTL: deadTTL}})[0].Err)
}

// inVirtualTime runs a test with Locks on a set in memory, which a process that died has used.
func inVirtualTime(t *testing.T, test func(t *testing.T, s *replicaSet, d dead, locks *Locks[order])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newReplicaSet(0)
		d := dies(t, s)
		test(t, s, d, locksOn[order](t, s.collection(t)))
	})
}

// ways are the calls that lock document "o".
var ways = map[string]func(context.Context, *Locks[order]) error{
	"TryAcquire": func(ctx context.Context, l *Locks[order]) error {
		_, err := l.TryAcquire(ctx, ID("o"))
		return err
	},
	"TryClaim": func(ctx context.Context, l *Locks[order]) error {
		_, err := l.TryClaim(ctx, ready, nil)
		return err
	},
}

// tries repeats a call until it locks the document, and returns when that was.
func tries(t *testing.T, locks *Locks[order], way func(context.Context, *Locks[order]) error) time.Duration {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second / 2) {
		err := way(t.Context(), locks)
		if err == nil {
			return time.Since(began)
		}
		require.True(t, errors.Is(err, mongolock.ErrHeld) || errors.Is(err, ErrNoWork), "%v", err)
		require.Less(t, time.Since(began), 10*time.Minute)
	}
}

func TestUnderOneElectionADocumentIsTakenOverWhenItsHolderHasRunOut(t *testing.T) {
	for name, way := range ways {
		inVirtualTime(t, func(t *testing.T, s *replicaSet, _ dead, locks *Locks[order]) {
			took := tries(t, locks, way)
			assert.GreaterOrEqual(t, took, deadTTL-time.Second/2, name)
			assert.LessOrEqual(t, took, deadTTL+time.Second, name)
		})
	}
}

func TestTheClockOfAnotherElectionEndsNoHolder(t *testing.T) {
	for name, way := range ways {
		inVirtualTime(t, func(t *testing.T, s *replicaSet, d dead, locks *Locks[order]) {
			s.Elect(30 * time.Second) // by this clock the holder has long run out
			took := tries(t, locks, way)
			assert.GreaterOrEqual(t, took, deadTTL, "%s: the holder may trust its lease for its TTL", name)
			assert.LessOrEqual(t, took, deadTTL+time.Second, name)
		})
	}
}

func TestAHolderThatRenewsUnderAnotherElectionIsNotTakenOver(t *testing.T) {
	for name, way := range ways {
		inVirtualTime(t, func(t *testing.T, s *replicaSet, d dead, locks *Locks[order]) {
			s.Elect(30 * time.Second)
			for range 20 {
				err := way(t.Context(), locks)
				assert.Error(t, err, name)
				time.Sleep(deadTTL / 3)
				d.renew(t)
			}
		})
	}
}

func TestAProcessThatAsksOnceGetsADocumentThatRanOutAMinuteAgo(t *testing.T) {
	for name, way := range ways {
		inVirtualTime(t, func(t *testing.T, s *replicaSet, _ dead, locks *Locks[order]) {
			s.Elect(0)
			time.Sleep(deadTTL + 30*time.Second)
			assert.Error(t, way(t.Context(), locksOn[order](t, s.collection(t))), name)
			time.Sleep(32 * time.Second)
			assert.NoError(t, way(t.Context(), locks), name)
		})
	}
}

// takenOver has the holder renew just before a claim's take-over arrives, and reports
// whether the document was taken over all the same.
func takenOver(t *testing.T, way func(context.Context, *Locks[order]) error, tamper func(lease.Step, bson.D) bson.D) (taken bool) {
	inVirtualTime(t, func(t *testing.T, s *replicaSet, d dead, locks *Locks[order]) {
		locks.store.tamper(tamper)
		time.Sleep(deadTTL - time.Second)
		d.renew(t) // the process was cut off, and its renewal is on its way
		time.Sleep(deadTTL + time.Second)
		renewed := false
		s.Before(func(c docdb.Command) {
			if takes := slices.ContainsFunc(c.Body, func(e bson.E) bool {
				filter, _ := e.Value.(bson.D)
				return e.Key == "query" && slices.ContainsFunc(filter, func(f bson.E) bool { return f.Key == "lock.id" && f.Value == "dead" })
			}); takes && !renewed {
				renewed = true
				s.Before(nil)
				d.late(t)
			}
		})
		taken = way(t.Context(), locks) == nil
		assert.True(t, renewed, "no take-over was seen")
	})
	return taken
}

// late applies a renewal as if it had been sent in time.
func (d dead) late(t *testing.T) {
	t.Helper()
	u, err := d.base.W1.UpdateOne(t.Context(), ID("o"), bson.M{
		"$set": bson.M{"lock.beat": d.base.Beat()}, "$max": bson.M{"lock.expireAt": time.Now().Add(docset.Epoch + deadTTL)},
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, u.MatchedCount)
}

func TestATakeOverNamesTheBeatThatWasSeen(t *testing.T) {
	for name, way := range ways {
		assert.False(t, takenOver(t, way, nil), "%s: the holder has renewed", name)
	}
}

func TestATakeOverTakesAtMostFiveCommands(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *replicaSet, _ dead, locks *Locks[order]) {
		_, err := locks.TryAcquire(t.Context(), ID("o"))
		require.ErrorIs(t, err, mongolock.ErrHeld)
		time.Sleep(deadTTL + time.Second)
		s.Take()
		must(locks.TryAcquire(t.Context(), ID("o")))(t)
		assert.Equal(t, []string{"findAndModify", "find", "findAndModify"}, s.Take(), "a document by its name")
	})
	inVirtualTime(t, func(t *testing.T, s *replicaSet, _ dead, locks *Locks[order]) {
		_, err := locks.TryClaim(t.Context(), ready, nil)
		require.ErrorIs(t, err, ErrNoWork)
		time.Sleep(deadTTL + time.Second)
		s.Take()
		must(locks.TryClaim(t.Context(), ready, nil))(t)
		assert.Equal(t, []string{"hello", "find", "hello", "findAndModify"}, s.Take(), "one of many")
	})
}

func TestAWaiterFromBeforeTheElectionGetsTheDocumentWithinATTLAndASecond(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *replicaSet, _ dead, locks *Locks[order]) {
		began := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			s.Elect(-30 * time.Second)
		}()
		doc, err := locks.Acquire(t.Context(), ID("o"))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(began), deadTTL-time.Second/2)
		assert.LessOrEqual(t, time.Since(began), deadTTL+time.Second)
		require.NoError(t, doc.Release())
	})
}

func TestAWaitingClaimGetsTheDocumentOfAHolderFromBeforeTheElection(t *testing.T) {
	for _, ahead := range []time.Duration{-20 * time.Second, 20 * time.Second} {
		inVirtualTime(t, func(t *testing.T, s *replicaSet, _ dead, locks *Locks[order]) {
			s.Elect(ahead)
			began := time.Now()
			s.Take()
			c, err := locks.Claim(t.Context(), ready, nil)
			require.NoError(t, err)
			took := time.Since(began)
			assert.GreaterOrEqual(t, took, deadTTL, "%v ahead", ahead)
			// Each of up to two waits ends with a random pause of more than a second.
			assert.LessOrEqual(t, took, 2*deadTTL+max(0, -ahead)+3*time.Second, "%v ahead", ahead)
			assert.LessOrEqual(t, len(s.Take()), 3*int(took/time.Second)+20, "%v ahead: commands in %v", ahead, took)
			require.NoError(t, c.Release())
		})
	}
}

func TestHoldersThatAreNotKnownToBeOverHideNoFreeDocument(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *replicaSet, d dead, locks *Locks[order]) {
		for i := range windowMost + 1 {
			claim := d.claim
			id := "a" + string(rune('0'+i%10)) + time.Duration(i).String()
			put(t, d.base.W1, order{ID: id, State: "ready"})
			claim.Key, claim.ID = `{"_id":"`+id+`"}`, id
			must(d.Acquire(t.Context(), claim))(t)
		}
		put(t, d.base.W1, order{ID: "z", State: "ready"})
		s.Elect(30 * time.Second)
		c, err := locks.TryClaim(t.Context(), ready, bson.D{{Key: "_id", Value: 1}})
		require.NoError(t, err)
		assert.Equal(t, "z", c.Value.ID)
		took := tries(t, locks, func(ctx context.Context, l *Locks[order]) error {
			_, err := l.TryClaim(ctx, ready, bson.D{{Key: "_id", Value: 1}})
			return err
		})
		assert.LessOrEqual(t, took, deadTTL+2*time.Second, "they are known to be over in time all the same")
	})
}

func TestPeopleSeeThatAHolderRanOutAndIsBeingConfirmed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *replicaSet, _ dead, locks *Locks[order]) {
		s.Elect(30 * time.Second)
		_, err := locks.TryAcquire(t.Context(), ID("o"))
		var held *mongolock.HeldError
		require.ErrorAs(t, err, &held)
		assert.ErrorContains(t, err, "confirmed within")
		seen := must(locks.Inspect(t.Context(), ID("o")))(t)
		var listed []mongolock.Status
		for status, err := range locks.List(t.Context()) {
			require.NoError(t, err)
			listed = append(listed, status)
		}
		require.Len(t, listed, 1)
		for how, status := range map[string]mongolock.Status{"HeldError": held.Status, "Inspect": seen, "List": listed[0]} {
			require.Len(t, status.Holders, 1, how)
			assert.True(t, status.Confirming(status.Holders[0]), how)
			assert.True(t, status.Live(status.Holders[0]), how)
		}
	})
}

// Nothing but the list looks at the document.
func TestAListKeepsItsWordWhenAHolderWillBeKnownToBeOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *replicaSet, _ dead, locks *Locks[order]) {
		s.Elect(30 * time.Second)
		for began, known := time.Now(), (time.Time{}); ; time.Sleep(deadTTL / 7) { // virtual: between two lists
			for status, err := range locks.List(t.Context()) {
				require.NoError(t, err)
				if status.Free() {
					assert.GreaterOrEqual(t, time.Since(began), deadTTL, "sooner than anybody may know it")
					return
				}
				require.Len(t, status.Holders, 1)
				if known.IsZero() {
					known = status.Holders[0].KnownBy
				}
				require.WithinDuration(t, known, status.Holders[0].KnownBy, 100*time.Millisecond, "after %v", time.Since(began))
			}
		}
	})
}

// stepped has a process hold document "o" whose lease is renewed, and another one try for it
// from a step of the primary's clock on. It returns when that one got it, if it did within ten
// minutes, when the holder was told, and what the other has logged.
func stepped(t *testing.T, by time.Duration, knew bool) (got, told time.Duration, log string) {
	synctest.Test(t, func(t *testing.T) {
		s := newReplicaSet(0)
		coll := s.collection(t)
		put(t, coll, order{ID: "o", State: "ready"}, order{ID: "another", State: "ready"})
		held, err := locksOn[order](t, coll, With(mongolock.TTL(deadTTL))).TryAcquire(t.Context(), ID("o"))
		require.NoError(t, err)
		var out bytes.Buffer
		rival := locksOn[order](t, s.collection(t), WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		if knew {
			_, err := rival.TryAcquire(t.Context(), ID("another"))
			require.NoError(t, err)
		}

		began := time.Now()
		s.Step(by)
		for time.Since(began) < 10*time.Minute && got == 0 {
			if _, err := rival.TryAcquire(t.Context(), ID("o")); err == nil {
				got = time.Since(began) + 1
			}
			time.Sleep(deadTTL / 20)
		}
		if got > 0 {
			<-held.Lease().Done()
			told = time.Since(began)
		}
		log = out.String()
	})
	return got, told, log
}

const wasStepped = "the database's clock was stepped"

func TestAProcessThatKnewTheClockBeforeAStepTakesNoLiveDocument(t *testing.T) {
	for _, by := range []time.Duration{3 * time.Second, 30 * time.Second, -30 * time.Second} {
		got, _, log := stepped(t, by, true)
		assert.Zero(t, got, "%v", by)
		assert.Contains(t, log, wasStepped, "%v", by)
	}
}

// This is what a step forward can still do.
func TestAHolderIsToldOfAStepByItsNextRenewal(t *testing.T) {
	for _, by := range []time.Duration{30 * time.Second, 2 * time.Minute} {
		got, told, _ := stepped(t, by, false)
		assert.Positive(t, got, "%v: nothing was to be shown", by)
		assert.LessOrEqual(t, told, deadTTL/3+deadTTL/20, "%v", by)
	}
}
