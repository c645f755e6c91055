package pathlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/pathlock"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// files makes a tree in memory. With OnMongo in the place of InMemory all processes with
// the same collection share it.
func files(opts ...pathlock.Option) *pathlock.Tree {
	tree, err := pathlock.New(pathlock.InMemory(), "files", opts...)
	check(err)
	return tree
}

func lock(path string, mode pathlock.Mode, depth pathlock.Depth) pathlock.Request {
	return pathlock.Request{Path: path, Mode: mode, Depth: depth, Timeouts: []time.Duration{time.Minute}}
}

// This is the example of the package comment, on a storage in memory.
func Example() {
	ctx := context.Background()
	tree, err := pathlock.New(pathlock.InMemory(), "files")
	check(err)
	defer tree.Close()
	_, err = tree.Lock(ctx, pathlock.Request{Path: "/reports/2026"})
	check(err)

	report := pathlock.Request{Path: "/reports/2026", Mode: pathlock.Exclusive, Depth: pathlock.Infinity}
	lock, err := tree.Lock(ctx, report)
	var conflict *pathlock.ConflictError
	if errors.As(err, &conflict) {
		fmt.Println(conflict.Len(), "in the way:", conflict.Same[0].Path)
		return
	}
	defer tree.Release(ctx, lock.Path, lock.Token)
	// Output: 1 in the way: /reports/2026
}

func ExampleNew() {
	ctx := context.Background()
	tree, err := pathlock.New(pathlock.InMemory(), "files")
	check(err)
	defer tree.Close()

	l, err := tree.Lock(ctx, lock("/reports/2026", pathlock.Exclusive, pathlock.Infinity))
	fmt.Println(l.Path, l.Left, err)
	_, err = tree.Lock(ctx, lock("/reports/2026/may.txt", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(errors.Is(err, pathlock.ErrConflict))
	check(tree.Release(ctx, l.Path, l.Token))
	_, err = tree.Lock(ctx, lock("/reports/2026/may.txt", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(err)
	// Output:
	// /reports/2026 1m0s <nil>
	// true
	// <nil>
}

// A conflict lists the locks in the way: above the path, on it, and below it.
func ExampleTree_Lock() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	for _, r := range []pathlock.Request{
		lock("/", pathlock.Shared, pathlock.Infinity),
		lock("/docs", pathlock.Shared, pathlock.Zero),
		lock("/docs/plan.txt", pathlock.Shared, pathlock.Zero),
	} {
		_, err := tree.Lock(ctx, r)
		check(err)
	}
	_, err := tree.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Infinity))
	var c *pathlock.ConflictError
	if errors.As(err, &c) {
		fmt.Println(c.Len(), c.Parents[0].Path, c.Same[0].Path, c.Children[0].Path)
	}
	// Output: 3 / /docs /docs/plan.txt
}

func ExampleTree_LockWait() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	r := lock("/docs", pathlock.Exclusive, pathlock.Zero)
	r.Timeouts = []time.Duration{200 * time.Millisecond}
	_, err := tree.Lock(ctx, r)
	check(err)

	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = tree.LockWait(short, r)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.Is(err, pathlock.ErrConflict))
	_, err = tree.LockWait(ctx, r) // until the first one has run out
	fmt.Println(err)
	// Output:
	// true true
	// <nil>
}

func ExampleTree_Refresh() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	l, err := tree.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Zero))
	check(err)
	fresh, err := tree.Refresh(ctx, l.Token, time.Hour)
	fmt.Println(fresh.Token == l.Token, fresh.Timeout, err)
	_, err = tree.Refresh(ctx, "urn:uuid:never-was")
	fmt.Println(err)
	// Output:
	// true 1h0m0s <nil>
	// pathlock: no lock has this token
}

func ExampleTree_Release() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	l, err := tree.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Infinity))
	check(err)
	fmt.Println(tree.Release(ctx, "/pictures", l.Token))
	fmt.Println(tree.Release(ctx, "/docs/plan.txt", l.Token)) // any path that it covers
	fmt.Println(tree.Release(ctx, "/docs", l.Token))
	// Output:
	// pathlock: the lock does not cover this path: "/pictures", but "/docs", depth infinity
	// <nil>
	// pathlock: no lock has this token
}

