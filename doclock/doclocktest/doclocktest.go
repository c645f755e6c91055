// Package doclocktest tests code that locks documents. It has real Locks, over the real driver,
// on a MongoDB in memory, and causes the three things that go wrong with locks.
//
//	func TestAnOrderThatIsBeingPacked(t *testing.T) {
//		orders := doclocktest.New[Order](t)
//		orders.Insert(Order{ID: "order-17", State: "new"})
//		release := orders.Hold(doclock.ID("order-17"))
//		... // your code, given orders.Locks, finds the order held
//		release()
//		... // and now it finds the order free
//	}
//
// [Locks.Hold] locks a document as another process would, [Locks.Lose] takes a document away
// from your code, and [Locks.Fail] makes the database unreachable. Everything else (waiting,
// claiming, renewing, expiring, saving) is done by package doclock itself.
//
// It works in real time and in virtual time. With testing/synctest, call New inside the bubble
// and with the bubble's own t; an hour of renewals then passes in less than a second.
//
// # The database in memory
//
// Collection is an ordinary collection, for what your code reads and writes beside its locks.
// Its database has find, insert, update, delete, findAndModify, counts and indexes, including
// unique ones, with the usual operators: $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $not,
// $exists, $and and $or in filters; $set, $unset, $inc, $max, $min, $push, $currentDate,
// $setOnInsert and whole documents in updates. It refuses everything else, by name:
// transactions, aggregations, change streams, $expr, regular expressions, decimals. A test compares
// its answers to 1,800 random commands with a real server's. It has one member, which never fails
// over. In virtual time, which begins in 2000, its clock begins in 2026.
package doclocktest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/inside/above"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
)

// stopping is how long the code under test may take to release its documents after the test
// has ended.
const stopping = time.Second

// Locks are the Locks of the code under test, on a collection in memory. New makes them.
type Locks[T any] struct {
	*doclock.Locks[T]

	t     testing.TB
	link  *memmongo.Link
	coll  *mongo.Collection // of the code under test
	aside *mongo.Collection // the same, through a client that never fails
	rival *doclock.Locks[T]
	fails bool
}

