package mongostore

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/storetest"
)

// A storeAndShell is a store, and an operator with a shell beside it.
type storeAndShell struct {
	*Store
	coll  *mongo.Collection
	shape atomic.Int32
}

func (h *storeAndShell) Purge(key string) error {
	_, err := h.coll.DeleteOne(context.Background(), bson.D{{Key: "_id", Value: key}})
	return err
}

// Age makes a place older.
func (h *storeAndShell) Age(key string, p store.Place, by time.Duration) error {
	ctx, seen := context.Background(), "waits."+string(p)+".seen"
	raw, err := h.coll.FindOne(ctx, bson.D{{Key: "_id", Value: key}}).Raw()
	if err != nil {
		return err
	}
	date := raw.Lookup("waits", string(p), "seen").Time().Add(-by)
	_, err = h.coll.UpdateByID(ctx, key, bson.D{{Key: "$set", Value: bson.D{{Key: seen, Value: date}}}})
	return err
}

// ranOut is before now, and not so long ago that the server would remove what ended then.
var ranOut = time.Now().Add(-time.Minute).Truncate(time.Millisecond)

// foreignDocuments are documents that the store must not touch: other programs', with our fields and
// without, expired and not, and what a newer version might write.
var foreignDocuments = []bson.D{
	{{Key: "name", Value: "somebody's"}},
	{{Key: "mode", Value: "exclusive"}, {Key: "expireAt", Value: ranOut}, {Key: "holders", Value: bson.D{}}, {Key: "rev", Value: int64(1)}},
	{{Key: "mongolock", Value: 2}, {Key: "expireAt", Value: ranOut}},
	{{Key: "mongolock", Value: "1"}, {Key: "expireAt", Value: ranOut}},
	{{Key: "mongolock", Value: 1.5}, {Key: "expireAt", Value: ranOut}},
	{{Key: "mongolock", Value: 1}, {Key: "mode", Value: 3}, {Key: "expireAt", Value: ranOut}, {Key: "holders", Value: bson.D{}}, {Key: "rev", Value: int64(1)}},
	{{Key: "mongolock", Value: 1}, {Key: "mode", Value: "exclusive"}, {Key: "expireAt", Value: ranOut}, {Key: "holders", Value: bson.D{}}, {Key: "rev", Value: int64(1)}, {Key: "line", Value: "x"}},
	{{Key: "mode", Value: "exclusive"}, {Key: "holders", Value: bson.D{{Key: "x", Value: bson.D{{Key: "expireAt", Value: ranOut}}}}}, {Key: "expireAt", Value: time.UnixMilli(1)}},
}

func (h *storeAndShell) Foreign(key string) (intact func() error, err error) {
	shape := foreignDocuments[int(h.shape.Add(1)-1)%len(foreignDocuments)]
	doc := append(bson.D{{Key: "_id", Value: key}}, shape...)
	ctx := context.Background()
	if _, err := h.coll.ReplaceOne(ctx, bson.D{{Key: "_id", Value: key}}, doc, options.Replace().SetUpsert(true)); err != nil {
		return nil, err
	}
	before, err := h.coll.FindOne(ctx, bson.D{{Key: "_id", Value: key}}).Raw()
	return func() error {
		after, err := h.coll.FindOne(ctx, bson.D{{Key: "_id", Value: key}}).Raw()
		if err == nil && !bytes.Equal(before, after) {
			err = fmt.Errorf("the foreign document was\n%v\nand is\n%v", before, after)
		}
		return err
	}, err
}

// A ferretStore never hands over with the dates of the holder that leaves: FerretDB treats
// holders with equal dates as equal, and does not change them. Two readings of the clock may
// give one date, even some time apart, but not with two TTLs. It has no feed either: FerretDB
// delivers one wake-up in 20 ms, too slow for the claims with many of them.
type ferretStore struct {
	store.Store
	storetest.Purger
	storetest.Stranger
	storetest.Ager
}

func (f ferretStore) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	to.TTL -= 10 * time.Millisecond
	return f.Store.Transfer(ctx, from, to)
}

func TestTheStoreKeepsItsContract(t *testing.T) {
	// Not parallel: its claims are parallel, with short TTLs, and want no other tests beside
	// them. Through a router a holder that ran out is confirmed by watching it, which takes
	// longer than these claims wait.
	testserver.Need(t, "!router")
	hand := func(t testing.TB) *storeAndShell {
		f := newFixtureOnAny(t)
		if err := f.store.EnsureIndex(f.ctx()); err != nil {
			t.Log(err) // no claim depends on it
		}
		return &storeAndShell{Store: f.store, coll: f.coll}
	}
	if testserver.Has("atomic") {
		h := hand(t)
		storetest.Run(t, storetest.Real, func(testing.TB) store.Store { return h })
		return
	}
	testserver.Need(t)
	storetest.Run(t, storetest.Real, func(t testing.TB) store.Store {
		h := hand(t) // a collection for each: FerretDB reads all of it for most filters
		return ferretStore{h, h, h, h}
	})
}

