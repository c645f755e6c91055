package doclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/mongostore"
)

// A docStore is the store.Store that keeps a document's holder in a field of that
// document. The lease engine knows nothing else of this package. The package comment
// lists its commands.
//
//	store_acquire.go  acquire, transfer, clean-up
//	store_release.go  release in all its forms, saves, break
//	store_look.go     reads
//	layout.go         what the steps of internal/mongolease know of the lock
//	record.go         the lock's sub-document
//	conditions.go     the conditions in filters
//	update.go         the updates
type docStore struct {
	base  *mongobase.Base
	field string
	store.Feed
	steps mongolease.Steps[record, *update, granted]
	flat  atomic.Bool // see stampPath
	whole atomic.Bool // see replies
	freed freedNames

	// The shapes of commands that need of the document only its lock and its _id.
	lockAfter, lockBefore *options.FindOneAndUpdateOptionsBuilder
	lockRemoved           *options.FindOneAndDeleteOptionsBuilder
	lockFound             *options.FindOneOptionsBuilder

	mu      sync.Mutex // protects endings; never held across a command
	endings map[string]*ending

	// tamper takes a safety out of a filter, in the tests that show that it is needed.
	tamper func(what mongolease.Step, filter bson.D) bson.D
}

// granted is what the store remembers of a lease besides its time. A lease that it does
// not remember is found by its key and released field by field.
type granted struct {
	key     string
	doc     bson.RawValue // the document's _id
	residue bool

	// gone, if set, is called when a renewal finds that the lease's own transaction
	// has released it.
	gone   func()
	goneAt mongoclock.Moment
}

// A request is the part of a call of Locks that a store.Claim has no field for. It
// travels in the caller's context, whose values the engine hands to the store.
type request struct {
	fields  bson.D   // the caller's filter, by which the document is claimed; nil: that of the key
	initial bson.D   // the fields to insert if there is no document; nil: none
	create  bool     // insert the document if there is none
	one     bool     // a claim of one of many: it counts attempts and passes over done documents
	filter  bson.Raw // with one: the filter that the document must still match

	mu   sync.Mutex          // protects what follows
	docs map[string]bson.Raw // as they stood when they were locked, by the claims' IDs
	seen bson.RawValue       // the _id of the document that refused a claim
}

type requestKey struct{}

func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

func (r *request) got(id string, doc bson.Raw) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.docs == nil {
		r.docs = make(map[string]bson.Raw, 1)
	}
	r.docs[id] = doc
}

// saw notes which document refused a claim.
func (r *request) saw(image bson.Raw) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = image.Lookup("_id")
}

