package pathlock

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
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// A Mongo keeps trees in a collection, a document for each.
//
// An edit is one find and one findOneAndUpdate, which names the revision that the find
// saw and writes only what changes. A document is never deleted, so a late command of
// an edit that was given up can only find it with another revision. Its clock is the
// server's, known as an interval (docs/design.md §4.3): a sample comes with every write,
// and from hello where there is none yet, or where a lock runs out within the interval.
type Mongo struct {
	store.Feed // beside the collection

	durable *mongo.Collection // majority, journaled
	voted   *mongo.Collection // majority; where there is no journal

	clock     *mongoclock.Clock
	noJournal atomic.Bool
	met       atomic.Pointer[mongoServer]

	mu    sync.Mutex // protects trees
	trees map[string]*mongoTree

	blind bool // swap without asking for the revision: for the test that shows what for it is there
}

// mongoServer is what the first hello said.
type mongoServer struct{ router bool }

// A mongoTree is what this process knows of a tree: the document as of a revision, so
// that it is not read anew where nobody else wrote. And a queue: writers of one process
// would only make each other's revisions old.
type mongoTree struct {
	turn chan struct{}

	mu  sync.Mutex // protects the rest; never held across a command
	rev bson.ObjectID
	doc *Document
}

// stale is the age from which a sample's drift would make locks noticeably too long.
const stale = 10 * time.Minute

// OnMongo is a storage in a collection, which needs no index and may be that of the
// locks of package mongolock. It sends nothing yet. Concerns and read preference are the
// package's own. The collection must not be sharded.
func OnMongo(coll *mongo.Collection) (*Mongo, error) { return onMongo(coll, mongoclock.Monotonic()) }

func onMongo(coll *mongo.Collection, now func() mongoclock.Moment) (*Mongo, error) {
	if coll == nil {
		return nil, errors.New("pathlock: OnMongo: the collection is nil")
	}
	feed, err := mongolock.FeedOn(coll)
	if err != nil {
		return nil, err
	}
	journaled := true
	under := func(w *writeconcern.WriteConcern) *mongo.Collection {
		return coll.Clone(options.Collection().
			SetWriteConcern(w).
			SetReadConcern(readconcern.Local()).
			SetReadPreference(readpref.Primary()).
			SetBSONOptions(&options.BSONOptions{}).
			SetRegistry(bson.NewRegistry()))
	}
	return &Mongo{
		Feed:    feed,
		durable: under(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}),
		voted:   under(writeconcern.Majority()),
		clock:   mongoclock.New(now),
		trees:   make(map[string]*mongoTree),
	}, nil
}

func (m *Mongo) tree(name string) *mongoTree {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.trees[name]
	if t == nil {
		t = &mongoTree{turn: make(chan struct{}, 1)}
		m.trees[name] = t
	}
	return t
}

// View shows a tree: one find.
func (m *Mongo) View(ctx context.Context, name string, look func(*Document, Clock)) error {
	if err := notStarted(ctx); err != nil {
		return err
	}
	t := m.tree(name)
	found, err := m.find(bare(ctx), name)
	if err != nil {
		return err
	}
	return m.show(bare(ctx), t, found, func(doc *Document, now Clock) error {
		look(doc, now)
		return nil
	})
}

// Update changes a tree: one find and one findOneAndUpdate, and both again if another
// process wrote in between.
func (m *Mongo) Update(ctx context.Context, name string, change func(*Document, Clock) (Edit, error)) (time.Time, error) {
	if err := notStarted(ctx); err != nil {
		return time.Time{}, err
	}
	ctx = bare(ctx)
	t := m.tree(name)
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return time.Time{}, notStarted(ctx)
	}
	for race := 0; ; race++ {
		at, done, err := m.update(ctx, t, name, change)
		if done || err != nil {
			return at, err
		}
		select {
		case <-time.After(rand.N(time.Duration(1+min(race, 20)) * time.Millisecond)):
		case <-ctx.Done():
			return time.Time{}, notStarted(ctx)
		}
	}
}

