package pathlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/mongostore"
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

	base *mongobase.Base

	mu    sync.Mutex // protects trees
	trees map[string]*mongoTree

	blind bool // swap without asking for the revision: for the test that shows what for it is there
}

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
	feed, err := mongostore.FeedOn(coll)
	if err != nil {
		return nil, err
	}
	return &Mongo{Feed: feed, base: mongobase.New(coll, now), trees: make(map[string]*mongoTree)}, nil
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
	found, err := m.find(mongobase.Bare(ctx), name)
	if err != nil {
		return err
	}
	return m.show(mongobase.Bare(ctx), t, found, func(doc *Document, now Clock) error {
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
	ctx = mongobase.Bare(ctx)
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
	r, err := m.base.Find(ctx, bson.D{{Key: "_id", Value: name}})
	if err != nil {
		return mongoFound{}, mongoerr.NotApplied(err)
	}
	if !r.Found() {
		return mongoFound{}, nil
	}
	return mongoShape(name, r.Image)
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
	r, known := m.base.Known()
	if !known {
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
	r, err := m.base.Modify(ctx, m.base.Durable, w.filter, w.update, onlyAt().SetUpsert(w.first))
	switch {
	case err == nil && !r.Found(), w.first && mongoerr.ClassOf(err) == mongoerr.DuplicateID:
		return time.Time{}, false, nil // another was quicker
	case mongoerr.ClassOf(err) == mongoerr.TooLarge:
		return time.Time{}, false, fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err != nil:
		return time.Time{}, false, mongoerr.Mark(err)
	}
	at, ok := mongobase.Time(r.Image.Lookup(fieldAt))
	if !ok {
		return time.Time{}, false, errors.New("the server's answer has no time in it")
	}
	m.base.Timed(r, at)
	return at, true, nil
}

// onlyAt has an update answer the server's time, and nothing of the tree.
func onlyAt() *options.FindOneAndUpdateOptionsBuilder {
	return options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(bson.D{{Key: fieldAt, Value: 1}})
}

// sample asks for the server's time. A router's is another machine's and judges
// nobody, so there the document itself is asked, by a write that changes nothing else.
func (m *Mongo) sample(ctx context.Context, found mongoFound) error {
	if !m.base.Kind().Router {
		if _, _, err := m.base.Hello(ctx); err != nil {
			return mongoerr.NotApplied(err)
		}
	}
	if !m.base.Kind().Router || found.raw == nil {
		return nil
	}
	r, err := m.base.Modify(ctx, m.base.Voted,
		bson.D{{Key: "_id", Value: found.raw.Lookup("_id")}, {Key: fieldMark, Value: mongoVersion}},
		bson.D{{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}}}, onlyAt())
	if err != nil {
		return mongoerr.NotApplied(err)
	}
	at, _ := mongobase.Time(r.Image.Lookup(fieldAt))
	m.base.Timed(r, at)
	return nil
}
