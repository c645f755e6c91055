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
	window    = 1024             // how many documents one look ahead tells of
	windowAge = time.Second      // how long it is good for
	badFor    = time.Minute      // how long what does not decode is left alone
	lookFor   = 10 * time.Second // how often documents with a stranger's lock are looked for
	maxShapes = 64               // of claims that are remembered
)

// A pool is the documents that may be claimed by one filter and sort, as one look
// saw them. The workers of a process draw from it, so that they never fight for the
// same one and look but once for all of them. Those of other processes have pools
// of their own: how far into its pool a process reaches grows with each document that
// it misses, and shrinks as it does not. So one process keeps the order, and
// many spread.
//
// What is drawn is only a hint: the claim itself asks for all of it again.
type pool struct {
	store  *docStore
	filter bson.Raw
	sort   bson.Raw // nil: none

	mu       sync.Mutex // protects what follows; never held across a command
	ids      []bson.RawValue
	seen     time.Time
	tries    int // drawn from this look, and how many of them were gone
	misses   int
	reach    int
	looking  chan struct{}        // closed when the look under way is over
	looks    uint64               // that were begun
	drawn    map[string]uint64    // by the _id, until which look it may be seen though it was drawn
	bad      map[string]time.Time // does not decode; looked at again then
	lookedAt time.Time            // for strangers
	used     time.Time

	line line
}

const drawing = ^uint64(0)

func newPool(s *docStore, filter, sort bson.Raw) *pool {
	return &pool{store: s, filter: filter, sort: sort, reach: 1,
		drawn: map[string]uint64{}, bad: map[string]time.Time{}, line: newLine()}
}

// draw answers a document to claim; false if there is none.
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
		looked = len(p.ids) == 0 && !p.stale() // somebody has looked for us
		p.mu.Unlock()
	}
}

// stale reports whether it is time to look again: the look is old, or others have
// been at too many of what it saw. With p.mu held.
func (p *pool) stale() bool {
	return time.Since(p.seen) > windowAge || p.misses > 1+p.tries/16
}

// pick takes one out, from the first few. With p.mu held.
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

// done says what became of one that was drawn.
func (p *pool) done(id bson.RawValue, missed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drawn[text(id)] = p.looks // a look that is under way may not know
	switch {
	case missed:
		p.misses++
		p.reach = min(4*p.reach, window)
	case p.reach > 1:
		p.reach -= max(1, p.reach/64)
	}
}

// spoil leaves alone for a while what does not decode.
func (p *pool) spoil(id bson.RawValue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bad[text(id)] = time.Now().Add(badFor)
}

func text(id bson.RawValue) string { return string(id.Type) + string(id.Value) }

// look looks ahead, for all workers of this process.
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
		p.line.come()
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

// strangers looks now and then whether documents are passed over because something
// else stands in the lock's place: those would wait for ever.
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
	if rec := s.read(image); rec.foreign != "" {
		return fmt.Errorf("doclock: claim: the document with _id %s: %w", clip(image.Image.Lookup("_id")), s.foreign(rec))
	}
	return nil
}

// key is that of the document with this _id.
func keyOfID(id bson.RawValue) (string, error) {
	key, _, err := keyOf(ID(id))
	return key, err
}