// update is one attempt; not done if another process was quicker.
func (m *Mongo) update(ctx context.Context, t *mongoTree, name string, change func(*Document, Clock) (Edit, error)) (at time.Time, done bool, err error) {
	found, err := m.find(ctx, name)
	if err != nil {
		return time.Time{}, false, err
	}
	var edit Edit
	var write mongoWrite
	err = m.show(ctx, t, found, func(doc *Document, now Clock) error {
		var err error
		if edit, err = change(doc, now); err != nil || edit.Empty() {
			at = now.Latest
			return err
		}
		write, err = doc.mongoWrite(name, found, edit)
		return err
	})
	if err != nil || edit.Empty() {
		return at, err == nil, err
	}
	at, done, err = m.swap(ctx, write)
	if done {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.doc != nil && t.rev == found.rev {
			t.doc.Apply(edit)
			t.rev = write.rev
		}
	}
	return at, done, err
}

// find reads the document. That is all that a read sends, and nothing is applied if it
// fails.
func (m *Mongo) find(ctx context.Context, name string) (mongoFound, error) {
	raw, err := m.voted.FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return mongoFound{}, nil
	}
	if err != nil {
		return mongoFound{}, notApplied(err)
	}
	return mongoShape(name, raw)
}

// show decodes what was found, unless it is known, and has it looked at with the time.
func (m *Mongo) show(ctx context.Context, t *mongoTree, found mongoFound, look func(*Document, Clock) error) error {
	t.mu.Lock()
	if t.doc == nil || t.rev != found.rev {
		doc, err := found.decode()
		if err != nil {
			t.mu.Unlock()
			return err
		}
		t.doc, t.rev = doc, found.rev
	}
	now, enough := m.read(t.doc)
	if !enough { // rare, so it may be looked up anew
		t.mu.Unlock()
		if err := m.sample(ctx, found); err != nil {
			return err
		}
		t.mu.Lock()
		if t.rev != found.rev {
			doc, err := found.decode()
			if err != nil {
				t.mu.Unlock()
				return err
			}
			t.doc, t.rev = doc, found.rev
		}
		now, _ = m.read(t.doc)
	}
	defer t.mu.Unlock()
	return look(t.doc, now)
}

// read is the server's clock; not enough if a new sample would tell more.
func (m *Mongo) read(doc *Document) (now Clock, enough bool) {
	r, known := m.clock.Read()
	if !known || m.met.Load() == nil {
		return Clock{}, false
	}
	now = Clock{Earliest: r.Earliest, Latest: mongoclock.Ceil(r.Latest)}
	if r.Fresh {
		return now, true
	}
	return now, r.Latest.Sub(r.Earliest) < stale && !doc.RunsOutBetween(r.Earliest, r.Latest)
}

// swap writes an edit, on condition that the document is still of the revision that it
// was made for. The answer is the server's clock when it did.
func (m *Mongo) swap(ctx context.Context, w mongoWrite) (at time.Time, done bool, err error) {
	if m.blind {
		w.filter = w.filter[:2]
	}
	opts := options.FindOneAndUpdate().SetReturnDocument(options.After).
		SetProjection(bson.D{{Key: fieldAt, Value: 1}}).SetUpsert(w.first)
	coll := m.durable
	if m.noJournal.Load() {
		coll = m.voted
	}
	sent := m.clock.Now()
	image, err := coll.FindOneAndUpdate(ctx, w.filter, w.update, opts).Raw()
	if mongoerr.ClassOf(err) == mongoerr.NoJournal { // refused before anything was touched
		m.noJournal.Store(true)
		sent = m.clock.Now()
		image, err = m.voted.FindOneAndUpdate(ctx, w.filter, w.update, opts).Raw()
	}
	switch {
	case errors.Is(err, mongo.ErrNoDocuments), w.first && mongoerr.ClassOf(err) == mongoerr.DuplicateID:
		return time.Time{}, false, nil // another was quicker
	case mongoerr.ClassOf(err) == mongoerr.TooLarge:
		return time.Time{}, false, fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err != nil:
		return time.Time{}, false, mongoerr.Mark(err)
	}
	at, ok := timeOf(image.Lookup(fieldAt))
	if !ok {
		return time.Time{}, false, errors.New("the server's answer has no time in it")
	}
	m.clock.Observe(at, sent)
	return at, true, nil
}

// bare takes the caller's session out of a context: a lock asked for inside a
// transaction is none of it.
func bare(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }

func notApplied(err error) error { return fmt.Errorf("%w (%w)", err, store.ErrNotApplied) }
