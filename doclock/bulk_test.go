package doclock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/store"
)

// linkTrip is how long a command takes over a slow link.
const linkTrip = 20 * time.Millisecond

// A farAway has Locks on a set in memory, over a link that is slow once they hold their
// documents.
type farAway struct {
	*replicaSet
	*Locks[order]
}

// farAwayHolding locks n documents.
func farAwayHolding(t *testing.T, n int, without ...func(*docStore) store.Store) farAway {
	t.Helper()
	var late time.Duration
	set := newReplicaSet(0)
	coll := set.over(t, func(docdb.Command) (time.Duration, bool) { return late, true })
	locks := locksOn[order](t, coll, With(mongolock.TTL(10*time.Minute)))
	for _, of := range without {
		var err error
		locks.client, err = mongolock.NewWithStore(of(locks.store), mongolock.TTL(10*time.Minute))
		require.NoError(t, err)
	}
	var all []any
	for i := range n {
		all = append(all, order{ID: fmt.Sprint("o-", i), State: "new"})
	}
	put(t, coll, all...)
	for i := range n {
		must(locks.Acquire(t.Context(), ID(fmt.Sprint("o-", i))))(t)
	}
	late = linkTrip - time.Millisecond // the set takes the rest
	set.Take()
	return farAway{set, locks}
}

// held is how many of the documents have a holder.
func (f farAway) held(t *testing.T) int {
	t.Helper()
	cursor, err := f.collection(t).Find(t.Context(), bson.D{{Key: "lock.id", Value: bson.D{{Key: "$exists", Value: true}}}})
	require.NoError(t, err)
	var all []bson.Raw
	require.NoError(t, cursor.All(t.Context(), &all))
	return len(all)
}

func TestCloseFreesTenThousandDocumentsOverASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bulks := fewer.Of(10)
		f := farAwayHolding(t, 1000*bulks)
		began := time.Now()
		require.NoError(t, f.Close())
		took := time.Since(began)
		sent := map[string]int{}
		for _, name := range f.Take() {
			sent[name]++
		}
		assert.Equal(t, map[string]int{"find": bulks, "update": bulks}, sent)
		assert.LessOrEqual(t, took, time.Second)
		assert.Zero(t, f.held(t), "documents that are held")
	})
}

// oneByOne is a store that releases one holder after the other.
type oneByOne struct {
	store.Store
	turn chan struct{} // of capacity 1: a mutex would stop the time of a bubble
}

func (s oneByOne) Release(ctx context.Context, batch []store.Ending) (answers []store.Ended) {
	for _, e := range batch {
		s.turn <- struct{}{}
		answers = append(answers, s.Store.Release(ctx, []store.Ending{e})...)
		<-s.turn
	}
	return answers
}

// One by one, 10,000 releases would take 12.5 s; these 5,000 do not fit into the 5 s of Close
// either. This is what the test above would see without bulks.
func TestControlWithoutBulksCloseLeavesDocumentsHeldOverASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := farAwayHolding(t, fewer.Of(5_000), func(s *docStore) store.Store { return oneByOne{s, make(chan struct{}, 1)} })
		require.Error(t, f.Close())
		assert.Greater(t, f.held(t), 500, "documents that are held")
	})
}

// A tapped is the store of one process whose commands are recorded.
type tapped struct {
	*testing.T
	coll  *mongo.Collection
	tap   testserver.Tap
	store *docStore
}

func newTapped(t *testing.T) *tapped {
	t.Helper()
	testserver.Need(t, "atomic") // FerretDB gets no bulks
	f := &tapped{T: t}
	f.coll = collection(t, f.tap.On)
	f.store = newDocStore(f.coll, "lock")
	return f
}

// taken makes n documents and their claims.
func (f *tapped) taken(n int) (batch []store.Ending) {
	f.Helper()
	for i := range n {
		put(f, f.coll, order{ID: fmt.Sprint(i), State: "new"})
		batch = append(batch, store.Ending{Ref: f.take(f.store, claimOf(i)).Ref})
	}
	f.tap.Take()
	return batch
}

func claimOf(i int) store.Claim {
	return store.Claim{Ref: store.Ref{Key: toKey(fmt.Sprint(i)), ID: fmt.Sprint("claim-of-", i), Mode: store.Exclusive}, Limit: 1, TTL: pace.Of(30 * time.Second)}
}

