// Package feed carries notices (hints that a key may be worth a look) between the processes
// that use one collection. They go through a small capped collection beside the locks, which a
// tailable cursor reads (docs/internals/design.md §4.8). The server leaves out the notices that are not for
// the reader. A lost notice costs a waiter only time. So it is written with w: 1, and read from
// wherever the cursor stands.
package feed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

const (
	suffix   = ".wake"
	size     = 256 << 10               // some 1,200 notices; a reader that falls behind reads all its keys
	await    = 9500 * time.Millisecond // MongoDB 5.0 tells of a dropped collection only when a read of the cursor ends
	slack    = 10 * time.Second        // the time beyond Await that a read of the cursor gets
	trust    = time.Minute             // how long the collection is assumed to be there and capped
	mostMade = 10                      // how often in a row it may turn out uncapped

	fieldVersion = "mongolock"
	shape        = 1
	fieldTopic   = "topic"
	fieldKey     = "key"
	fieldKind    = "kind"
	fieldTo      = "to"
	fieldPlace   = "place"

	kindSeed = "seed" // a cursor on an empty capped collection is dead at once
)

// A Feed is a store.Feed through the collection of wake-ups beside the locks.
type Feed struct {
	Await time.Duration // how long the server keeps a read that finds nothing

	base *server.Collection
	coll *mongo.Collection // w: 1

	// The time until which the collection is assumed to be there and capped, as a
	// server.Moment; zero: it was not seen to be. If it is missing, an insert makes one that is
	// uncapped and grows without bound.
	trusted atomic.Int64

	failures atomic.Int32 // how often in a row it was made and turned out uncapped
}

// Beside returns the feed of the locks of that base.
func Beside(base *server.Collection) *Feed {
	locks := base.W1
	wakes := locks.Database().Collection(locks.Name() + suffix)
	return &Feed{Await: await, base: base, coll: server.Under(wakes, writeconcern.W1())}
}

// Notify inserts notices with one command, if there is a collection that others may be reading. If it was capped a while
// ago it is looked at afterwards, when nobody waits for that: at most these notices then are in one that grows.
func (f *Feed) Notify(ctx context.Context, all ...store.Notice) error {
	if len(all) == 0 {
		return nil
	}
	ctx = server.Bare(ctx)
	until := f.trusted.Load()
	if until == 0 {
		if is, err := f.look(ctx); err != nil || is != capped {
			return noFeed(err) // without a collection, or a feed, no client listens
		}
	}
	var err error
	if len(all) == 1 {
		_, err = f.coll.InsertOne(ctx, document(all[0]))
	} else {
		documents := make([]bson.D, len(all))
		for i, n := range all {
			documents[i] = document(n)
		}
		_, err = f.coll.InsertMany(ctx, documents)
	}
	if err == nil && until != 0 && int64(f.base.Clock.Now()) >= until {
		_, _ = f.look(ctx)
	}
	return noFeed(err)
}

func document(n store.Notice) bson.D {
	d := bson.D{
		{Key: fieldVersion, Value: shape},
		{Key: fieldTopic, Value: n.Topic},
		{Key: fieldKey, Value: n.Key},
		{Key: fieldKind, Value: n.Kind},
		{Key: fieldTo, Value: n.To},
	}
	if n.Place != "" {
		d = append(d, bson.E{Key: fieldPlace, Value: string(n.Place)})
	}
	return d
}

func forAudience(of store.Audience) bson.D {
	own := bson.D{{Key: fieldTo, Value: of.Address}}
	all := bson.D{{Key: fieldTopic, Value: bson.D{{Key: "$in", Value: of.Topics}}}, {Key: fieldTo, Value: ""}}
	switch {
	case of.Address == "" && len(of.Topics) == 0:
		return bson.D{}
	case len(of.Topics) == 0:
		return own
	case of.Address == "":
		return all
	}
	return bson.D{{Key: "$or", Value: bson.A{own, all}}}
}

