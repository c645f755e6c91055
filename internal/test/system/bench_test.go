package system

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/mongostore"
)

// byHand is a lock written with the driver alone, under the same concerns.
type byHand struct{ durable, soft *mongo.Collection }

// pair sends the same two commands as a lease does.
func (h byHand) pair(ctx context.Context, key string) error {
	id, now := rand.Text(), time.Now()
	until := now.Add(30 * time.Second)
	err := h.durable.FindOneAndUpdate(ctx,
		bson.D{{Key: "_id", Value: key}, {Key: "mongolock", Value: 1}, {Key: "expireAt", Value: bson.D{{Key: "$lte", Value: now}}}},
		bson.D{
			{Key: "$set", Value: bson.D{
				{Key: "mode", Value: "exclusive"}, {Key: "limit", Value: 1},
				{Key: "holders", Value: bson.D{{Key: id, Value: bson.D{
					{Key: "owner", Value: "owner"}, {Key: "note", Value: ""}, {Key: "since", Value: now}, {Key: "expireAt", Value: until},
				}}}},
				{Key: "expireAt", Value: until}, {Key: "rev", Value: int64(1)},
			}},
			{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}},
		}, options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Err()
	if err != nil {
		return err
	}
	return h.soft.FindOneAndDelete(ctx, bson.D{
		{Key: "_id", Value: key}, {Key: "mongolock", Value: 1}, {Key: "mode", Value: "exclusive"},
		{Key: "holders." + id, Value: bson.D{{Key: "$exists", Value: true}}},
	}).Err()
}

// barest sends the least that could be called a lock.
func (h byHand) barest(ctx context.Context, key string) error {
	err := h.durable.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: key}}, bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}},
		options.FindOneAndUpdate().SetUpsert(true)).Err()
	if err != nil && err != mongo.ErrNoDocuments {
		return err
	}
	_, err = h.soft.DeleteOne(ctx, bson.D{{Key: "_id", Value: key}})
	return err
}

// A comparison runs its subjects in turn, so that whatever slows the machine slows all of
// them, and compares their medians.
type comparison struct {
	names []string
	runs  []func() error
	took  [][]time.Duration
}

func (c *comparison) add(name string, run func() error) {
	c.names, c.runs, c.took = append(c.names, name), append(c.runs, run), append(c.took, nil)
}

func (c *comparison) lap(b *testing.B) {
	for _, who := range mathrand.Perm(len(c.runs)) { // so that no subject always follows the same one
		start := time.Now()
		if err := c.runs[who](); err != nil {
			b.Fatalf("%s: %v", c.names[who], err)
		}
		c.took[who] = append(c.took[who], time.Since(start))
	}
}

// judge reports the first subject's ratio to each of the others. It fails if a ratio is over
// its limit and the run was long enough to tell.
func (c *comparison) judge(b *testing.B, enough int, limits ...float64) {
	var medians []float64
	for _, took := range c.took {
		slices.Sort(took)
		medians = append(medians, float64(took[len(took)/2]))
	}
	for i, m := range medians {
		b.ReportMetric(m/1e3, "µs/"+c.names[i])
		if i == 0 {
			continue
		}
		ratio := medians[0] / m
		b.ReportMetric(ratio, "×"+c.names[i])
		if len(c.took[i]) >= enough && ratio > limits[i-1] {
			b.Errorf("%s takes %.3f times %s, more than %.2f", c.names[0], ratio, c.names[i], limits[i-1])
		}
	}
}

// A pairFixture is a collection for subjects that have a connection each.
type pairFixture struct {
	t    testing.TB
	coll *mongo.Collection
}

func newPairFixture(t testing.TB) pairFixture {
	testserver.Need(t, "atomic")
	return pairFixture{t, testserver.Collection(t, testserver.Client(t))}
}

func (f pairFixture) another() *mongo.Collection {
	return testserver.Client(f.t).Database(f.coll.Database().Name()).Collection(f.coll.Name())
}

