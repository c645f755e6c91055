package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/doclock"
)

const (
	pendingMessages = 100_000
	dueAtOnce       = 100
	claimTurns      = 8
	allDueTurns     = 2
	allDueBare      = 3 // few, because each is slow
)

// A message is one of many documents that can be claimed.
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
	one, err := drainQueue(ctx, l, 1, 10_000)
	if err != nil {
		return nil, err
	}
	several, err := drainQueue(ctx, l, drainWorkers, 5_000)
	return append(figures, one, several), err
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

// A contest lets claims and bare commands by hand take turns, each on 100,000 pending
// documents of its own, with the index that serves it best.
type contest struct {
	locks *doclock.Locks[message]
	hand  byHand
	last  int // no document before it was claimed by its _id
}

// due returns a filter for the pending documents whose due time is in this range.
func due(from, to int) bson.D {
	return append(slices.Clone(isPending), bson.E{Key: "due", Value: bson.D{{Key: "$gte", Value: from}, {Key: "$lt", Value: to}}})
}

// claimOfMany compares means, because one claim in some pays for the look ahead of all.
// Medians leave the look ahead out and show the cost of a claim itself.
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
	c := &contest{locks, handOn(theirs), pendingMessages}
	few, err := c.fewDue(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.allDue(ctx)
	return append(few, all...), err
}

// fewDue measures a queue of which a few documents are due. Every server finds those by
// the index.
func (c *contest) fewDue(ctx context.Context) ([]figure, error) {
	var claims, bare, byID []float64
	for turn := range claimTurns + 1 {
		filter := due(turn*dueAtOnce, (turn+1)*dueAtOnce)
		ours, err := c.claim(ctx, filter, dueAtOnce)
		if err != nil {
			return nil, err
		}
		theirs, err := timed(dueAtOnce, func() error { return c.take(ctx, filter, options.FindOneAndUpdate().SetSort(firstDue)) })
		if err != nil {
			return nil, err
		}
		single, err := timed(dueAtOnce, func() error {
			c.last--
			return c.take(ctx, bson.D{{Key: "_id", Value: c.last}, isPending[0]}, options.FindOneAndUpdate())
		})
		if err != nil {
			return nil, err
		}
		if turn > 0 { // the first turn warms up
			claims, bare, byID = append(claims, ours...), append(bare, theirs...), append(byID, single...)
		}
	}
	return []figure{
		{"claim of one of 100,000, of which 100 are due", mean(claims) / mean(bare), "%.2f ×", 1.3, atMost,
			"a bare findOneAndUpdate with the same filter and sort"},
		{"the same, without its part of a look ahead", median(claims) / median(byID), "%.2f ×", 0, noTarget, "a bare findOneAndUpdate by `_id`"},
	}, nil
}

// allDue measures a queue of which all documents are due. How much a bare command reads then
// depends on the server, so explain is asked as well.
func (c *contest) allDue(ctx context.Context) ([]figure, error) {
	var claims, sorted, unsorted []float64
	for range allDueTurns {
		ours, err := c.claim(ctx, isPending, dueAtOnce)
		if err != nil {
			return nil, err
		}
		first, err := timed(allDueBare, func() error { return c.take(ctx, isPending, options.FindOneAndUpdate().SetSort(firstDue)) })
		if err != nil {
			return nil, err
		}
		anyOne, err := timed(allDueBare, func() error { return c.take(ctx, isPending, options.FindOneAndUpdate()) })
		if err != nil {
			return nil, err
		}
		claims, sorted, unsorted = append(claims, ours...), append(sorted, first...), append(unsorted, anyOne...)
	}
	examined, err := c.examined(ctx)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"claim of one of 100,000, all due", mean(claims) / mean(sorted), "%.3f ×", 1.3, atMost, fmt.Sprintf(
			"a bare findOneAndUpdate with the same filter and sort: %.0f ms here, though its explain says %s", 1000*mean(sorted), examined)},
		{"the same", mean(claims) / mean(unsorted), "%.3f ×", 0, noTarget, fmt.Sprintf("a bare one without the sort: %.0f ms here", 1000*mean(unsorted))},
	}, nil
}

// claim claims n documents and returns how long each claim took, in seconds. It completes
// them afterwards, untimed.
func (c *contest) claim(ctx context.Context, filter bson.D, n int) ([]float64, error) {
	var claimed []*doclock.Claimed[message]
	took, err := timed(n, func() error {
		one, err := c.locks.TryClaim(ctx, filter, firstDue)
		claimed = append(claimed, one)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, one := range claimed {
		if err := one.Complete(ctx); err != nil {
			return nil, err
		}
	}
	return took, nil
}

func (c *contest) take(ctx context.Context, filter bson.D, opts *options.FindOneAndUpdateOptionsBuilder) error {
	taken := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "taken"}}}}
	return c.hand.durable.FindOneAndUpdate(ctx, filter, taken, opts.SetReturnDocument(options.After)).Err()
}

// examined describes how many documents the bare command reads, as the server explains it.
func (c *contest) examined(ctx context.Context) (string, error) {
	reply, err := c.hand.durable.Database().RunCommand(ctx, bson.D{
		{Key: "explain", Value: bson.D{
			{Key: "findAndModify", Value: c.hand.durable.Name()}, {Key: "query", Value: isPending}, {Key: "sort", Value: firstDue},
			{Key: "update", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "taken"}}}}},
		}},
		{Key: "verbosity", Value: "executionStats"},
	}).Raw()
	if err != nil {
		return "", err
	}
	n, ok := reply.Lookup("executionStats", "totalDocsExamined").AsInt64OK()
	if !ok {
		return "not what it reads", nil
	}
	return fmt.Sprintf("documents read: %d", n), nil
}

// timed calls run n times and returns how long each call took, in seconds.
func timed(n int, run func() error) ([]float64, error) {
	took := make([]float64, n)
	for i := range took {
		start := time.Now()
		if err := run(); err != nil {
			return nil, err
		}
		took[i] = time.Since(start).Seconds()
	}
	return took, nil
}

func mean(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x / float64(len(xs))
	}
	return sum
}
