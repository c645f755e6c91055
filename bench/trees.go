package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/pathlock"
)

const (
	treeLocks = 10_000
	treeBatch = 500
	treeTurns = 8
	treeMost  = 8 << 20 // the largest document of a tree; MongoDB's limit is twice that
)

// trees measures path locks on a tree with many locks: each request reads its document
// whole, and writes a part of it.
func trees(ctx context.Context, l *lab) ([]figure, error) {
	var sent atomic.Int64
	driver, err := connect(l.uri, &sent)
	if err != nil {
		return nil, err
	}
	defer driver.Disconnect(context.WithoutCancel(ctx))
	coll := locksOf(driver, "trees")
	mine, err := pathlock.OnMongo(coll)
	if err != nil {
		return nil, err
	}
	other, err := pathlock.OnMongo(locksOf(l.driver, "trees"))
	if err != nil {
		return nil, err
	}
	size, err := largeTree(ctx, mine, coll)
	if err != nil {
		return nil, err
	}
	sent.Store(0) // the first edit also asked for the time
	if err := treePair(ctx, mine, "large"); err != nil {
		return nil, err
	}
	commands := float64(sent.Load()) / 2

	alone := raceOf(
		func() error { return treePair(ctx, mine, "large") },
		func() error { return treePair(ctx, mine, "small") })
	inTurn := raceOf(
		func() error { return treePair(ctx, mine, "large") },
		func() error { return treePair(ctx, other, "large") },
		func() error { return treePair(ctx, mine, "small") })
	err = errors.Join(alone.run(2, treeTurns), inTurn.run(1, treeTurns))
	ms := func(seconds float64) string { return fmt.Sprintf("an empty tree; %.1f ms", seconds*1000) }
	return []figure{
		{"commands of a request on a tree of 10,000 path locks", commands, "%.1f", 2, atMost, "counted: a read and a write"},
		{"lock and release there", alone.ratio(1), "%.1f ×", 0, noTarget, ms(alone.median(0))},
		{"the same, two processes in turn", inTurn.ratio(2), "%.1f ×", 0, noTarget, ms(inTurn.median(0)) + ": each reads what the other wrote"},
		{"the document of that tree", float64(size) / (1 << 20), "%.2f MB", treeMost >> 20, atMost, fmt.Sprintf("the size at which new locks are refused, at %d like these", treeMost/(size/treeLocks))},
	}, err
}

// largeTree puts many locks into a tree, some hundred at a time, and returns the size of
// its document.
func largeTree(ctx context.Context, storage pathlock.Storage, coll *mongo.Collection) (size int, err error) {
	for i := 0; i < treeLocks && err == nil; i += treeBatch {
		_, err = storage.Update(ctx, "large", func(_ *pathlock.Document, now pathlock.Clock) (pathlock.Edit, error) {
			var e pathlock.Edit
			for n := i; n < i+treeBatch; n++ {
				e.Put = append(e.Put, pathlock.Lock{
					Token: fmt.Sprintf("urn:uuid:00000000-0000-4000-8000-%012d", n), Path: fmt.Sprintf("/dir%d/file%d", n/100, n%100),
					Mode: pathlock.Exclusive, Depth: pathlock.Zero, Timeout: time.Hour, Since: now.Latest, ExpireAt: now.Latest.Add(time.Hour),
				})
			}
			return e, nil
		})
	}
	if err != nil {
		return 0, err
	}
	raw, err := coll.FindOne(ctx, bson.D{{Key: "_id", Value: "large"}}).Raw()
	return len(raw), err
}

func treePair(ctx context.Context, storage pathlock.Storage, name string) error {
	tree, err := pathlock.New(storage, name)
	if err != nil {
		return err
	}
	l, err := tree.Lock(ctx, pathlock.Request{Path: "/new", Mode: pathlock.Exclusive, Depth: pathlock.Infinity})
	if err == nil {
		err = tree.Release(ctx, l.Path, l.Token)
	}
	return errors.Join(err, tree.Close())
}