// Watch reads the collection from its end, and makes it if it is missing. The empty notice
// comes when the cursor stands at the end: the reads that it asks for cover what was written
// before.
func (f *Feed) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		ctx := server.Bare(ctx)
		cursor, err := f.open(ctx, forAudience(of))
		if err != nil {
			yield(store.Notice{}, err)
			return
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			cursor.Close(ctx)
		}()
		if !yield(store.Notice{}, nil) {
			return
		}
		cursor.SetMaxAwaitTime(f.Await)
		var probe sync.WaitGroup
		defer probe.Wait()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		probe.Go(func() { f.needSpare(ctx, cancel) })
		for {
			more, err := f.next(ctx, cursor, f.Await+slack)
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
func (f *Feed) next(ctx context.Context, cursor *mongo.Cursor, bound time.Duration) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
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

func readNotice(raw bson.Raw) (n store.Notice, ok bool) {
	if !server.Is(raw.Lookup(fieldVersion), shape) {
		return n, false
	}
	n.Topic, _ = raw.Lookup(fieldTopic).StringValueOK()
	n.Key, _ = raw.Lookup(fieldKey).StringValueOK()
	n.Kind, _ = raw.Lookup(fieldKind).StringValueOK()
	n.To, _ = raw.Lookup(fieldTo).StringValueOK()
	place, _ := raw.Lookup(fieldPlace).StringValueOK()
	n.Place = store.Place(place)
	return n, n.Topic != "" && n.Kind != kindSeed
}

func (f *Feed) open(ctx context.Context, filter bson.D) (*mongo.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	if err := f.prepare(ctx); err != nil {
		return nil, noFeed(err)
	}
	cursor, err := f.tail(ctx, filter)
	if err != nil { // it may have been dropped since, and made again by an insert: then it is worth another try
		state, again := f.look(ctx)
		if again != nil || state != capped {
			return nil, err
		}
		if cursor, err = f.tail(ctx, filter); err != nil {
			return nil, noFeed(err)
		}
	}
	if cursor.RemainingBatchLength() == 0 && !cursor.TryNext(ctx) && cursor.Err() == nil && cursor.ID() != 0 {
		return cursor, nil // the find was the first step: that sent no command
	}
	for {
		more, err := f.next(ctx, cursor, slack)
		if err != nil {
			cursor.Close(ctx)
			return nil, err
		}
		if !more {
			return cursor, nil
		}
	}
}

func (f *Feed) tail(ctx context.Context, filter bson.D) (*mongo.Cursor, error) {
	return f.coll.Find(ctx, filter, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(time.Millisecond))
}

// errOneConnection ends a feed for good: reading it would keep every renewal waiting.
var errOneConnection = fmt.Errorf("the wake-ups need a connection of their own, and maxPoolSize is 1: %w", errors.ErrUnsupported)

const (
	spareAfter  = 50 * time.Millisecond // the read of the feed is under way by then
	spareWithin = 100 * time.Millisecond
)

// needSpare gives errOneConnection if the read of the feed, which is under way, has the only
// connection that the client may open. The driver tells the size of its pool only in the error
// of a command that got no connection in time.
func (f *Feed) needSpare(ctx context.Context, give context.CancelCauseFunc) {
	timer := time.NewTimer(spareAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, spareWithin)
	defer cancel()
	err := f.coll.Database().RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}, options.RunCmd().SetReadPreference(readpref.Primary())).Err()
	var full topology.WaitQueueTimeoutError
	if errors.As(err, &full) && strings.Contains(full.Error(), "maxPoolSize: 1,") {
		give(errOneConnection)
	}
}

type state int

const (
	missing state = iota
	capped
	uncapped
)

func (f *Feed) look(ctx context.Context) (state, error) {
	f.trusted.Store(0)
	specs, err := f.coll.Database().ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: f.coll.Name()}})
	if err != nil || len(specs) == 0 {
		return missing, err
	}
	if is, _ := specs[0].Options.Lookup("capped").BooleanOK(); !is {
		return uncapped, nil
	}
	f.trusted.Store(int64(f.base.Clock.Now().Add(trust)))
	f.failures.Store(0)
	return capped, nil
}

var errTaken = errors.New("the collection of wake-ups was made, or dropped, by others at the same time")

// prepare makes sure that the collection is there, capped and not empty.
func (f *Feed) prepare(ctx context.Context) error {
	state, err := f.look(ctx)
	if err == nil && state == uncapped {
		err = f.replace(ctx)
		state = missing
	}
	if err == nil && state == missing {
		err = f.create(ctx)
	}
	if err != nil {
		return err
	}
	err = f.coll.FindOne(ctx, bson.D{}).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		_, err = f.coll.InsertOne(ctx, document(store.Notice{Kind: kindSeed}))
	}
	return err
}

// create makes the collection. Another client may have been quicker, with a capped one, or with
// a notice whose insert made it uncapped. Only if it turns out uncapped every time is it
// certain that the server has no capped collections.
func (f *Feed) create(ctx context.Context) error {
	failed := f.coll.Database().CreateCollection(ctx, f.coll.Name(),
		options.CreateCollection().SetCapped(true).SetSizeInBytes(size))
	state, err := f.look(ctx)
	switch {
	case err != nil:
		return err
	case state == capped:
		return nil
	case state == missing && failed != nil:
		return failed
	case state == missing || f.failures.Add(1) < mostMade:
		return errTaken
	}
	return fmt.Errorf("the collection %s is not capped: %w", f.coll.Name(), errors.ErrUnsupported)
}

// replace drops an uncapped collection, which an insert made after the capped one was dropped,
// if all documents in it are ours.
func (f *Feed) replace(ctx context.Context) error {
	err := f.coll.FindOne(ctx, bson.D{{Key: fieldVersion, Value: bson.D{{Key: "$ne", Value: shape}}}}).Err()
	switch {
	case err == nil:
		return fmt.Errorf("the collection %s is not capped and has other documents than wake-ups: %w", f.coll.Name(), errors.ErrUnsupported)
	case !errors.Is(err, mongo.ErrNoDocuments):
		return err
	}
	if state, err := f.look(ctx); err != nil || state != uncapped {
		return err // another client was quicker
	}
	return f.coll.Drop(ctx)
}

// noFeed marks an error that will not change: the server refuses a capped collection or a
// tailable cursor, or a right is missing. Waiters then poll.
func noFeed(err error) error {
	switch server.ClassOf(err) {
	case server.Refused, server.NoCommand:
		return fmt.Errorf("%w (%w)", err, errors.ErrUnsupported)
	}
	return err
}