// place is that of one who waits.
const place store.Place = "x:here:1"

func (f *tapped) take(s *docStore, c store.Claim) store.Claim {
	f.Helper()
	_, err := s.Acquire(f.Context(), c)
	require.NoError(f, err)
	return c
}

// waits makes a waiter for a document that is held.
func (f *tapped) waits(i int) {
	c := claimOf(i)
	c.ID, c.Place = "waits", place
	_, err := f.store.Acquire(context.WithoutCancel(f.Context()), c)
	assert.ErrorIs(f, err, store.ErrHeld)
}

// before is the store of another process, which does something before its first command of
// that name.
func (f *tapped) before(name string, do func()) *docStore {
	f.Helper()
	var once sync.Once
	coll := again(f, f.coll, testserver.URI(f), func(o *options.ClientOptions) {
		o.SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == name {
				once.Do(do)
			}
		}})
	})
	s := newDocStore(coll, "lock")
	_, err := s.base.Read(f.Context())
	require.NoError(f, err)
	return s
}

// isFree reports whether a document has no holder, and nothing is left of its lock.
func (f *tapped) isFree(i int) bool {
	_, err := get(f, f.coll, fmt.Sprint(i)).LookupErr("lock")
	return err != nil
}

func TestManyReleasesTakeTwoCommands(t *testing.T) {
	t.Parallel()
	f := newTapped(t)
	batch := f.taken(300)
	f.waits(70)
	f.tap.Take()
	for i, answer := range f.store.Release(t.Context(), batch) {
		if i == 70 {
			assert.Equal(t, store.Ended{Line: []store.Place{place}}, answer)
			assert.True(t, nobodyHolds(get(t, f.coll, "70")))
			continue
		}
		require.Equal(t, store.Ended{}, answer, "%d", i)
		require.True(t, f.isFree(i), "%d", i)
	}
	assert.Equal(t, []string{"find", "update", "update"}, withoutGets(f.tap.TakeNames(), 300), "those who wait need one more")
	for _, answer := range f.store.Release(t.Context(), batch) {
		require.ErrorIs(t, answer.Err, store.ErrGone)
	}
	assert.Equal(t, []string{"find"}, f.tap.TakeNames(), "of a bulk that was released")
}

// withoutGets leaves out the finds by which the test looked afterwards.
func withoutGets(names []string, gets int) []string { return names[:len(names)-gets] }

// A waiter that joins the line after the bulk has looked must be told of the release.
func TestAPlaceThatIsTakenDuringABulkOfDocumentsIsSeen(t *testing.T) {
	t.Parallel()
	f := newTapped(t)
	batch := f.taken(20)
	for i, answer := range f.before("update", func() { f.waits(7) }).Release(t.Context(), batch) {
		require.NoError(t, answer.Err)
		want := i == 7
		assert.Equal(t, want, len(answer.Line) > 0, "%d", i)
	}
	assert.True(t, nobodyHolds(get(t, f.coll, "7")))
}

func nobodyHolds(raw bson.Raw) bool { return len(readLock(raw, "lock").Holders) == 0 }

// A bulk whose reply is lost may have been applied; one whose find failed has not.
func TestABulkOfDocumentsWithoutAnAnswerIsUnknownFromItsUpdateOn(t *testing.T) {
	t.Parallel()
	for name, certain := range map[string]bool{"find": true, "update": false} {
		t.Run(name, func(t *testing.T) {
			f := newTapped(t)
			batch := f.taken(20)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, answer := range f.before(name, cancel).Release(ctx, batch) {
				require.Error(t, answer.Err)
				assert.Equal(t, certain, store.IsCertain(answer.Err), "%v", answer.Err)
			}
			for i, answer := range f.store.Release(t.Context(), batch) { // as the engine does
				if answer.Err != nil {
					assert.ErrorIs(t, answer.Err, store.ErrGone)
				}
				assert.True(t, nobodyHolds(get(t, f.coll, fmt.Sprint(i))), "%d", i)
			}
		})
	}
}

