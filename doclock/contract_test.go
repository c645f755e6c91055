package doclock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/storetest"
)

// A keyed is a docStore that takes any text as a key: each key is a document, which a
// claim creates. So the tests of all stores can run on it.
type keyed struct {
	*docStore
	coll  *mongo.Collection
	shape atomic.Int32
}

func toKey(key string) string {
	text, err := textOf(ID(key)) // unlike keyOf it has no limit
	if err != nil {
		panic(err)
	}
	return text
}

func fromKey(key string) string {
	fields, err := filterOf(key)
	if err != nil {
		panic(err)
	}
	return fields[0].Value.(string)
}

func ref(r store.Ref) store.Ref { r.Key = toKey(r.Key); return r }

func back(err error) error {
	var held *store.HeldError
	if errors.As(err, &held) {
		held.Key = fromKey(held.Key)
	}
	return err
}

func creating(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{create: true})
}

func (k *keyed) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	c.Ref = ref(c.Ref)
	g, err := k.docStore.Acquire(creating(ctx), c)
	return g, back(err)
}

func (k *keyed) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	mapped := make([]store.Renewal, len(batch))
	for i, r := range batch {
		mapped[i] = store.Renewal{Ref: ref(r.Ref), TTL: r.TTL}
	}
	return k.docStore.Renew(ctx, mapped)
}

func (k *keyed) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	e.Ref = ref(e.Ref)
	return k.docStore.Release(ctx, e)
}

func (k *keyed) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	s, err := k.docStore.Leave(ctx, toKey(key), p)
	s.Key = fromKey(s.Key)
	return s, err
}

// Age makes a place older.
func (k *keyed) Age(key string, p store.Place, by time.Duration) error {
	ctx := context.Background()
	raw, err := k.coll.FindOne(ctx, ID(key)).Raw()
	if err != nil {
		return err
	}
	seen := raw.Lookup("lock", "waits", string(p), "seen").Time().Add(-by)
	_, err = k.coll.UpdateByID(ctx, key, bson.D{{Key: "$set", Value: bson.D{{Key: "lock.waits." + string(p) + ".seen", Value: seen}}}})
	return err
}

func (k *keyed) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	to.Ref = ref(to.Ref)
	g, err := k.docStore.Transfer(ctx, ref(from), to)
	return g, back(err)
}

func (k *keyed) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	if from != nil {
		f := ref(*from)
		from = &f
	}
	return k.docStore.Undo(ctx, ref(claim), from)
}

func (k *keyed) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	return k.docStore.Break(ctx, ref(r), reason, now)
}

func (k *keyed) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	mapped := make([]string, len(keys))
	for i, key := range keys {
		mapped[i] = toKey(key)
	}
	all, err := k.docStore.Look(ctx, mapped)
	for i := range all {
		all[i].Key = fromKey(all[i].Key)
	}
	return all, err
}

// List sorts by key: the store sorts by the JSON of the documents' _ids.
func (k *keyed) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		var all []store.Status
		for s, err := range k.docStore.List(ctx, "") {
			if err != nil {
				yield(s, err)
				return
			}
			if s.Key = fromKey(s.Key); strings.HasPrefix(s.Key, prefix) {
				all = append(all, s)
			}
		}
		slices.SortFunc(all, func(a, b store.Status) int { return strings.Compare(a.Key, b.Key) })
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (k *keyed) Purge(key string) error {
	_, err := k.coll.DeleteOne(context.Background(), ID(key))
	return err
}

// foreignFields are fields named like the lock that are the application's, or a newer
// version's.
var foreignFields = []bson.D{
	{{Key: "lock", Value: "yale"}},
	{{Key: "lock", Value: nil}},
	{{Key: "lock", Value: bson.D{{Key: "expireAt", Value: time.UnixMilli(1)}}}},
	{{Key: "lock", Value: bson.D{{Key: "doclock", Value: 2}, {Key: "expireAt", Value: time.UnixMilli(1)}}}},
	{{Key: "lock", Value: bson.D{{Key: "doclock", Value: "1"}, {Key: "id", Value: "x"}, {Key: "expireAt", Value: time.UnixMilli(1)}}}},
	{{Key: "lock", Value: bson.D{{Key: "doclock", Value: 1}, {Key: "id", Value: nil}, {Key: "expireAt", Value: time.UnixMilli(1)}}}},
	{{Key: "lock", Value: bson.D{{Key: "doclock", Value: 1}, {Key: "id", Value: 5}, {Key: "expireAt", Value: time.UnixMilli(1)}}}},
	{{Key: "lock", Value: bson.D{{Key: "doclock", Value: 1}, {Key: "expireAt", Value: time.UnixMilli(1)}, {Key: "line", Value: "x"}}}},
	{{Key: "lock", Value: bson.D{{Key: "doclock", Value: 1}, {Key: "expireAt", Value: time.UnixMilli(1)}, {Key: "waits", Value: bson.A{}}}}},
	{{Key: "lock", Value: bson.A{bson.D{{Key: "doclock", Value: 2}}}}},
	{{Key: "lock", Value: bson.A{bson.D{{Key: "doclock", Value: 1}}}}},
	{{Key: "lock", Value: bson.A{bson.D{{Key: "doclock", Value: 1}, {Key: "id", Value: "x"}, {Key: "expireAt", Value: time.UnixMilli(1)}}}}},
}

func (k *keyed) Foreign(key string) (intact func() error, err error) {
	ctx := context.Background()
	doc := append(ID(key), foreignFields[int(k.shape.Add(1)-1)%len(foreignFields)]...)
	if _, err := k.coll.ReplaceOne(ctx, ID(key), doc, options.Replace().SetUpsert(true)); err != nil {
		return nil, err
	}
	before, err := k.coll.FindOne(ctx, ID(key)).Raw()
	return func() error {
		after, err := k.coll.FindOne(ctx, ID(key)).Raw()
		if err == nil && !bytes.Equal(before, after) {
			err = fmt.Errorf("the foreign document was\n%v\nand is\n%v", before, after)
		}
		return err
	}, err
}

func TestTheStoreKeepsTheContractOfAllStores(t *testing.T) {
	needs(t, "!router")
	keyedOn := func(t testing.TB) *keyed {
		coll := collection(t)
		return &keyed{docStore: newDocStore(coll, "lock"), coll: coll}
	}
	if can("atomic") {
		k := keyedOn(t)
		storetest.Run(t, storetest.Real, func(testing.TB) store.Store { return k })
		return
	}
	needs(t)
	storetest.Run(t, storetest.Real, func(t testing.TB) store.Store {
		k := keyedOn(t) // each test has its own: FerretDB reads the whole collection for most filters
		return struct {
			store.Store
			storetest.Purger
			storetest.Stranger
			storetest.Ager
		}{k, k, k, k} // without a feed: FerretDB delivers a wake-up in 20 ms, too slow for the tests with many of them
	})
}

// Package doclocktest gives users the same store, on a database in memory. It takes
// real time here: a claim lasts some milliseconds longer than asked for, as on any server, and
// the suite allows for that in real time alone.
func TestTheStoreInMemoryKeepsTheContractOfAllStores(t *testing.T) {
	storetest.Run(t, storetest.Real, func(t testing.TB) store.Store {
		coll := memmongo.New().Client(t).Database("d").Collection("c")
		return &keyed{docStore: newDocStore(coll, "lock"), coll: coll}
	})
}
