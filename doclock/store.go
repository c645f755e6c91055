package doclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/feed"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/swept"
	"github.com/mongolock/mongolock/store"
)

// A docStore is the store.Store that keeps a document's holder in a field of that document. The
// lease engine knows nothing else of this package. docs/internals/doclock.md lists its commands.
// internal/mongo/lease sends them, and what its answer means.
//
//	store_acquire.go  acquire, transfer, clean-up
//	store_renew.go    renew, and transactions of the caller that may be open
//	store_release.go  release in all its forms, saves, break
//	store_look.go     reads
//	record.go         the lock's sub-document
//	conditions.go     the conditions in filters
//	store_update.go   the updates
type docStore struct {
	base *server.Collection
	lock lease.Fields // the field of the lock
	store.Feed
	steps  lease.Steps
	memory memory
	freed  freedNames
}

// A memory holds what the store remembers of its leases in addition to their times, by their IDs. A
// lease that it does not remember is found by its key and released field by field.
type memory struct {
	mu     sync.Mutex // protects leases; never held across a command
	leases swept.Map[string, granted]
}

type granted struct {
	key     string
	doc     bson.RawValue // the document's _id
	residue bool
	ending  *ending // what its release does in addition; nil: nothing, or it has not begun

	// A transaction of the caller wrote the document at wroteAt, and may still be open. If gone
	// is set, the transaction also released the lease, and gone is called when a renewal finds
	// nothing.
	wroteAt server.Moment
	gone    func()
}

// A request is the part of a call of Locks for which a store.Claim has no field. It travels in
// the caller's context, whose values the engine hands to the store.
type request struct {
	fields  bson.D        // the caller's filter, by which the document is claimed; nil: the key's
	initial bson.D        // the fields to insert if there is no document; nil: none
	create  bool          // insert the document if there is none
	soft    bool          // for Update: one node is enough for the grant
	one     bool          // a claim of one of many: it counts attempts and passes over done documents
	filter  bson.Raw      // with one: the filter that the document must still match
	over    *lease.Holder // with one: the holder to take the document over from; nil: it has no holder

	docs sync.Map                      // the documents as they stood when they were locked, by the claims' IDs
	seen atomic.Pointer[bson.RawValue] // the _id of the document that refused the last claim; nil: none did
}

type requestKey struct{}

// saw records which document refused a claim.
func (r *request) saw(image bson.Raw) {
	id := image.Lookup("_id")
	r.seen.Store(&id)
}

// document returns the document as the claim with that ID locked it.
func (r *request) document(id string) bson.Raw {
	doc, _ := r.docs.Load(id)
	raw, _ := doc.(bson.Raw)
	return raw
}

func newDocStore(coll *mongo.Collection, field string) *docStore {
	s := &docStore{base: server.New(coll, nil), lock: lease.Fields(field)}
	s.Feed = feed.Beside(s.base)
	s.steps.Coll, s.steps.Layout, s.steps.Only = s.base, layoutOf(field), bson.D{{Key: field, Value: 1}}
	return s
}

// remember remembers a lease until it is over, as package lease does.
func (s *docStore) remember(id string, g granted) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.leases.Put(id, g, func(old string, _ granted) bool {
		_, lives := s.steps.Memory.Of(old)
		return !lives
	})
}

func (s *docStore) granted(id string) (g granted, known bool) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	g, known = s.memory.leases.All[id]
	return g, known
}

func (s *docStore) change(id string, change func(*granted)) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if g, known := s.memory.leases.All[id]; known {
		change(&g)
		s.memory.leases.All[id] = g
	}
}

func (s *docStore) forget(id string) {
	s.steps.Memory.Forget(id)
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	delete(s.memory.leases.All, id)
}

// send sends an update of the document that r is about, if it meets the conditions.
func (s *docStore) send(ctx context.Context, what lease.Step, to *mongo.Collection, r store.Ref, conditions []bson.E, u update) (lease.Image, error) {
	name, err := s.name(r)
	if err != nil {
		return lease.Image{}, err
	}
	return s.steps.Send(ctx, lease.Command{Step: what, To: to, Filter: append(name, conditions...), Update: bson.D(u)})
}

// find reads the document that r is about.
func (s *docStore) find(ctx context.Context, r store.Ref) (lease.Image, error) {
	name, err := s.name(r)
	if err != nil {
		return lease.Image{}, err
	}
	return s.steps.Find(ctx, name)
}

// name returns the filter of the document that r is about: by its _id if this store granted it,
// because the fields of the key may change under the lease.
func (s *docStore) name(r store.Ref) (bson.D, error) {
	if g, known := s.granted(r.ID); known && g.key == r.Key {
		return bson.D{{Key: "_id", Value: g.doc}}, nil
	}
	fields, err := filterOf(r.Key)
	if err != nil {
		return nil, server.NotApplied(err)
	}
	return fields, nil
}

func modeIs(m store.Mode) error {
	if m != store.Exclusive {
		return server.NotApplied(fmt.Errorf("doclock: mode %q: a document has one holder: %w", m, errors.ErrUnsupported))
	}
	return nil
}
