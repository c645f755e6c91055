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
func farAwayHolding(t *testing.T, n int) farAway {
	t.Helper()
	var late time.Duration
	set := newReplicaSet(0)
	coll := set.over(t, func(docdb.Command) (time.Duration, bool) { return late, true })
	locks := locksOn[order](t, coll, With(mongolock.TTL(10*time.Minute)))
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

func TestCloseFreesAThousandDocumentsOverASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := farAwayHolding(t, 1000)
		began := time.Now()
		require.NoError(t, f.Close())
		took := time.Since(began)
		sent := map[string]int{}
		for _, name := range f.Take() {
			sent[name]++
		}
		assert.Equal(t, map[string]int{"findAndModify": 1000}, sent)
		assert.LessOrEqual(t, took, time.Second)
		assert.Zero(t, f.held(t), "documents that are held")
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
	testserver.Need(t, "atomic")
	f := &tapped{T: t}
	f.coll = collection(t, f.tap.On)
	f.store = newDocStore(f.coll, "lock")
	return f
}

// taken makes n documents and their claims.
func (f *tapped) taken(n int) (batch []store.ReleaseRequest) {
	f.Helper()
	for i := range n {
		put(f, f.coll, order{ID: fmt.Sprint(i), State: "new"})
		batch = append(batch, store.ReleaseRequest{Ref: f.take(f.store, claimOf(i)).Ref})
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

// takenMeanwhile releases a document that another process releases first, and locks for the next
// holder. It reports whether that one still holds it then.
func takenMeanwhile(t *testing.T, tampered bool) (held bool) {
	f := newTapped(t)
	e := f.taken(1)[0]
	next := claimOf(0)
	next.ID = "next"
	s := f.before("findAndModify", func() {
		_, err := f.store.Release(context.WithoutCancel(t.Context()), e)
		assert.NoError(t, err)
		_, err = f.store.Acquire(context.WithoutCancel(t.Context()), next)
		assert.NoError(t, err)
	})
	if tampered {
		s.tamper(byKeyAlone)
	}
	if _, err := s.Release(t.Context(), e); err != nil {
		require.ErrorIs(t, err, store.ErrGone)
	}
	_, held = readLock(get(t, f.coll, "0"), "lock").Has(next.ID)
	return held
}

func TestALateReleaseOfADocumentFreesNoOtherHolder(t *testing.T) {
	t.Parallel()
	assert.True(t, takenMeanwhile(t, false), "the next holder's was freed")
}

// Documents that were locked by the fields of a unique index are waited for under their
// _ids: that is where many notices go, with one command.
func TestNoticesGoToTheNamesThatWaitersKnow(t *testing.T) {
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
	for _, e := range append(batch, store.ReleaseRequest{Ref: c.Ref}) {
		_, err := f.store.Release(t.Context(), e)
		require.NoError(t, err)
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

// notices is a feed that keeps what it is given.
type notices struct {
	store.Feed
	all []store.Notice
}

func (n *notices) Notify(_ context.Context, all ...store.Notice) error {
	n.all = append(n.all, all...)
	return nil
}
