package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/pathlock"
)

const (
	treeBatch   = 5_000
	treeTurns   = 30
	treeClients = 50
	treeLong    = 4 * time.Second
	fewLocks    = 1000
)

// trees measures path locks on trees with many locks, and by many processes.
func trees(l *lab) []figure {
	var sent atomic.Int64
	driver := l.connect(&sent)
	var pairs []contestant
	for _, many := range []int{10_000, 100_000, 0} {
		coll := locksOf(driver, fmt.Sprint("trees", many))
		tree := l.tree(coll)
		if many > 0 {
			fillTree(l, tree, coll, many)
		}
		pairs = append(pairs, timed(func() { check(treePair(l, tree, "/new")) }))
	}
	pairs[0]() // the first Lock asks for the time, and makes the indexes
	sent.Store(0)
	pairs[0]()
	commands := float64(sent.Load())
	small, large := raceOf(3, treeTurns, pairs[0], pairs[2]), raceOf(3, treeTurns, pairs[1], pairs[2])
	alone, _ := treeCrowd(l, 1)
	together, each := treeCrowd(l, treeClients)
	ms := func(r race) string { return fmt.Sprintf("an empty tree; %.1f ms", r.median(0)*1000) }
	return []figure{
		{"commands of a path lock and its release", commands, "%.1f", 4, atMost, "counted: add, look, release"},
		{"lock and release on a tree of 10,000 path locks", small.ratio(1), "%.2f ×", 1.3, atMost, ms(small)},
		{"the same, of 100,000", large.ratio(1), "%.2f ×", 1.3, atMost, ms(large)},
		{"commands of each, 50 processes on paths of their own", each, "%.1f", 5, atMost, fmt.Sprintf("counted; %.0f a second, one process alone %.0f", together, alone)},
	}
}

func (l *lab) tree(coll *mongo.Collection) *pathlock.Tree {
	tree := must(pathlock.New(must(pathlock.OnMongo(coll)), "files"))
	l.atEnd(func() error { _ = tree.Close(); return nil })
	return tree
}

// fillTree puts many locks into a tree: some hundred by the library, and copies of these under
// other names. A copy has the number of another path, or of a path above it, as any file in the
// same directory would.
func fillTree(l *lab, tree *pathlock.Tree, coll *mongo.Collection, many int) {
	var directories []bson.D
	for i := range 100 {
		lock := must(tree.Lock(l.ctx, pathlock.Request{Path: fmt.Sprintf("/dir%d/file", i), Timeouts: []time.Duration{time.Hour}}))
		var d bson.D
		check(coll.FindOne(l.ctx, bson.D{{Key: "_id", Value: lock.Token}}).Decode(&d))
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
		must(coll.InsertMany(l.ctx, batch))
	}
}

func treePair(l *lab, tree *pathlock.Tree, path string) error {
	lock, err := tree.Lock(l.ctx, pathlock.Request{Path: path, Depth: pathlock.Infinity})
	if err != nil {
		return err
	}
	return tree.Release(l.ctx, lock.Token)
}

// treeCrowd has clients lock and release paths of their own for a while. It returns how
// many pairs they made a second, and the commands of each.
func treeCrowd(l *lab, clients int) (pairs, commands float64) {
	var sent, made atomic.Int64
	var all []*pathlock.Tree
	for range clients {
		tree := l.tree(locksOf(l.connect(&sent), "crowded"))
		if err := treePair(l, tree, "/first"); !errors.Is(err, pathlock.ErrConflict) {
			check(err)
		}
		all = append(all, tree)
	}
	sent.Store(0)
	began := time.Now()
	sideBySide(clients, func(i int) {
		for time.Since(began) < treeLong {
			check(treePair(l, all[i], fmt.Sprintf("/own/%d", i)))
			made.Add(1)
		}
	})
	n := float64(made.Load())
	return n / time.Since(began).Seconds(), float64(sent.Load()) / n
}

// listing measures how much memory it takes to list many locks.
func listing(l *lab) []figure {
	client, _ := l.locks("listed")
	fillLocks(l, "few", fewLocks)
	fillLocks(l, "many", *listed)
	few := peak(l, client, "few", fewLocks)
	began := time.Now()
	many := peak(l, client, "many", *listed)
	return []figure{
		{fmt.Sprintf("memory to list %d locks", *listed), many, "%.0f kB", 512, atMost,
			fmt.Sprintf("live heap at its peak; to list 1,000: %.0f kB; it took %.1f s", few, time.Since(began).Seconds())},
	}
}

// fillLocks writes locks of dead holders into the collection.
func fillLocks(l *lab, prefix string, n int) {
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
			must(locksOf(l.driver, "listed").InsertMany(l.ctx, docs))
			docs = docs[:0]
		}
	}
}

// peak returns by how much the live heap grows at most while locks are listed, in kB.
func peak(l *lab, client *mongolock.Client, prefix string, n int) float64 {
	before, most, seen := live(), 0.0, 0
	for _, err := range client.List(l.ctx, prefix+"/") {
		check(err)
		if seen++; seen%(n/20) == n/40 {
			most = max(most, live())
		}
	}
	if seen != n {
		check(fmt.Errorf("%d of %d locks were listed", seen, n))
	}
	return max(0, most-before) / 1024
}
