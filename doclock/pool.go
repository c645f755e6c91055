package doclock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/lease"
)

const (
	windowLeast = 16          // most documents that the first look ahead finds
	windowMost  = 1024        // most documents that any other look finds
	windowAge   = time.Second // how long the result of a look is used

	badFor   = time.Minute      // how long a document that does not decode, cannot be claimed, or is missed again and again, is left alone; doubled each time
	badMost  = time.Hour        // … and at most
	maxMiss  = 64               // documents that one attempt of a claim misses at most
	badAfter = 3                // … and how often the same one
	lookFor  = 10 * time.Second // how often a look for foreign locks is due, and one far ahead that finds nothing
	farMost  = 1 << 16          // most documents that one find of a look far ahead reads
	maxPools = 64               // pools that are remembered
)

// A pool has the documents that may be claimed by one filter and sort, as one look saw them.
// The workers of a process draw from it: so they never claim the same document, and one look
// serves them all. Other processes have pools of their own. A process that misses a document
// draws from further into its pool, and from nearer again when it misses none. So a single
// process keeps the order, and many processes spread.
//
// A drawn document is only a hint: the claim itself asks for all conditions again.
type pool struct {
	store  *docStore
	filter bson.Raw
	sort   bson.Raw // nil: none

	mu       sync.Mutex // protects what follows; never held across a command
	ids      []bson.RawValue
	over     holders              // those of the documents that are over
	seen     time.Time            // when the look was answered
	tries    int                  // documents drawn from this look
	misses   int                  // how many of the drawn documents were gone
	size     int                  // how many documents it found at most
	full     bool                 // it found that many
	reach    int                  // from how many of the first documents a worker draws
	looking  chan struct{}        // closed when the look under way is over
	looks    uint64               // looks that were begun
	drawn    map[string]uint64    // by the _id of a drawn document: the last look that may still show it
	bad      map[string]leftAlone // by the _id of a document that is left alone
	farAt    time.Time            // when a look far ahead is due
	lookedAt time.Time            // when foreign locks were last looked for
	foreign  error                // the foreign lock that was found
	odd      error                // one that the last look for work has met
	used     time.Time            // when a claim last asked for the pool

	waiters waiters
}

// A leftAlone says until when a document is left alone, and for how long it was.
type leftAlone struct {
	until time.Time
	pause time.Duration
}

// holders are the holders that are over and have not left, by the _ids of their documents.
type holders map[string]lease.Holder

// drawing stands for the look's number while the claim of a document is under way.
const drawing = ^uint64(0)

func newPool(s *docStore, filter, sort bson.Raw) *pool {
	return &pool{store: s, filter: filter, sort: sort, reach: 1,
		drawn: map[string]uint64{}, bad: map[string]leftAlone{}, waiters: newWaiters()}
}

// draw returns the _id of a document to claim, or false if there is none.
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
			p.resize()
		}
		size := p.size
		p.mu.Unlock()
		if under == nil {
			if err := p.look(ctx, size); err != nil {
				return bson.RawValue{}, false, err
			}
			looked = true
			continue
		}
		select {
		case <-under:
		case <-ctx.Done():
			return bson.RawValue{}, false, fmt.Errorf("doclock: looking for work: %w", contextError(ctx))
		}
		p.mu.Lock()
		looked = len(p.ids) == 0 && !p.stale() // another worker has looked, and found nothing
		p.mu.Unlock()
	}
}

// stale reports whether it is time to look again: the look is old, or other processes have
// taken too many of the documents that it saw. Call it with p.mu held.
func (p *pool) stale() bool {
	return time.Since(p.seen) > windowAge || p.worn()
}

func (p *pool) worn() bool { return p.misses > 1+p.tries/16 }

// resize sets how many documents the next look finds at most: more if the last one was used up
// before its time, and no more than twice as many as were drawn if it grew old. So slow workers
// do not look at a thousand documents for each claim. Call it with p.mu held.
func (p *pool) resize() {
	switch {
	case p.seen.IsZero():
		p.size = windowLeast
	case p.worn() || len(p.ids) == 0 && p.full:
		p.size = min(4*p.size, windowMost)
	case time.Since(p.seen) > windowAge:
		p.size = max(windowLeast, min(p.size, 2*p.tries))
	}
}

// pick takes one of the first few documents out of the pool. Call it with p.mu held.
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
		p.reach = min(4*p.reach, windowMost)
	case p.reach > 1:
		p.reach -= max(1, p.reach/64)
	}
}

// spoil leaves a document alone for a while: one that does not decode, or one that looks show and no
// claim gets.
func (p *pool) spoil(id bson.RawValue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pause := max(badFor, min(2*p.bad[text(id)].pause, badMost))
	p.bad[text(id)] = leftAlone{time.Now().Add(pause), pause}
}

func text(id bson.RawValue) string { return string(id.Type) + string(id.Value) }