// takenMeanwhile releases documents, one of which another process locks between the find and
// the update. It reports whether that one is still held then.
func takenMeanwhile(t *testing.T, tampered bool) (held bool) {
	f := newTapped(t)
	batch := f.taken(20)
	next := claimOf(7)
	next.ID = "next"
	s := f.before("update", func() {
		assert.NoError(t, f.store.Release(context.WithoutCancel(t.Context()), batch[7:8])[0].Err)
		_, err := f.store.Acquire(context.WithoutCancel(t.Context()), next)
		assert.NoError(t, err)
	})
	if tampered {
		s.tamper(byKeyAlone)
	}
	for _, answer := range s.Release(t.Context(), batch) {
		require.NoError(t, answer.Err, "one that was released meanwhile is released")
	}
	_, held = readLock(get(t, f.coll, "7"), "lock").Holder(next.ID)
	return held
}

func TestALateBulkOfDocumentReleasesFreesNoOtherHolder(t *testing.T) {
	t.Parallel()
	assert.True(t, takenMeanwhile(t, false), "the next holder's was freed")
}

// A value that is to be saved with the release of its document is saved in a bulk too, and a claim of one
// of many keeps the number of its attempts.
func TestABulkCarriesOutHowEachOfItsLeasesEnds(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	var all []any
	for i := range 20 {
		all = append(all, order{ID: fmt.Sprint(i), State: "new"})
	}
	put(t, coll, all...)
	locks := locksOn[order](t, coll)
	var batch []store.Ending
	for range 20 {
		claimed := must(locks.TryClaim(t.Context(), bson.D{{Key: "state", Value: "new"}}, bson.D{{Key: "_id", Value: 1}}))(t)
		if len(batch) == 3 {
			claimed.doc.Value.State = "paid"
			c, _, err := claimed.doc.changes()
			require.NoError(t, err)
			require.True(t, locks.store.end(claimed.doc.lease.ID(), &ending{changes: c, done: true}))
		}
		batch = append(batch, store.Ending{Ref: claimed.doc.ref()})
	}
	ended := locks.store.Release(t.Context(), batch)
	for i, answer := range ended {
		require.NoError(t, answer.Err, "%d", i)
		raw := get(t, coll, fromKey(batch[i].Key))
		lock := readLock(raw, "lock")
		assert.Empty(t, lock.Holders, "%d", i)
		assert.Equal(t, 1, lock.attempts, "%d", i)
		assert.Equal(t, i == 3, lock.done, "%d", i)
		assert.Equal(t, i == 3, raw.Lookup("state").StringValue() == "paid", "%d", i)
	}
}

// Documents that were locked by the fields of a unique index are waited for under their
// _ids: that is where a bulk of notices goes, with one command.
func TestABulkOfNoticesGoesToTheNamesThatWaitersKnow(t *testing.T) {
	t.Parallel()
	f := newTapped(t)
	sent := new(notices)
	f.store.Feed = sent
	batch := f.taken(3)
	byState := bson.D{{Key: "state", Value: "only"}}
	put(t, f.coll, order{ID: "by state", State: "only"})
	key := must(textOf(byState))(t)
	c := claimOf(3)
	c.Key = key
	f.take(f.store, c)
	require.NoError(t, f.store.Notify(t.Context(), store.Notice{Topic: store.TopicLocks, Key: key, Kind: store.KindOffered}), "beside its release")
	all := []store.Notice{{Topic: store.TopicLocks, Key: key, Kind: store.KindOffered}}
	for _, e := range append(batch, store.Ending{Ref: c.Ref}) {
		require.NoError(t, f.store.Release(t.Context(), []store.Ending{e})[0].Err)
		all = append(all, store.Notice{Topic: store.TopicLocks, Key: e.Key, Kind: store.KindOffered})
	}
	require.NoError(t, f.store.Notify(t.Context(), all...))
	var keys []string
	for _, n := range sent.all {
		keys = append(keys, n.Key)
	}
	assert.Equal(t, []string{toKey("by state"), toKey("by state"), toKey("0"), toKey("1"), toKey("2"), toKey("by state")}, keys)
	assert.Equal(t, key, all[0].Key, "the caller's")
}

// notices is a feed that keeps what it is given in bulks.
type notices struct {
	store.Feed
	all []store.Notice
}

func (n *notices) Notify(_ context.Context, all ...store.Notice) error {
	n.all = append(n.all, all...)
	return nil
}
