package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/pathlock"
)

const (
	treeBatch   = 5_000
	treeTurns   = 30
	treeClients = 50
	treeLong    = 4 * time.Second
)

// trees measures path locks on trees with many locks, and by many processes.
func trees(ctx context.Context, l *lab) ([]figure, error) {
	var sent atomic.Int64
	driver, err := connect(l.uri, &sent)
	if err != nil {
		return nil, err
	}
	defer driver.Disconnect(context.WithoutCancel(ctx))
	var pairs []func() error
	for _, many := range []int{10_000, 100_000, 0} {
		coll := locksOf(driver, fmt.Sprint("trees", many))
		tree, err := openTree(coll)
		if err != nil {
			return nil, err
		}
		defer func() { _ = tree.Close() }()
		if err := fillTree(ctx, tree, coll, many); err != nil {
			return nil, err
		}
		pairs = append(pairs, func() error { return treePair(ctx, tree, "/new") })
	}
	if err := pairs[0](); err != nil { // the first Lock asks for the time, and makes the indexes
		return nil, err
	}
	sent.Store(0)
	if err := pairs[0](); err != nil {
		return nil, err
	}
	commands := float64(sent.Load())
	small := raceOf(pairs[0], pairs[2])
	large := raceOf(pairs[1], pairs[2])
	if err := errors.Join(small.run(3, treeTurns), large.run(3, treeTurns)); err != nil {
		return nil, err
	}
	alone, _, err := treeCrowd(ctx, l, 1)
	if err != nil {
		return nil, err
	}
	together, each, err := treeCrowd(ctx, l, treeClients)
	ms := func(seconds float64) string { return fmt.Sprintf("an empty tree; %.1f ms", seconds*1000) }
	return []figure{
		{"commands of a path lock and its release", commands, "%.1f", 4, atMost, "counted: add, look, release"},
		{"lock and release on a tree of 10,000 path locks", small.ratio(1), "%.2f ×", 1.3, atMost, ms(small.median(0))},
		{"the same, of 100,000", large.ratio(1), "%.2f ×", 1.3, atMost, ms(large.median(0))},
		{"commands of each, 50 processes on paths of their own", each, "%.1f", 5, atMost, fmt.Sprintf("counted; %.0f a second, one process alone %.0f", together, alone)},
	}, err
}

func openTree(coll *mongo.Collection) (*pathlock.Tree, error) {
	storage, err := pathlock.OnMongo(coll)
	if err != nil {
		return nil, err
	}
	return pathlock.New(storage, "files")
}

// fillTree puts many locks into a tree: some hundred by the library, and copies of these under
// other names. A copy has the number of another path, or of a path above it, as any file in the
// same directory would.
func fillTree(ctx context.Context, tree *pathlock.Tree, coll *mongo.Collection, many int) error {
	if many == 0 {
		return nil
	}
	var directories []bson.D
	for i := range 100 {
		l, err := tree.Lock(ctx, pathlock.Request{Path: fmt.Sprintf("/dir%d/file", i), Timeouts: []time.Duration{time.Hour}})
		if err != nil {
			return err
		}
		var d bson.D
		if err := coll.FindOne(ctx, bson.D{{Key: "_id", Value: l.Token}}).Decode(&d); err != nil {
			return err
		}
		directories = append(directories, d)
	}
	for n := 0; n < many; {
		var batch []any
		for ; len(batch) < treeBatch && n < many; n++ {
			var d bson.D
			for _, e := range directories[n%len(directories)] {
				switch e.Key {
				case "_id":
					e.Value = fmt.Sprintf("urn:uuid:00000000-0000-4000-8000-%012d", n)
				case "path":
					e.Value = fmt.Sprintf("/dir%d/file%d", n%len(directories), n)
				case "on":
					e.Value = int64(rand.Uint64()) &^ 7 //nolint:gosec // any number
				}
				d = append(d, e)
			}
			batch = append(batch, d)
		}
		if _, err := coll.InsertMany(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func treePair(ctx context.Context, tree *pathlock.Tree, path string) error {
	l, err := tree.Lock(ctx, pathlock.Request{Path: path, Depth: pathlock.Infinity})
	if err != nil {
		return err
	}
	return tree.Release(ctx, l.Path, l.Token)
}

// treeCrowd has clients lock and release paths of their own for a while. It returns how
// many pairs they made a second, and the commands of each.
func treeCrowd(ctx context.Context, l *lab, clients int) (pairs, commands float64, err error) {
	var sent, made atomic.Int64
	var trees []*pathlock.Tree
	for range clients {
		driver, err := connect(l.uri, &sent)
		if err != nil {
			return 0, 0, err
		}
		defer driver.Disconnect(context.WithoutCancel(ctx))
		tree, err := openTree(locksOf(driver, "crowded"))
		if err != nil {
			return 0, 0, err
		}
		defer func() { _ = tree.Close() }()
		if err := treePair(ctx, tree, "/first"); err != nil && !errors.Is(err, pathlock.ErrConflict) {
			return 0, 0, err
		}
		trees = append(trees, tree)
	}
	sent.Store(0)
	var all sync.WaitGroup
	faults := make([]error, clients)
	began := time.Now()
	for i, tree := range trees {
		all.Go(func() {
			for time.Since(began) < treeLong && faults[i] == nil {
				faults[i] = treePair(ctx, tree, fmt.Sprintf("/own/%d", i))
				made.Add(1)
			}
		})
	}
	all.Wait()
	n := float64(made.Load())
	return n / time.Since(began).Seconds(), float64(sent.Load()) / n, errors.Join(faults...)
}