func ExampleByOwner() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	r := lock("/docs", pathlock.Exclusive, pathlock.Zero)
	r.Owner = []byte("Ada")
	l, err := tree.Lock(ctx, r)
	check(err)
	fmt.Println(tree.Release(ctx, "/docs", l.Token, pathlock.ByOwner([]byte("Bob"))))
	fmt.Println(tree.Release(ctx, "/docs", l.Token, pathlock.ByOwner([]byte("Ada"))))
	// Output:
	// pathlock: the lock has another owner: of "/docs"
	// <nil>
}

// An operator releases every lock.
func ExampleForce() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	_, err := tree.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Zero))
	check(err)
	all, err := tree.Locks(ctx)
	check(err)
	for _, l := range all {
		fmt.Println(l.Path, tree.Release(ctx, "/", l.Token, pathlock.Force()))
	}
	// Output: /docs <nil>
}

func ExampleTree_Locks() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	for _, path := range []string{"/b", "/a/x", "/a"} {
		_, err := tree.Lock(ctx, lock(path, pathlock.Shared, pathlock.Zero))
		check(err)
	}
	all, err := tree.Locks(ctx)
	check(err)
	for _, l := range all {
		fmt.Println(l.Path, l.Mode, l.Depth)
	}
	// Output:
	// /a shared 0
	// /a/x shared 0
	// /b shared 0
}

func ExampleTree_Affected() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	for _, r := range []pathlock.Request{
		lock("/", pathlock.Shared, pathlock.Infinity),
		lock("/a/x", pathlock.Shared, pathlock.Zero),
	} {
		_, err := tree.Lock(ctx, r)
		check(err)
	}
	around, err := tree.Affected(ctx, "/a", pathlock.WithChildren(), pathlock.WithParents())
	check(err)
	fmt.Println(around.Parents[0].Path, len(around.Same), around.Children[0].Path, around.Len())
	// Output: / 0 /a/x 2
}

func ExampleWithParents() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	_, err := tree.Lock(ctx, lock("/", pathlock.Shared, pathlock.Infinity))
	check(err)
	around, err := tree.Affected(ctx, "/a", pathlock.WithParents())
	fmt.Println(len(around.Parents), err)
	// Output: 1 <nil>
}

func ExampleWithChildren() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	_, err := tree.Lock(ctx, lock("/a/x", pathlock.Shared, pathlock.Zero))
	check(err)
	around, err := tree.Affected(ctx, "/a", pathlock.WithChildren())
	fmt.Println(len(around.Children), err)
	// Output: 1 <nil>
}

// A lock of depth 0 on a directory guards the list of its files, not their content.
func ExampleTree_Confirm() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	l, err := tree.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Zero))
	check(err)
	none, mine := []string(nil), []string{l.Token}
	fmt.Println(tree.Confirm(ctx, none, pathlock.Modify("/docs/plan.txt")))
	fmt.Println(tree.Confirm(ctx, none, pathlock.AddTo("/docs")))
	fmt.Println(tree.Confirm(ctx, none, pathlock.Delete("/docs/plan.txt")))
	fmt.Println(tree.Confirm(ctx, mine, pathlock.Delete("/docs/plan.txt"), pathlock.AddTo("/docs")))
	// Output:
	// <nil>
	// pathlock: may not add to "/docs": it is locked
	// pathlock: may not delete "/docs/plan.txt": "/docs" is locked
	// <nil>
}

func ExampleModify() {
	fmt.Println(pathlock.Modify("/docs/plan.txt"))
	// Output: modify "/docs/plan.txt"
}

func ExampleAddTo() {
	fmt.Println(pathlock.AddTo("/docs"))
	// Output: add to "/docs"
}

func ExampleDelete() {
	fmt.Println(pathlock.Delete("/docs"))
	// Output: delete "/docs"
}

func ExampleChange_String() {
	fmt.Println(pathlock.Change{Path: "/docs", Kind: pathlock.Deleting}.String())
	// Output: delete "/docs"
}

func ExampleTree_Watch() {
	ctx, tree := context.Background(), files()
	defer tree.Close()
	events, err := tree.Watch(ctx)
	check(err)
	r := lock("/docs", pathlock.Exclusive, pathlock.Zero)
	l, err := tree.Lock(ctx, r)
	check(err)
	check(tree.Release(ctx, "/docs", l.Token))
	r.Timeouts = []time.Duration{pathlock.MinTimeout}
	_, err = tree.Lock(ctx, r)
	check(err)
	for event, err := range events {
		check(err)
		fmt.Println(event.Kind, event.Lock.Path)
		if event.Kind == pathlock.Expired {
			break
		}
	}
	// Output:
	// added /docs
	// released /docs
	// added /docs
	// expired /docs
}

