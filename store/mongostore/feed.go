package mongostore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
	"github.com/mongolock/mongolock/store"
)

// Wake-ups (hints that a key may be free) go through a small capped collection beside the
// locks, which a tailable cursor reads (docs/design.md §4.8). A lost wake-up costs a waiter
// only time. So it is written with w: 1, and read from wherever the cursor stands.
const (
	feedSuffix = ".wake"
	feedSize   = 64 << 10 // some 600 notices; a reader that falls behind reads all its keys
	feedAwait  = 30 * time.Second
	feedSlack  = 10 * time.Second // the time beyond it that a call of that length gets
	feedTrust  = time.Minute      // how long the collection is assumed to be there and capped
	feedTries  = 10               // how often in a row it may turn out uncapped

	fieldTopic = "topic"
	fieldKey   = "key"
	fieldKind  = "kind"

	kindSeed = "seed" // a cursor on an empty capped collection is dead at once
)

// A feed is the collection of wake-ups.
type feed struct {
	base  *mongobase.Base   // counts what is sent
	coll  *mongo.Collection // w: 1
	await time.Duration     // how long the server keeps a read that finds nothing

	// The time until which the collection is assumed to be there and capped, as a
	// mongoclock.Moment. If it is missing, an insert makes one that is uncapped and grows
	// without bound.
	capped atomic.Int64
	now    func() mongoclock.Moment

	uncapped atomic.Int32 // how often in a row it was made and turned out uncapped
}

// Notify inserts one notice, if there is a collection that others may be reading.
func (s *Store) Notify(ctx context.Context, n store.Notice) error {
	ctx = mongobase.Bare(ctx)
	if is, err := s.isCapped(ctx); !is {
		return noFeed(err) // without a collection, or a feed, no client listens
	}
	s.base.Count(mongobase.Insert)
	_, err := s.feed.coll.InsertOne(ctx, noticeOf(n))
	return noFeed(err)
}

// NotifyMany inserts notices with one command.
func (s *Store) NotifyMany(ctx context.Context, all []store.Notice) error {
	if len(all) == 0 {
		return nil
	}
	ctx = mongobase.Bare(ctx)
	if is, err := s.isCapped(ctx); !is {
		return noFeed(err)
	}
	documents := make([]bson.D, len(all))
	for i, n := range all {
		documents[i] = noticeOf(n)
	}
	s.base.Count(mongobase.Insert)
	_, err := s.feed.coll.InsertMany(ctx, documents)
	return noFeed(err)
}

// isCapped reports whether there is a collection that others may be reading.
func (s *Store) isCapped(ctx context.Context) (bool, error) {
	if int64(s.base.Clock.Now()) < s.feed.capped.Load() {
		return true, nil
	}
	is, err := s.feed.look(ctx)
	return err == nil && is == feedCapped, err
}

func noticeOf(n store.Notice) bson.D {
	return bson.D{
		{Key: fieldMark, Value: shape},
		{Key: fieldTopic, Value: n.Topic},
		{Key: fieldKey, Value: n.Key},
		{Key: fieldKind, Value: n.Kind},
	}
}

// Watch reads the collection from its end, and makes it if it is missing. The empty notice
// comes when the cursor stands at the end: the reads that it asks for cover what was written
// before.
func (s *Store) Watch(ctx context.Context) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		ctx := mongobase.Bare(ctx)
		cursor, err := s.openFeed(ctx)
		if err != nil {
			yield(store.Notice{}, err)
			return
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = s.base.CloseCursor(ctx, cursor) // the server soon ends it by itself
		}()
		if !yield(store.Notice{}, nil) {
			return
		}
		cursor.SetMaxAwaitTime(s.feed.await)
		var probe sync.WaitGroup
		defer probe.Wait()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		probe.Go(func() { s.needSpare(ctx, cancel) })
		for {
			more, err := s.feed.next(ctx, cursor, s.feed.await+feedSlack)
			if err != nil {
				if cause := context.Cause(ctx); errors.Is(cause, errOneConnection) {
					err = cause
				}
				yield(store.Notice{}, err)
				return
			}
			if !more {
				continue // nothing came for a while
			}
			if n, ok := readNotice(cursor.Current); ok && !yield(n, nil) {
				return
			}
		}
	}
}

