package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/doclock"
)

const (
	pendingMessages = 100_000
	claimTurns      = 6
	drainedMessages = 10_000
	drainWorkers    = 8
)

// A message is one of many that wait to be claimed.
type message struct {
	ID    int    `bson:"_id"`
	State string `bson:"state"`
	Due   int    `bson:"due"`
	Text  string `bson:"text"`
}

var (
	isPending = bson.D{{Key: "state", Value: "pending"}}
	firstDue  = bson.D{{Key: "due", Value: 1}}
)

// documentClaims measures what it costs to claim one document of many.
func documentClaims(ctx context.Context, l *lab) ([]figure, error) {
	figures, err := claimOfMany(ctx, l)
	if err != nil {
		return nil, err
	}
	drained, err := drainQueue(ctx, l)
	return append(figures, drained...), err
}

func fillQueue(ctx context.Context, coll *mongo.Collection, n int) error {
	for from := 0; from < n; from += 10_000 {
		var docs []any
		for i := from; i < min(n, from+10_000); i++ {
			docs = append(docs, message{i, "pending", i, "somebody should be told that something has happened"})
		}
		if _, err := coll.InsertMany(ctx, docs); err != nil {
			return err
		}
	}
	return nil
}

// claimOfMany races claims against a bare findOneAndUpdate with the same filter and
// sort, each on 100,000 pending documents and with the index that serves it best.
// There it compares means: a claim now and then pays for a look ahead. Medians leave
// that out, and tell what the claim itself costs.
func claimOfMany(ctx context.Context, l *lab) (figures []figure, err error) {
	db := l.driver.Database("bench_claims")
	defer func() { err = errors.Join(err, db.Drop(ctx)) }()
	ours, theirs := db.Collection("ours"), db.Collection("theirs")
	for _, coll := range []*mongo.Collection{ours, theirs} {
		if err := fillQueue(ctx, coll, pendingMessages); err != nil {
			return nil, err
		}
	}
	locks, err := doclock.New[message](ours, doclock.With(quiet))
	if err != nil {
		return nil, err
	}
	defer locks.Close() //nolint:errcheck // what is left runs out
	if err := locks.EnsureClaimIndex(ctx, isPending, firstDue); err != nil {
		return nil, err
	}
	if _, err := theirs.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "state", Value: 1}, {Key: "due", Value: 1}}}); err != nil {
		return nil, err
	}
	hand := handOn(theirs)
	var claimed []*doclock.Claimed[message]
	claim := func() error {
		c, err := locks.TryClaim(ctx, isPending, firstDue)
		claimed = append(claimed, c)
		return err
	}
	taken := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "taken"}}}}
	first := options.FindOneAndUpdate().SetSort(firstDue).SetReturnDocument(options.After)
	bare := func() error { return hand.durable.FindOneAndUpdate(ctx, isPending, taken, first).Err() }
	next := pendingMessages
	byID := func() error {
		next--
		return hand.durable.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: next}, isPending[0]}, taken, first).Err()
	}
	contestants := []struct {
		run   func() error
		times int       // in a row: what is slow needs fewer
		took  []float64 // seconds
	}{{run: claim, times: 100}, {run: bare, times: 5}, {run: byID, times: 100}}
	for turn := range claimTurns + 1 {
		for i := range contestants {
			c := &contestants[i]
			for range c.times {
				start := time.Now()
				if err := c.run(); err != nil {
					return nil, err
				}
				if turn > 0 { // the first is to get warm
					c.took = append(c.took, time.Since(start).Seconds())
				}
			}
		}
		for _, c := range claimed {
			if err := c.Complete(ctx); err != nil {
				return nil, err
			}
		}
		claimed = nil
	}
	mean := func(i int) (sum float64) {
		for _, s := range contestants[i].took {
			sum += s
		}
		return sum / float64(len(contestants[i].took))
	}
	mid := func(i int) float64 { return median(contestants[i].took) }
	return []figure{
		{"claim of one of 100,000", mean(0) / mean(1), "%.3f ×", 1.3, atMost,
			fmt.Sprintf("a bare findOneAndUpdate with the same filter and sort, which takes this server %.0f ms", 1000*mean(1))},
		{"claim of one of 100,000, but for its part of a look ahead", mid(0) / mid(2), "%.2f ×", 0, noTarget, "a bare findOneAndUpdate by `_id`"},
	}, nil
}

// drainQueue has eight workers of one process claim and complete 10,000 messages, and
// counts what is sent for the claims.
func drainQueue(ctx context.Context, l *lab) (figures []figure, err error) {
	var sent atomic.Int64
	driver, err := connect(l.uri, &sent)
	if err != nil {
		return nil, err
	}
	defer driver.Disconnect(ctx)
	db := driver.Database("bench_drain")
	defer func() { err = errors.Join(err, db.Drop(ctx)) }()
	if err := fillQueue(ctx, db.Collection("outbox"), drainedMessages); err != nil {
		return nil, err
	}
	locks, err := doclock.New[message](db.Collection("outbox"), doclock.With(quiet))
	if err != nil {
		return nil, err
	}
	defer locks.Close() //nolint:errcheck // nothing is held any more
	if err := locks.EnsureClaimIndex(ctx, isPending, firstDue); err != nil {
		return nil, err
	}
	sent.Store(0)
	var claims, completed atomic.Int64
	var failed error
	var once sync.Once
	var workers sync.WaitGroup
	for range drainWorkers {
		workers.Go(func() {
			for {
				c, err := locks.TryClaim(ctx, isPending, firstDue)
				if errors.Is(err, doclock.ErrNoWork) {
					return
				}
				if err == nil {
					claims.Add(1)
					c.Value.State = "sent"
					err = c.Complete(ctx)
				}
				if err != nil {
					once.Do(func() { failed = err })
					return
				}
				completed.Add(1)
			}
		})
	}
	workers.Wait()
	if failed == nil && completed.Load() != drainedMessages {
		failed = fmt.Errorf("%d of %d messages were completed", completed.Load(), drainedMessages)
	}
	perClaim := float64(sent.Load()-completed.Load()) / float64(max(1, claims.Load()))
	return []figure{{"commands for a claim", perClaim, "%.3f", 1.3, atMost, "8 workers drain 10,000 messages"}}, failed
}