func ExampleTree_Close() {
	tree := files()
	fmt.Println(tree.Close())
	_, err := tree.Locks(context.Background())
	fmt.Println(err)
	// Output:
	// <nil>
	// pathlock: the tree is closed
}

func ExampleClean() {
	for _, path := range []string{"a//b/", "", "/f%20", "/a/../b"} {
		clean, err := pathlock.Clean(path)
		fmt.Printf("%q %v\n", clean, err)
	}
	// Output:
	// "/a/b" <nil>
	// "/" <nil>
	// "/f%20" <nil>
	// "" pathlock: not a path: "/a/../b": the segment ".." could mean anything
}

// A file system that ignores case has one file for both spellings.
func ExampleWithAlias() {
	ctx := context.Background()
	tree := files(pathlock.WithAlias(func(path string) (string, error) { return strings.ToLower(path), nil }))
	defer tree.Close()
	l, err := tree.Lock(ctx, lock("/Docs", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(l.Path, err)
	_, err = tree.Lock(ctx, lock("/DOCS", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(errors.Is(err, pathlock.ErrConflict))
	// Output:
	// /docs <nil>
	// true
}

func ExampleWithLimits() {
	ctx := context.Background()
	tree := files(pathlock.WithLimits(pathlock.Limits{Most: time.Hour}))
	defer tree.Close()
	r := lock("/docs", pathlock.Exclusive, pathlock.Zero)
	r.Timeouts = []time.Duration{pathlock.Infinite, 24 * time.Hour, 30 * time.Minute}
	l, err := tree.Lock(ctx, r)
	fmt.Println(l.Timeout, err) // the first wish that is allowed
	// Output: 30m0s <nil>
}

func ExampleWithPolicy() {
	ctx := context.Background()
	tree := files(pathlock.WithPolicy(func([]time.Duration) time.Duration { return 5 * time.Minute }))
	defer tree.Close()
	l, err := tree.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(l.Timeout, err)
	// Output: 5m0s <nil>
}

func ExampleLimits_Pick() {
	limits := pathlock.Limits{Least: time.Minute, Most: time.Hour, Default: 10 * time.Minute}
	fmt.Println(limits.Pick(nil))
	fmt.Println(limits.Pick([]time.Duration{pathlock.Infinite}))
	fmt.Println(limits.Pick([]time.Duration{time.Second}))
	fmt.Println(limits.Pick([]time.Duration{pathlock.Infinite, 20 * time.Minute}))
	// Output:
	// 10m0s
	// 1h0m0s
	// 1m0s
	// 20m0s
}

func ExampleLock_Covers() {
	l := pathlock.Lock{Path: "/a", Depth: pathlock.Infinity}
	fmt.Println(l.Covers("/a"), l.Covers("/a/b"), l.Covers("/ab"))
	// Output: true true false
}

func ExampleAffecting_Len() {
	fmt.Println(pathlock.Affecting{Same: make([]pathlock.Lock, 2)}.Len())
	// Output: 2
}

// OnMongo and New send nothing. The collection need not exist.
func ExampleOnMongo() {
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	check(err)
	defer func() { _ = conn.Disconnect(context.Background()) }()
	storage, err := pathlock.OnMongo(conn.Database("app").Collection("paths"))
	check(err)
	tree, err := pathlock.New(storage, "files")
	check(err)
	fmt.Println(tree.Close())
	// Output: <nil>
}

// An operator who grants no right to make indexes makes them once.
func ExampleMongo_EnsureIndex() {
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	check(err)
	storage, err := pathlock.OnMongo(conn.Database("app").Collection("paths"))
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	check(conn.Disconnect(context.Background())) // here nothing is to be sent
	fmt.Println(storage.EnsureIndex(ctx) != nil)
	// Output: true
}

func ExampleWithoutIndex() {
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	check(err)
	defer func() { _ = conn.Disconnect(context.Background()) }()
	_, err = pathlock.OnMongo(conn.Database("app").Collection("paths"), pathlock.WithoutIndex())
	fmt.Println(err)
	// Output: <nil>
}

func ExampleWithLogger() {
	conn, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	check(err)
	defer func() { _ = conn.Disconnect(context.Background()) }()
	_, err = pathlock.OnMongo(conn.Database("app").Collection("paths"), pathlock.WithLogger(slog.New(slog.DiscardHandler)))
	fmt.Println(err)
	// Output: <nil>
}

// A storage of your own has View and Update.
func ExampleOnDocuments() {
	type mine struct{ *pathlock.Memory }
	storage, err := pathlock.OnDocuments(mine{pathlock.InMemory()})
	check(err)
	tree, err := pathlock.New(storage, "files")
	check(err)
	defer tree.Close()
	_, err = tree.Lock(context.Background(), pathlock.Request{Path: "/docs"})
	fmt.Println(err)
	// Output: <nil>
}

// The processes of one host need no server.
func ExampleInDir() {
	dir, err := os.MkdirTemp("", "paths")
	check(err)
	defer os.RemoveAll(dir)
	storage, err := pathlock.InDir(dir)
	check(err)
	defer storage.Close()
	tree, err := pathlock.New(storage, "files")
	check(err)
	defer tree.Close()
	_, err = tree.Lock(context.Background(), lock("/docs", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(err)
	// Output: <nil>
}

func ExampleDir_Close() {
	dir, err := os.MkdirTemp("", "paths")
	check(err)
	defer os.RemoveAll(dir)
	storage, err := pathlock.InDir(dir)
	check(err)
	fmt.Println(storage.Close())
	// Output: <nil>
}

// Two trees with the same storage and name behave like two processes.
func ExampleInMemory() {
	ctx, storage := context.Background(), pathlock.InMemory()
	one, err := pathlock.New(storage, "files")
	check(err)
	defer one.Close()
	two, err := pathlock.New(storage, "files")
	check(err)
	defer two.Close()
	_, err = one.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(err)
	_, err = two.Lock(ctx, lock("/docs", pathlock.Exclusive, pathlock.Zero))
	fmt.Println(errors.Is(err, pathlock.ErrConflict))
	// Output:
	// <nil>
	// true
}

func ExampleInMemoryWithClock() {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	tree, err := pathlock.New(pathlock.InMemoryWithClock(func() time.Time { return now }), "files")
	check(err)
	defer tree.Close()
	l, err := tree.Lock(context.Background(), lock("/docs", pathlock.Exclusive, pathlock.Zero))
	check(err)
	now = now.Add(time.Minute) // and it has run out
	_, err = tree.Refresh(context.Background(), l.Token)
	fmt.Println(l.ExpireAt.Format(time.TimeOnly), err)
	// Output: 12:01:00 pathlock: no lock has this token
}

// A storage of your own keeps documents, and applies edits to them.
func ExampleDocument_Apply() {
	doc := pathlock.NewDocument(stored("1", "/a", 20))
	doc.Apply(pathlock.Edit{Drop: []string{"urn:uuid:1"}, Put: []pathlock.Lock{stored("2", "/b", 30)}})
	for l := range doc.Locks() {
		fmt.Println(l.Path)
	}
	// Output: /b
}

func stored(token, path string, second int64) pathlock.Lock {
	return pathlock.Lock{Token: "urn:uuid:" + token, Path: path, Mode: pathlock.Shared, Depth: pathlock.Zero, ExpireAt: time.Unix(second, 0)}
}

func ExampleNewDocument() {
	doc := pathlock.NewDocument() // a tree that nobody has written
	fmt.Println(doc.Seq, len(doc.Log))
	// Output: 0 0
}

func ExampleDocument_Locks() {
	for l := range pathlock.NewDocument(stored("1", "/a", 20)).Locks() {
		fmt.Println(l.Token)
	}
	// Output: urn:uuid:1
}

// A storage that knows its clock only as an interval looks at it again if a lock runs out
// within the interval.
func ExampleDocument_RunsOutBetween() {
	doc := pathlock.NewDocument(stored("1", "/a", 20))
	fmt.Println(doc.RunsOutBetween(time.Unix(19, 0), time.Unix(21, 0)), doc.RunsOutBetween(time.Unix(20, 0), time.Unix(21, 0)))
	// Output: true false
}

func ExampleEdit_Empty() {
	fmt.Println(pathlock.Edit{}.Empty(), pathlock.Edit{Touch: true}.Empty())
	// Output: true false
}
