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

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/mongostore"
	"github.com/stretchr/testify/require"
)

// byHand is what one would write with the driver alone, under the same concerns.
type byHand struct{ durable, soft *mongo.Collection }

// pair is the same two commands as a lease's.
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
				{Key: "expireAt", Value: until}, {Key: "rev", Value: bson.NewObjectID()},
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

// barest is the least that anybody could write and call a lock.
func (h byHand) barest(ctx context.Context, key string) error {
	err := h.durable.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: key}}, bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}},
		options.FindOneAndUpdate().SetUpsert(true)).Err()
	if err != nil && err != mongo.ErrNoDocuments {
		return err
	}
	_, err = h.soft.DeleteOne(ctx, bson.D{{Key: "_id", Value: key}})
	return err
}

// A race runs its contestants in turn, so that what slows the machine slows all of
// them, and compares their medians.
type race struct {
	names []string
	runs  []func() error
	took  [][]time.Duration
}

func (r *race) add(name string, run func() error) {
	r.names, r.runs, r.took = append(r.names, name), append(r.runs, run), append(r.took, nil)
}

func (r *race) lap(b *testing.B) {
	for _, who := range mathrand.Perm(len(r.runs)) { // nobody always comes after the same one
		start := time.Now()
		if err := r.runs[who](); err != nil {
			b.Fatalf("%s: %v", r.names[who], err)
		}
		r.took[who] = append(r.took[who], time.Since(start))
	}
}

// judge reports the first contestant's ratio to each of the others, and fails if it
// is over its limit in a run long enough to tell.
func (r *race) judge(b *testing.B, enough int, limits ...float64) {
	var medians []float64
	for _, took := range r.took {
		slices.Sort(took)
		medians = append(medians, float64(took[len(took)/2]))
	}
	for i, m := range medians {
		b.ReportMetric(m/1e3, "µs/"+r.names[i])
		if i == 0 {
			continue
		}
		ratio := medians[0] / m
		b.ReportMetric(ratio, "×"+r.names[i])
		if len(r.took[i]) >= enough && ratio > limits[i-1] {
			b.Errorf("%s takes %.3f times %s, more than %.2f", r.names[0], ratio, r.names[i], limits[i-1])
		}
	}
}

// A racecourse is a collection for contestants that have a connection each.
type racecourse struct {
	t    testing.TB
	coll *mongo.Collection
}

func newRacecourse(t testing.TB) racecourse {
	mongoNeeds(t, "atomic")
	return racecourse{t, mongoColl(t, mongoClient(t))}
}

func (b racecourse) another() *mongo.Collection {
	return mongoClient(b.t).Database(b.coll.Database().Name()).Collection(b.coll.Name())
}

func (b racecourse) store() *mongostore.Store {
	s, err := mongostore.New(b.another(), mongostore.WithoutIndex(), mongostore.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(b.t, err)
	return s
}

func (b racecourse) client() *mongolock.Client {
	c, err := mongolock.NewWithStore(b.store(), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (b racecourse) byHand() byHand {
	coll, journaled := b.another(), true
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

// pair is a pair on the store alone, under a bound like the engine's.
func (b racecourse) pair(s *mongostore.Store, key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := exclusive(key, 30*time.Second)
	if _, err := s.Acquire(ctx, c); err != nil {
		return err
	}
	_, err := s.Release(ctx, c.Ref, 0)
	return err
}

// BenchmarkFreePairs races a lease of a free key against the same two commands by
// hand and against the barest pair. Run it with -benchtime 2000x.
func BenchmarkFreePairs(b *testing.B) {
	bench := newRacecourse(b)
	client, hand, alone := bench.client(), bench.byHand(), bench.store()
	ctx := context.Background()
	var r race
	r.add("lease", func() error { return pairOf(client, "lease") })
	r.add("by-hand", func() error { return hand.pair(ctx, "hand") })
	r.add("barest", func() error { return hand.barest(ctx, "barest") })
	r.add("store", func() error { return bench.pair(alone, "store") }) // shows the engine's part
	for range 50 {
		r.lap(b)
	}
	r.took = make([][]time.Duration, len(r.runs))
	b.ResetTimer()
	for range b.N {
		r.lap(b)
	}
	r.judge(b, 2000, 1.10, 1.25, math.Inf(1))
}

// BenchmarkRenewalRounds races a round of 1,000 renewals against the same bulk by
// hand.
func BenchmarkRenewalRounds(b *testing.B) {
	bench := newRacecourse(b)
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
	var r race
	r.add("round", func() error {
		for _, answer := range s.Renew(b.Context(), batch) {
			if answer.Err != nil {
				return answer.Err
			}
		}
		return nil
	})
	r.add("by-hand", func() error {
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
		r.lap(b)
	}
	r.took = make([][]time.Duration, len(r.runs))
	b.ResetTimer()
	for range b.N {
		r.lap(b)
	}
	r.judge(b, 20, 1.2)
}

// The allocations of a pair, beside those of the driver alone.
func BenchmarkLeasePair(b *testing.B) {
	client := newRacecourse(b).client()
	b.ReportAllocs()
	for b.Loop() {
		if err := pairOf(client, "k"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHandPair(b *testing.B) {
	hand := newRacecourse(b).byHand()
	b.ReportAllocs()
	for b.Loop() {
		if err := hand.pair(context.Background(), "k"); err != nil {
			b.Fatal(err)
		}
	}
}