// refusedBy is the _id of the document that refused the last claim; the zero value if none
// did.
func (r *request) refusedBy() bson.RawValue {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

func (r *request) take(id string) bson.Raw {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.docs[id]
}

func newDocStore(coll *mongo.Collection, field string) (*docStore, error) {
	feed, err := mongostore.FeedOn(coll)
	s := &docStore{base: mongobase.New(coll, nil), field: field, Feed: feed, endings: map[string]*ending{}}
	only := bson.D{{Key: field, Value: 1}, {Key: beside(field, fieldAt), Value: 1}, {Key: beside(field, fieldStamp), Value: 1}}
	s.lockAfter = options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(only)
	s.lockBefore = options.FindOneAndUpdate().SetReturnDocument(options.Before).SetProjection(only)
	s.lockRemoved = options.FindOneAndDelete().SetProjection(only)
	s.lockFound = options.FindOne().SetProjection(only)
	s.steps.Base, s.steps.Shape, s.steps.Feed = s.base, layout{s}, s
	s.steps.Remembers = func(c *mongolease.Claim, image reply, _ mongolease.Tenure) granted {
		return granted{key: c.Key, doc: image.Image.Lookup("_id"), residue: image.Record.residue()}
	}
	s.steps.Memory.OnRenewed, s.steps.Memory.OnLost, s.steps.Memory.OnForgotten = renewed, releasedItself, s.dropEnding
	return s, err
}

// A reply is the answer of one command, and the lock in it.
type reply = mongolease.Image[record]

// send sends an update of one document. The first ones may learn from the server which
// form of a command it takes.
func (s *docStore) send(ctx context.Context, what mongolease.Step, coll *mongo.Collection, filter bson.D, u *update, opts *options.FindOneAndUpdateOptionsBuilder) (reply, error) {
	if s.tamper != nil {
		filter = s.tamper(what, filter)
	}
	r, err := s.base.Modify(ctx, coll, filter, s.document(u), s.replies(what, opts))
	for again := 0; again < 2 && s.refusesForm(err); again++ {
		r, err = s.base.Modify(ctx, coll, filter, s.document(u), s.replies(what, opts))
	}
	image := s.read(r)
	if opts != mongobase.Before {
		s.base.Timed(r, image.Record.at)
	}
	return image, err
}

// refusesForm reports whether a server refused one of two forms of a command, and
// remembers it, so that the command can be sent in the other one. It was refused before it
// touched anything: this is no second attempt.
func (s *docStore) refusesForm(err error) bool {
	switch {
	case noPath(err):
		s.flat.Store(true)
	case noFields(err):
		s.whole.Store(true)
	default:
		return false
	}
	return true
}

// replies asks for the document in the reply to a claim, and for its lock in any other.
// FerretDB 1 has no findAndModify with a projection: it is asked for whole documents.
func (s *docStore) replies(what mongolease.Step, opts *options.FindOneAndUpdateOptionsBuilder) *options.FindOneAndUpdateOptionsBuilder {
	switch what {
	case mongolease.Acquire, mongolease.TakeOver, mongolease.HandOver, mongolease.Confirm:
		return opts
	}
	if s.whole.Load() {
		return opts
	}
	if opts == mongobase.Before {
		return s.lockBefore
	}
	return s.lockAfter
}

// modify is send of an update that must last. It returns the after-image.
func (s *docStore) modify(ctx context.Context, what mongolease.Step, filter bson.D, u *update) (reply, error) {
	return s.send(ctx, what, s.base.Durable, filter, u, mongobase.After)
}

// remove deletes one document, lock and all.
func (s *docStore) remove(ctx context.Context, what mongolease.Step, filter bson.D) (reply, error) {
	if s.tamper != nil {
		filter = s.tamper(what, filter)
	}
	if !s.whole.Load() {
		r, err := s.base.Remove(ctx, s.base.Durable, filter, s.lockRemoved)
		if !s.refusesForm(err) {
			return s.read(r), err
		}
	}
	r, err := s.base.Remove(ctx, s.base.Durable, filter)
	return s.read(r), err
}

// find reads the lock of a document.
func (s *docStore) find(ctx context.Context, fields bson.D) (reply, error) {
	r, err := s.base.Find(ctx, fields, s.lockFound)
	return s.read(r), err
}

func (s *docStore) document(u *update) bson.D {
	return u.document(s.stampPath(fieldAt), s.stampPath(fieldStamp))
}

func (s *docStore) read(r mongobase.Reply) reply {
	return reply{Reply: r, Record: readLock(r.Image, s.field)}
}

// where is the filter of the document that r is about: by its _id if this store granted
// it, because the fields of the key may change under the lease.
func (s *docStore) where(r store.Ref, more ...bson.E) (bson.D, error) {
	if l, ok := s.lease(r.ID); ok && l.Own.key == r.Key {
		return append(bson.D{{Key: "_id", Value: l.Own.doc}}, more...), nil
	}
	fields, err := filterOf(r.Key)
	if err != nil {
		return nil, mongoerr.NotApplied(err)
	}
	return append(fields[:len(fields):len(fields)], more...), nil
}

// lease is what is remembered of a lease.
func (s *docStore) lease(id string) (mongolease.Lease[granted], bool) { return s.steps.Memory.Of(id) }

// renewed notes that a command sent at sent renewed the lease. If the lease's own
// transaction had released it before, that transaction was aborted: open, it would have
// blocked the renewal; committed, the renewal would have found nothing.
func renewed(l *mongolease.Lease[granted], sent mongoclock.Moment) {
	if l.Own.gone != nil && sent > l.Own.goneAt {
		l.Own.gone = nil
	}
}

// releasedItself tells the holder of a lease that a renewal found gone, if the lease's own
// transaction had released it: that is no loss.
func releasedItself(l mongolease.Lease[granted]) {
	if l.Own.gone != nil {
		l.Own.gone()
	}
}

// dropEnding forgets the ending of a lease that is over.
func (s *docStore) dropEnding(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.endings, id)
}

func modeIs(m store.Mode) error {
	if m != store.Exclusive {
		return mongoerr.NotApplied(fmt.Errorf("doclock: mode %q: a document has one holder: %w", m, errors.ErrUnsupported))
	}
	return nil
}