// New makes Locks on an empty collection, for one test. When the test ends they are shut
// down. A document that the code under test has not released, and not lost, fails the test.
//
// They log to the test's log unless an option names another logger.
func New[T any](t testing.TB, opts ...doclock.Option) *Locks[T] {
	t.Helper()
	server := memmongo.New()
	l := &Locks[T]{t: t, link: server.Link()}
	l.coll, l.aside = l.connect(l.link), l.connect(server.Link())
	logged := doclock.WithLogger(slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	var err error
	if l.Locks, err = doclock.New[T](l.coll, append([]doclock.Option{logged}, opts...)...); err != nil {
		t.Fatalf("doclocktest: %v", err)
	}
	rival := []doclock.Option{logged, doclock.WithOwner("somebody else"), doclock.WithMargin(0)}
	if l.rival, err = doclock.New[T](l.aside, slices.Concat(opts, rival)...); err != nil {
		t.Fatalf("doclocktest: %v", err)
	}
	t.Cleanup(l.end)
	return l
}

// connect makes a client that ends with the test, and returns its collection.
func (l *Locks[T]) connect(over *memmongo.Link) *mongo.Collection {
	l.t.Helper()
	client, err := over.Connect()
	if err != nil {
		l.t.Fatalf("doclocktest: %v", err)
	}
	l.t.Cleanup(func() {
		_ = client.Disconnect(context.Background())
		over.Close()
	})
	return client.Database("doclocktest").Collection("documents")
}

// end runs when the test is over.
func (l *Locks[T]) end() {
	l.Fail(nil)
	if err := l.rival.Close(); err != nil {
		l.t.Logf("doclocktest: %v", err)
	}
	held := l.leases()
	ctx, cancel := context.WithTimeout(context.Background(), stopping)
	defer cancel()
	if err := l.Shutdown(ctx); err != nil {
		l.t.Logf("doclocktest: %v", err)
	}
	for _, lease := range held {
		if errors.Is(lease.Err(), mongolock.ErrClosed) && !l.t.Failed() { // a test that failed early could not release it
			l.t.Errorf("doclocktest: the document %s was not released when the test ended", lease.Key())
		}
	}
}

// leases returns the leases of the code under test.
func (l *Locks[T]) leases() (held []*mongolock.Lease) {
	for _, one := range inside.Leases(above.Engine(l.Locks)) {
		if lease, ok := one.(*mongolock.Lease); ok && lease.Err() == nil {
			held = append(held, lease)
		}
	}
	return held
}

// Collection returns the collection of the documents, as the code under test reaches it: it
// fails when Fail says so.
func (l *Locks[T]) Collection() *mongo.Collection { return l.coll }

// Insert puts documents into the collection, whether or not the database can be reached.
func (l *Locks[T]) Insert(documents ...T) {
	l.t.Helper()
	if _, err := l.aside.InsertMany(context.Background(), documents); err != nil {
		l.t.Fatalf("doclocktest: Insert: %v", err)
	}
}

// Get returns the document that filter names as it is now, without its lock, whether or not the
// database can be reached. It fails the test if there is no such document.
func (l *Locks[T]) Get(filter any) T {
	l.t.Helper()
	document, err := l.aside.FindOne(context.Background(), filter).Raw()
	if err != nil {
		l.t.Fatalf("doclocktest: Get: %v", err)
	}
	value, err := above.Decode(l.rival, document)
	if err != nil {
		l.t.Fatalf("doclocktest: Get: %v", err)
	}
	return value.(T)
}

// Hold locks the document that filter names as another process would, until release is called
// or the test ends. It fails the test if the document is held already.
func (l *Locks[T]) Hold(filter any) (release func()) {
	l.t.Helper()
	doc, err := l.rival.TryAcquire(context.Background(), filter, mongolock.Note("doclocktest"))
	if err != nil {
		l.t.Fatalf("doclocktest: Hold: %v", err)
	}
	return func() {
		l.t.Helper()
		if err := doc.Release(); err != nil {
			l.t.Errorf("doclocktest: Hold: release: %v", err)
		}
	}
}

// Lose takes the document that filter names away from the code under test, as an operator's
// Break would. When Lose returns the code's lease has ended: its Err matches ErrLost and its
// contexts are cancelled, and what the code saves is refused. The document is free; use Hold to
// see what happens if another process takes it first. Lose fails the test if the code under
// test has not locked the document, or while Fail makes the database unreachable.
func (l *Locks[T]) Lose(filter any) {
	l.t.Helper()
	if l.fails {
		l.t.Fatalf("doclocktest: Lose: the database is unreachable, so no document can be taken away")
	}
	ctx := context.Background()
	status, err := l.rival.Inspect(ctx, filter)
	if err != nil {
		l.t.Fatalf("doclocktest: Lose: %v", err)
	}
	for _, lease := range l.leases() {
		if len(status.Holders) != 1 || lease.ID() != status.Holders[0].ID {
			continue
		}
		if _, err := l.rival.Break(ctx, filter, "doclocktest: Lose", 0); err != nil {
			l.t.Fatalf("doclocktest: Lose: %v", err)
		}
		_ = lease.Renew(ctx) // the lease's Err is checked instead
		if err := lease.Err(); !errors.Is(err, mongolock.ErrLost) {
			l.t.Errorf("doclocktest: Lose: the lease ended meanwhile: %v", err)
		}
		return
	}
	l.t.Fatalf("doclocktest: Lose: the code under test has not locked the document")
}

// Fail makes the database unreachable for the code under test, until Fail(nil): connections
// break, and new ones fail with err. As with a real database, a call that was under way may
// have been applied (ErrOutcomeUnknown), and one that finds no server waits for one, for 30 s
// or until its own time is over. Fail(nil) returns when the driver has found the database
// again, which takes it up to a second. Hold, Insert and Get are not affected.
func (l *Locks[T]) Fail(err error) {
	l.t.Helper()
	found := err == nil && l.fails
	l.fails = err != nil
	l.link.Cut(err)
	if !found {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for ctx.Err() == nil { // the first calls may meet a connection that broke
		if l.coll.Database().Client().Ping(ctx, nil) == nil {
			return
		}
	}
	l.t.Errorf("doclocktest: Fail(nil): the driver does not find the database again")
}