func (f pairFixture) store() *mongostore.Store {
	s, err := mongostore.New(f.another(), mongostore.WithoutIndex(), mongostore.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(f.t, err)
	return s
}

func (f pairFixture) client() *mongolock.Client {
	c, err := mongolock.NewWithStore(f.store(), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (f pairFixture) byHand() byHand {
	coll, journaled := f.another(), true
	return byHand{
		durable: mongobase.Under(coll, &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}),
		soft:    mongobase.Under(coll, writeconcern.W1()),
	}
}

func exclusive(key string, ttl time.Duration) store.Claim {
	return store.Claim{Ref: store.Ref{Key: key, ID: rand.Text(), Mode: store.Exclusive}, Limit: 1, TTL: ttl, Owner: "owner", Note: "note"}
}

func pairOf(c *mongolock.Client, key string) error {
	lease, err := c.TryAcquire(context.Background(), key)
	if err != nil {
		return err
	}
	return lease.Release()
}

// pair acquires and releases on the store alone, under a bound like the engine's.
func (f pairFixture) pair(s *mongostore.Store, key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := exclusive(key, 30*time.Second)
	if _, err := s.Acquire(ctx, c); err != nil {
		return err
	}
	_, err := s.Release(ctx, store.Ending{Ref: c.Ref})
	return err
}

// BenchmarkFreePairs compares a lease of a free key with the same two commands by hand and
// with the barest pair. Run it with -benchtime 2000x.
func BenchmarkFreePairs(b *testing.B) {
	bench := newPairFixture(b)
	client, hand, alone := bench.client(), bench.byHand(), bench.store()
	ctx := context.Background()
	var c comparison
	c.add("lease", func() error { return pairOf(client, "lease") })
	c.add("by-hand", func() error { return hand.pair(ctx, "hand") })
	c.add("barest", func() error { return hand.barest(ctx, "barest") })
	c.add("store", func() error { return bench.pair(alone, "store") }) // shows the engine's part
	for range 50 {
		c.lap(b)
	}
	c.took = make([][]time.Duration, len(c.runs))
	b.ResetTimer()
	for range b.N {
		c.lap(b)
	}
	c.judge(b, 2000, 1.10, 1.25, math.Inf(1))
}

// BenchmarkRenewalRounds compares a round of 1,000 renewals with the same bulk by hand.
func BenchmarkRenewalRounds(b *testing.B) {
	bench := newPairFixture(b)
	s, hand := bench.store(), bench.byHand()
	batch := make([]store.Renewal, 1000)
	for i := range batch {
		c := exclusive(fmt.Sprintf("k%d", i), 30*time.Second)
		batch[i] = store.Renewal{Ref: c.Ref, TTL: c.TTL}
	}
	for i, one := range batch {
		_, err := s.Acquire(b.Context(), store.Claim{Ref: one.Ref, Limit: 1, TTL: 10 * time.Minute})
		require.NoError(b, err, "lock %d", i)
	}
	var c comparison
	c.add("round", func() error {
		for _, answer := range s.Renew(b.Context(), batch) {
			if answer.Err != nil {
				return answer.Err
			}
		}
		return nil
	})
	c.add("by-hand", func() error {
		models := make([]mongo.WriteModel, len(batch))
		now := time.Now()
		until := now.Add(30 * time.Second)
		for i, one := range batch {
			h := "holders." + one.ID
			models[i] = mongo.NewUpdateOneModel().
				SetFilter(bson.D{
					{Key: "_id", Value: one.Key}, {Key: "mongolock", Value: 1},
					{Key: h + ".expireAt", Value: bson.D{{Key: "$gt", Value: now}}},
					{Key: h + ".broken", Value: bson.D{{Key: "$exists", Value: false}}},
					{Key: h + ".released", Value: bson.D{{Key: "$exists", Value: false}}},
				}).
				SetUpdate(bson.D{
					{Key: "$max", Value: bson.D{{Key: h + ".expireAt", Value: until}, {Key: "expireAt", Value: until}}},
					{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}},
				})
		}
		_, err := hand.durable.BulkWrite(b.Context(), models, options.BulkWrite().SetOrdered(false))
		return err
	})
	for range 4 {
		c.lap(b)
	}
	c.took = make([][]time.Duration, len(c.runs))
	b.ResetTimer()
	for range b.N {
		c.lap(b)
	}
	c.judge(b, 20, 1.2)
}

// BenchmarkLeasePair and BenchmarkHandPair show the allocations of a pair, of a lease and of
// the driver alone.
func BenchmarkLeasePair(b *testing.B) {
	client := newPairFixture(b).client()
	b.ReportAllocs()
	for b.Loop() {
		if err := pairOf(client, "k"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHandPair(b *testing.B) {
	hand := newPairFixture(b).byHand()
	b.ReportAllocs()
	for b.Loop() {
		if err := hand.pair(context.Background(), "k"); err != nil {
			b.Fatal(err)
		}
	}
}