// next moves the cursor one step, within a bound of its own: with a client's shorter default
// timeout the driver would refuse to wait at all. It returns an error for a cursor that the
// server has closed.
func (f *feed) next(ctx context.Context, cursor *mongo.Cursor, bound time.Duration) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	f.base.CountNext(cursor)
	if cursor.TryNext(ctx) {
		return true, nil
	}
	if err := cursor.Err(); err != nil {
		return false, err
	}
	if cursor.ID() == 0 {
		return false, errors.New("the cursor on the wake-ups ended")
	}
	return false, nil
}

// readNotice reads a document of any shape.
func readNotice(raw bson.Raw) (n store.Notice, ok bool) {
	if !mongobase.Is(raw.Lookup(fieldMark), shape) {
		return n, false
	}
	n.Topic, _ = raw.Lookup(fieldTopic).StringValueOK()
	n.Key, _ = raw.Lookup(fieldKey).StringValueOK()
	n.Kind, _ = raw.Lookup(fieldKind).StringValueOK()
	return n, n.Topic != "" && n.Kind != kindSeed
}

func (s *Store) openFeed(ctx context.Context) (*mongo.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, feedSlack)
	defer cancel()
	if _, err := s.base.Read(ctx); err != nil { // this also finds out which server it is
		return nil, err
	}
	if !s.base.Kind().Set {
		if err := s.refuseFerret(ctx); err != nil {
			return nil, err
		}
	}
	return s.feed.open(ctx)
}

// refuseFerret returns an error for FerretDB. Its version 1 has tailable cursors, but they are
// not reliable enough: after some dozens of them all readers get old data, or the database
// stays locked.
func (s *Store) refuseFerret(ctx context.Context) error {
	s.base.Count(mongobase.BuildInfo)
	reply, err := s.feed.coll.Database().RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Raw()
	if err != nil {
		return nil //nolint:nilerr // a server that does not tell is assumed to be another one
	}
	for _, field := range []string{"ferretdbVersion", "ferretdb"} {
		if !reply.Lookup(field).IsZero() {
			return fmt.Errorf("no tailable cursors on FerretDB: %w", errors.ErrUnsupported)
		}
	}
	return nil
}

// open puts a cursor at the end of the collection.
func (f *feed) open(ctx context.Context) (*mongo.Cursor, error) {
	if err := f.prepare(ctx); err != nil {
		return nil, noFeed(err)
	}
	cursor, err := f.tail(ctx)
	if err != nil { // it may have been dropped since, and made again by an insert: then it is worth another try
		state, again := f.look(ctx)
		if again != nil || state != feedCapped {
			return nil, err
		}
		if cursor, err = f.tail(ctx); err != nil {
			return nil, noFeed(err)
		}
	}
	for {
		more, err := f.next(ctx, cursor, feedSlack)
		if err != nil {
			return nil, errors.Join(err, f.base.CloseCursor(ctx, cursor))
		}
		if !more {
			return cursor, nil
		}
	}
}

func (f *feed) tail(ctx context.Context) (*mongo.Cursor, error) {
	f.base.Count(mongobase.Find)
	return f.coll.Find(ctx, bson.D{}, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(time.Millisecond))
}

// FeedOn returns the feed by which stores on coll wake each other, for other packages that need
// wake-ups between processes (package pathlock does). The notices go through a small capped
// collection beside coll, under topics of their own. It sends nothing yet.
func FeedOn(coll *mongo.Collection) (store.BulkFeed, error) {
	s, err := New(coll, WithoutIndex())
	if err != nil {
		return nil, err
	}
	return feedOnly{s}, nil
}

// feedOnly is a feed that cannot be mistaken for a store.
type feedOnly struct{ store.BulkFeed }

func (f feedOnly) Commands() map[string]uint64 { return f.BulkFeed.(*Store).Commands() }

func init() {
	inside.FeedAwait = func(s any, d time.Duration) { s.(*Store).feed.await = d }
}
