package doclock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongobase"
)

const (
	window    = 1024             // documents that one look ahead finds at most
	windowAge = time.Second      // how long a look is good for
	badFor    = time.Minute      // how long a document that does not decode is left alone
	lookFor   = 10 * time.Second // how often a look for foreign locks is due
	maxPools  = 64               // pools that are remembered
)

// A pool has the documents that may be claimed by one filter and sort, as one look saw
// them. The workers of a process draw from it: so they never claim the same document,
// and one look serves them all. Other processes have pools of their own. A process that
// misses a document draws from further into its pool, and from nearer again when it
// misses none. So a single process keeps the order, and many processes spread.
//
// A drawn document is only a hint: the claim itself asks for all conditions again.
type pool struct {
	store  *docStore
	filter bson.Raw
	sort   bson.Raw // nil: none

	mu       sync.Mutex // protects what follows; never held across a command
	ids      []bson.RawValue
	seen     time.Time            // when the look was answered
	tries    int                  // documents drawn from this look
	misses   int                  // how many of them were gone
	reach    int                  // from how many of the first documents to draw
	looking  chan struct{}        // closed when the look under way is over
	looks    uint64               // looks that were begun
	drawn    map[string]uint64    // by the _id of a drawn document: the last look that may still show it
	bad      map[string]time.Time // by the _id of a document that does not decode: when it is tried again
	lookedAt time.Time            // when foreign locks were last looked for
	used     time.Time            // when a claim last asked for the pool

	waiters waiters
}

// drawing is the look number of a document whose claim is under way.
const drawing = ^uint64(0)

func newPool(s *docStore, filter, sort bson.Raw) *pool {
	return &pool{store: s, filter: filter, sort: sort, reach: 1,
		drawn: map[string]uint64{}, bad: map[string]time.Time{}, waiters: newWaiters()}
}

// draw returns the _id of a document to claim; false if there is none.
func (p *pool) draw(ctx context.Context) (bson.RawValue, bool, error) {
	for looked := false; ; {
		p.mu.Lock()
		if id, ok := p.pick(); ok {
			p.mu.Unlock()
			return id, true, nil
		}
		if looked {
			p.mu.Unlock()
			return bson.RawValue{}, false, nil
		}
		under := p.looking
		if under == nil {
			p.looking = make(chan struct{})
			p.looks++
		}
		p.mu.Unlock()
		if under == nil {
			if err := p.look(ctx); err != nil {
				return bson.RawValue{}, false, err
			}
			looked = true
			continue
		}
		select {
		case <-under:
		case <-ctx.Done():
			return bson.RawValue{}, false, context.Cause(ctx)
		}
		p.mu.Lock()
		looked = len(p.ids) == 0 && !p.stale() // another worker has looked, and found nothing
		p.mu.Unlock()
	}
}

// stale reports whether it is time to look again: the look is old, or other processes
// have taken too many of the documents that it saw. With p.mu held.
func (p *pool) stale() bool {
	return time.Since(p.seen) > windowAge || p.misses > 1+p.tries/16
}

// pick takes one of the first few documents out of the pool. With p.mu held.
func (p *pool) pick() (bson.RawValue, bool) {
	if len(p.ids) == 0 || p.stale() {
		return bson.RawValue{}, false
	}
	at := rand.N(min(p.reach, len(p.ids)))
	id := p.ids[at]
	p.ids = append(p.ids[:at], p.ids[at+1:]...)
	p.drawn[text(id)] = drawing
	p.tries++
	return id, true
}

// done records the outcome of a claim of a drawn document.
func (p *pool) done(id bson.RawValue, missed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drawn[text(id)] = p.looks // a look under way may show it as it was before
	switch {
	case missed:
		p.misses++
		p.reach = min(4*p.reach, window)
	case p.reach > 1:
		p.reach -= max(1, p.reach/64)
	}
}

// spoil leaves a document that does not decode alone for a while.
func (p *pool) spoil(id bson.RawValue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bad[text(id)] = time.Now().Add(badFor)
}

func text(id bson.RawValue) string { return string(id.Type) + string(id.Value) }

// look fills the pool, for all workers of this process.
func (p *pool) look(ctx context.Context) error {
	ids, err := p.find(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.looking)
	p.looking = nil
	if err != nil {
		return fmt.Errorf("doclock: looking for work: %w", err)
	}
	now := time.Now()
	p.ids = p.ids[:0]
	for _, id := range ids {
		key := text(id)
		if until, bad := p.bad[key]; p.drawn[key] >= p.looks || bad && now.Before(until) {
			continue
		}
		p.ids = append(p.ids, id)
	}
	for key, until := range p.drawn {
		if until <= p.looks {
			delete(p.drawn, key)
		}
	}
	for key, until := range p.bad {
		if now.After(until) {
			delete(p.bad, key)
		}
	}
	p.seen, p.tries, p.misses = now, 0, 0
	if len(p.ids) > 0 {
		p.waiters.wake()
	}
	return nil
}

func (p *pool) find(ctx context.Context) ([]bson.RawValue, error) {
	ctx, cancel := context.WithTimeout(mongobase.Bare(ctx), 10*time.Second)
	defer cancel()
	now, err := p.store.base.ReadFresh(ctx)
	if err != nil {
		return nil, err
	}
	opts := options.Find().SetLimit(window).SetBatchSize(window + 1).SetProjection(bson.D{{Key: "_id", Value: 1}})
	if p.sort != nil {
		opts.SetSort(p.sort)
	}
	cursor, err := p.store.base.Soft.Find(ctx, p.store.claimableOf(p.filter, now.Earliest), opts)
	if err != nil {
		return nil, err
	}
	defer cursor.Close(ctx)
	var ids []bson.RawValue
	for cursor.Next(ctx) {
		id := cursor.Current.Lookup("_id")
		id.Value = append([]byte(nil), id.Value...)
		ids = append(ids, id)
	}
	return ids, cursor.Err()
}

// strangers looks now and then for documents whose field of the lock holds something
// foreign. Claims pass over them, so they would wait for ever unnoticed.
func (p *pool) strangers(ctx context.Context) error {
	p.mu.Lock()
	due := time.Since(p.lookedAt) > lookFor || p.lookedAt.IsZero()
	if due {
		p.lookedAt = time.Now()
	}
	p.mu.Unlock()
	if !due {
		return nil
	}
	s := p.store
	ctx, cancel := context.WithTimeout(mongobase.Bare(ctx), 10*time.Second)
	defer cancel()
	image, err := s.base.Find(ctx, bson.D{{Key: "$and", Value: bson.A{p.filter, bson.D{
		{Key: s.field, Value: bson.D{{Key: "$exists", Value: true}}},
		{Key: s.path(fieldMark), Value: bson.D{{Key: "$ne", Value: shape}}},
	}}}})
	if err != nil || !image.Found() {
		return err
	}
	if rec := s.read(image).Record; rec.foreign != "" {
		return fmt.Errorf("doclock: claim: the document with _id %s: %w", clip(image.Image.Lookup("_id")), rec.Foreign())
	}
	return nil
}

// keyOfID is the key of the document with this _id.
func keyOfID(id bson.RawValue) (string, error) {
	key, _, err := keyOf(ID(id))
	return key, err
}