func TestAForeignDocumentIsNamedByItsMark(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := &storeAndShell{Store: f.store, coll: f.coll}
	for i, shape := range foreignDocuments {
		key := fmt.Sprint("k", i)
		intact, err := h.Foreign(key)
		require.NoError(t, err)
		c := exclusiveClaim(key, time.Second)
		for _, c.Place = range []store.Place{"", "x:here:1"} {
			_, err := f.store.Acquire(f.ctx(), c)
			assert.ErrorIs(t, err, store.ErrForeign, "%v", shape)
			assert.ErrorContains(t, err, fieldVersion, "%v", shape)
		}
		assert.NoError(t, intact())
	}
}

// A document with our mark and without our shape was written by an unknown program. It is not
// taken over while it might have a holder, and disturbs no other key. Where a filter can name what is
// wrong, the document stays as it is.
func TestADamagedLockDocumentIsForeign(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	damaged := func(field string, value any) bson.D {
		d := bson.D{
			{Key: "mongolock", Value: 1}, {Key: "mode", Value: "exclusive"}, {Key: "holders", Value: bson.D{}},
			{Key: "expireAt", Value: time.Now().Add(24 * time.Hour)}, {Key: "rev", Value: int64(1)},
		}
		d = slices.DeleteFunc(d, func(e bson.E) bool { return e.Key == field })
		return append(d, bson.E{Key: field, Value: value})
	}
	const named, unnamed = true, false
	for i, c := range []struct {
		named bool
		shape bson.D
	}{
		{named, damaged("mongolock", bson.A{"another", 1})},
		{named, damaged("mode", 3)},
		{named, damaged("mode", bson.A{"exclusive"})},
		{named, damaged("rev", "7")},
		{named, damaged("rev", bson.A{int64(7)})},
		{named, damaged("expireAt", "soon")},
		{named, damaged("expireAt", bson.DateTime(-1))},
		{named, damaged("expireAt", bson.A{time.Now()})},
		{named, damaged("holders", "none")},
		{named, damaged("holders", bson.A{})},
		{named, damaged("holders", bson.A{bson.D{}})},
		{named, damaged("line", "x")},
		{named, damaged("line", bson.D{})},
		{named, damaged("waits", 3)},
		{named, damaged("waits", bson.A{})},
		{named, damaged("waits", bson.A{bson.D{}})},
		{named, bson.D{{Key: "mongolock", Value: 1}, {Key: "mode", Value: "exclusive"}}},
		{unnamed, damaged("holders", bson.D{{Key: "x", Value: 1}})},
		{unnamed, damaged("holders", bson.D{{Key: "x", Value: bson.D{{Key: "expireAt", Value: 1}}}})},
		{unnamed, damaged("rev", 1.5)},
		{unnamed, damaged("rev", math.NaN())},
		{unnamed, damaged("rev", 1e300)},
		{unnamed, damaged("holders", bson.D{{Key: "x", Value: bson.D{{Key: "expireAt", Value: time.UnixMilli(1)}, {Key: "ttl", Value: 1}, {Key: "beat", Value: 1.5}}}})},
		{unnamed, damaged("line", bson.A{1})},
		{unnamed, damaged("line", bson.A{""})},
		{unnamed, damaged("line", bson.A{"x:there.b:1"})},
		{unnamed, damaged("line", bson.A{"$x:there:1"})},
		{unnamed, append(damaged("line", bson.A{"x:there:1"}), bson.E{Key: "waits", Value: bson.D{{Key: "x:there:1", Value: bson.A{bson.D{}}}}})},
		{unnamed, append(damaged("line", bson.A{"x:there:1"}), bson.E{Key: "waits", Value: bson.D{{Key: "x:there:1", Value: bson.D{{Key: "seen", Value: "lately"}}}}})},
	} {
		key := fmt.Sprint("k", i)
		_, err := f.coll.InsertOne(f.ctx(), append(bson.D{{Key: "_id", Value: key}}, c.shape...))
		require.NoError(t, err)
		before, err := f.coll.FindOne(f.ctx(), bson.D{{Key: "_id", Value: key}}).Raw()
		require.NoError(t, err)
		claim := exclusiveClaim(key, time.Second)
		for _, claim.Mode = range []store.Mode{store.Exclusive, store.Shared} {
			for _, claim.Place = range []store.Place{"", "x:here:1"} {
				for _, claim.Held = range []bool{false, true} {
					_, err := f.store.Acquire(f.ctx(), claim)
					assert.ErrorIs(t, err, store.ErrForeign, "%v", c.shape)
				}
			}
		}
		assert.ErrorIs(t, f.store.Renew(f.ctx(), []store.Renewal{{Ref: claim.Ref, TTL: claim.TTL}})[0].Err, store.ErrForeign, "%v", c.shape)
		after, err := f.coll.FindOne(f.ctx(), bson.D{{Key: "_id", Value: key}}).Raw()
		require.NoError(t, err)
		if c.named {
			assert.Equal(t, before.String(), after.String())
		} else {
			assert.NotContains(t, after.String(), "x:here:1")
		}
	}
}
