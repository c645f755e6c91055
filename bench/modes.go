package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
)

const (
	readersIn     = 50  // that hold the key while another acquires and releases it
	readerPairs   = 400 // of that other reader
	readers       = 100 // that join and leave in a round, from several goroutines
	readerWorkers = 8
	readerRounds  = 10
	fewLocks      = 1000
)

// modes measures the cost of sharing a key.
func modes(ctx context.Context, l *lab) ([]figure, error) {
	var all []figure
	for _, take := range []func(context.Context, *lab) ([]figure, error){readerPair, crowdedJoins} {
		figures, err := take(ctx, l)
		if err != nil {
			return all, err
		}
		all = append(all, figures...)
	}
	return all, nil
}

// readerPair compares one more reader of a key that many share with a lease of a free
// key.
func readerPair(ctx context.Context, l *lab) ([]figure, error) {
	client, _, err := l.locks("readers")
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // what is left runs out
	for range readersIn {
		if _, err := client.Acquire(ctx, "shared", mongolock.Shared()); err != nil {
			return nil, err
		}
	}
	turns := raceOf(
		func() error {
			lease, err := client.Acquire(ctx, "shared", mongolock.Shared())
			if err != nil {
				return err
			}
			return lease.Release()
		},
		func() error { return pair(ctx, client, "free") })
	err = turns.run(20, readerPairs)
	return []figure{
		{"reader pair among 50 readers", turns.ratio(1), "%.2f ×", 3, atMost, "a free pair"},
	}, err
}

// crowdedJoins measures how often a join has to be repeated because another was faster:
// from goroutines of one process, and from as many processes.
func crowdedJoins(ctx context.Context, l *lab) ([]figure, error) {
	one, err := retriesPerJoin(ctx, l, "joins", 1)
	if err != nil {
		return nil, err
	}
	each, err := retriesPerJoin(ctx, l, "joins_apart", readerWorkers)
	return []figure{
		{"retries of a join, 100 readers from 8 goroutines", one, "%.2f", 1, atMost, "counted, per join"},
		{"the same from 8 processes", each, "%.2f", 0, noTarget, "counted, per join"},
	}, err
}

// retriesPerJoin lets 100 readers join and leave from 8 goroutines. They have one client,
// or one client each, which to the database is a process each.
func retriesPerJoin(ctx context.Context, l *lab, name string, clients int) (float64, error) {
	var sent, granted, made atomic.Int64 // made: a claim that finds no holder makes the document
	lockers := make([]*mongolock.Client, clients)
	for i := range lockers {
		conn, err := mongo.Connect(options.Client().ApplyURI(l.uri).SetMonitor(&event.CommandMonitor{
			Started: func(_ context.Context, e *event.CommandStartedEvent) {
				if isJoin(e.Command) {
					sent.Add(1)
				}
			},
			Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
				if _, err := e.Reply.LookupErr("lastErrorObject", "upserted"); err == nil {
					made.Add(1)
				}
			},
		}))
		if err != nil {
			return 0, err
		}
		defer conn.Disconnect(context.WithoutCancel(ctx))
		if lockers[i], err = mongolock.New(locksOf(conn, name), quiet); err != nil {
			return 0, err
		}
		defer lockers[i].Close() //nolint:errcheck // nothing is held any more
	}
	work := func(w int) error {
		var in []*mongolock.Lease
		for n := w; n < readers; n += readerWorkers {
			lease, err := lockers[w%clients].Acquire(ctx, "key", mongolock.Shared())
			if err != nil {
				return err
			}
			granted.Add(1)
			in = append(in, lease)
			if n%3 == 0 { // some leave while others come
				if err := in[0].Release(); err != nil {
					return err
				}
				in = in[1:]
			}
		}
		for _, lease := range in {
			if err := lease.Release(); err != nil {
				return err
			}
		}
		return nil
	}
	for range readerRounds {
		var wg sync.WaitGroup
		errs := make([]error, readerWorkers)
		for w := range readerWorkers {
			wg.Go(func() { errs[w] = work(w) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return 0, err
		}
	}
	return float64(sent.Load())/float64(granted.Load()-made.Load()) - 1, nil
}

// isJoin reports whether a command can add a reader.
func isJoin(command bson.Raw) bool {
	rev, err := command.LookupErr("update", "$set", "rev")
	return err == nil && rev.Type == bson.TypeInt64
}

// listing measures how much memory it takes to list many locks.
func listing(ctx context.Context, l *lab, locks int) ([]figure, error) {
	client, _, err := l.locks("listed")
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // it held nothing
	coll := locksOf(l.driver, "listed")
	if err := fill(ctx, coll, "few", fewLocks); err != nil {
		return nil, err
	}
	if err := fill(ctx, coll, "many", locks); err != nil {
		return nil, err
	}
	few, err := peak(ctx, client, "few", fewLocks)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	many, err := peak(ctx, client, "many", locks)
	return []figure{
		{fmt.Sprintf("memory to list %d locks", locks), many, "%.0f kB", 512, atMost,
			fmt.Sprintf("live heap at its peak; to list 1,000: %.0f kB; it took %.1f s", few, time.Since(began).Seconds())},
	}, err
}

// fill writes locks of dead holders into a collection.
func fill(ctx context.Context, coll *mongo.Collection, prefix string, n int) error {
	until := time.Now().Add(time.Hour)
	docs := make([]any, 0, 10_000)
	for i := range n {
		docs = append(docs, bson.D{
			{Key: "_id", Value: fmt.Sprintf("%s/%07d", prefix, i)}, {Key: "mongolock", Value: 1},
			{Key: "mode", Value: "exclusive"}, {Key: "limit", Value: 1},
			{Key: "holders", Value: bson.D{{Key: fmt.Sprint("ID", i), Value: bson.D{
				{Key: "owner", Value: "host/1"}, {Key: "note", Value: ""}, {Key: "since", Value: until}, {Key: "expireAt", Value: until},
				{Key: "ttl", Value: int64(30_000)}, {Key: "beat", Value: int64(i + 1)}, {Key: "epoch", Value: bson.NewObjectID()},
			}}}},
			{Key: "expireAt", Value: until}, {Key: "rev", Value: int64(i)}, {Key: "at", Value: until},
		})
		if len(docs) == cap(docs) || i == n-1 {
			if _, err := coll.InsertMany(ctx, docs); err != nil {
				return err
			}
			docs = docs[:0]
		}
	}
	return nil
}

// peak returns by how much the live heap grows at most while locks are listed, in kB.
func peak(ctx context.Context, client *mongolock.Client, prefix string, n int) (float64, error) {
	before, most, seen := live(), uint64(0), 0
	for _, err := range client.List(ctx, prefix+"/") {
		if err != nil {
			return 0, err
		}
		if seen++; seen%(n/20) == n/40 {
			most = max(most, live())
		}
	}
	if seen != n {
		return 0, fmt.Errorf("%d of %d locks were listed", seen, n)
	}
	return max(0, float64(most)-float64(before)) / 1024, nil
}

func live() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
