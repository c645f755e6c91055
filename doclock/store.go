package doclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

// A docStore is the store.Store that keeps a document's holder in a field of that
// document. The lease engine knows nothing else of this package. The package comment
// lists its commands.
//
//	store_acquire.go  acquire, what follows a refusal, transfer
//	store_grant.go    from an applied claim to a grant
//	store_renew.go    renewing one and many
//	store_release.go  release in all its forms, saves, break
//	store_undo.go     clean-up after an unknown outcome
//	store_look.go     reads
//	record.go         the lock's sub-document
//	conditions.go     the conditions in filters
//	update.go         the updates
type docStore struct {
	base  *mongobase.Base
	field string
	store.Feed
	flat atomic.Bool // see stampPath

	mu      sync.Mutex // protects what follows; never held across a command
	granted map[string]granted
	endings map[string]*ending
	sweepAt int

	broken faults
}

// Each of the faults takes one safety out, for the test that shows that it is needed.
type faults struct {
	byKeyAlone    bool // commands do not name the acquisition
	anyOrder      bool // saves do not ask whether a later one was written
	dropSave      bool // the clean-up of a hand-over saves nothing
	undoElsewhere bool // the clean-up uses a session of its own
	anyLock       bool // a claim takes a field that the application keeps in the lock's place
}

// granted is what the store remembers of a lease from its grant on. A lease that it
// does not remember is found by its key and released field by field.
type granted struct {
	key     string
	doc     bson.RawValue // the document's _id
	since   time.Time
	until   mongoclock.Moment // how long the lease may be trusted, and is worth remembering
	residue bool

	// gone, if set, is called when a renewal finds that the lease's own transaction
	// has released it.
	gone   func()
	goneAt mongoclock.Moment
}

// A request is the part of a call of Locks that a store.Claim has no field for. It
// travels in the caller's context, whose values the engine hands to the store.
type request struct {
	initial bson.D   // the fields to insert if there is no document; nil: none
	create  bool     // insert the document if there is none
	one     bool     // a claim of one of many: it counts attempts and passes over done documents
	filter  bson.Raw // with one: the filter that the document must still match

	mu   sync.Mutex          // protects docs
	docs map[string]bson.Raw // as they stood when they were locked, by the claims' IDs
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

func (r *request) take(id string) bson.Raw {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.docs[id]
}

func newDocStore(coll *mongo.Collection, field string) (*docStore, error) {
	feed, err := mongostore.FeedOn(coll)
	return &docStore{
		base: mongobase.New(coll, nil), field: field, Feed: feed,
		granted: map[string]granted{}, endings: map[string]*ending{},
	}, err
}

// modify updates one document durably and returns its after-image.
func (s *docStore) modify(ctx context.Context, filter bson.D, u *update, upsert bool) (mongobase.Reply, error) {
	opts := mongobase.After
	if upsert {
		opts = mongobase.Upsert
	}
	return s.send(ctx, s.base.Durable, filter, u, opts)
}

// send sends an update of one document. The first one may learn from the server where
// $currentDate can write.
func (s *docStore) send(ctx context.Context, coll *mongo.Collection, filter bson.D, u *update, opts *options.FindOneAndUpdateOptionsBuilder) (mongobase.Reply, error) {
	r, err := s.base.Modify(ctx, coll, filter, s.document(u), opts)
	if noPath(err) { // refused before it touched anything: this is no second attempt
		s.flat.Store(true)
		r, err = s.base.Modify(ctx, coll, filter, s.document(u), opts)
	}
	return r, err
}

func (s *docStore) document(u *update) bson.D { return u.document(s.stampPath(fieldAt)) }

func (s *docStore) read(r mongobase.Reply) record { return readLock(r.Image, s.field) }

// where is the filter of the document that r is about: by its _id if this store granted
// it, because the fields of the key may change under the lease.
func (s *docStore) where(r store.Ref, more ...bson.E) (bson.D, error) {
	if g, ok := s.lease(r.ID); ok && g.key == r.Key {
		return append(bson.D{{Key: "_id", Value: g.doc}}, more...), nil
	}
	fields, err := filterOf(r.Key)
	if err != nil {
		return nil, mongoerr.NotApplied(err)
	}
	return append(fields[:len(fields):len(fields)], more...), nil
}

func (s *docStore) lease(id string) (granted, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.granted[id]
	return g, ok
}

func (s *docStore) remember(id string, g granted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted[id] = g
	if len(s.granted) < s.sweepAt {
		return
	}
	now := s.base.Clock.Now()
	for old, l := range s.granted { // leases that nobody released
		if l.until < now {
			delete(s.granted, old)
			delete(s.endings, old)
		}
	}
	s.sweepAt = max(64, 2*len(s.granted))
}

// renewed notes that a command sent at sent renewed the lease. If the lease's own
// transaction had released it before, that transaction was aborted: open, it would have
// blocked the renewal; committed, the renewal would have found nothing.
func (s *docStore) renewed(id string, sent, until mongoclock.Moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.granted[id]
	if !ok {
		return
	}
	if g.gone != nil && sent > g.goneAt {
		g.gone = nil
	}
	g.until = max(g.until, until)
	s.granted[id] = g
}

func (s *docStore) forget(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.granted, id)
		delete(s.endings, id)
	}
}

func (s *docStore) foreign(r record) error {
	return fmt.Errorf("%w: %s, but doclock keeps its lock in that field: name another (doclock.Field)", store.ErrForeign, r.foreign)
}

// why explains why a command that names a holder matched nothing. The command itself
// certainly changed nothing.
func (s *docStore) why(image mongobase.Reply, id string) error {
	rec := s.read(image)
	switch {
	case image.Found() && rec.foreign != "":
		return s.foreign(rec)
	case rec.id == id && rec.broken && !rec.released:
		return &store.BrokenError{Reason: rec.reason}
	}
	return store.ErrGone
}

func (s *docStore) explain(ctx context.Context, r store.Ref) error {
	fields, err := s.where(r)
	if err != nil {
		return err
	}
	image, err := s.base.Find(ctx, fields)
	if err != nil {
		return mongoerr.NotApplied(err)
	}
	return s.why(image, r.ID)
}

func modeIs(m store.Mode) error {
	if m != store.Exclusive {
		return mongoerr.NotApplied(fmt.Errorf("doclock: mode %q: a document has one holder: %w", m, errors.ErrUnsupported))
	}
	return nil
}
