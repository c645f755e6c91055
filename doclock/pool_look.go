package doclock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// look fills the pool, for all workers of this process.
func (p *pool) look(ctx context.Context, size int) error {
	ids, over, full, err := p.find(ctx, size)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.looking)
	p.looking = nil
	if err != nil {
		return fmt.Errorf("doclock: looking for work: %w", err)
	}
	now := time.Now()
	p.ids, p.over = p.usable(ids), over
	for key, until := range p.drawn {
		if until <= p.looks {
			delete(p.drawn, key)
		}
	}
	for key, bad := range p.bad {
		if now.Sub(bad.until) > bad.pause { // it is gone, or good
			delete(p.bad, key)
		}
	}
	p.seen, p.tries, p.misses, p.full = now, 0, 0, full
	if len(p.ids) > 0 {
		p.waiters.wake()
	}
	return nil
}

// usable returns those of the documents that may be drawn. Call it with p.mu held.
func (p *pool) usable(ids []bson.RawValue) (some []bson.RawValue) {
	now := time.Now()
	for _, id := range ids {
		if key := text(id); p.drawn[key] < p.looks && !now.Before(p.bad[key].until) {
			some = append(some, id)
		}
	}
	return some
}

// find returns the _ids of documents to claim, and which of them have a holder that is
// over. full says that there may be more.
func (p *pool) find(ctx context.Context, size int) (ids []bson.RawValue, over holders, full bool, err error) {
	ctx, cancel := context.WithTimeout(server.Bare(ctx), 10*time.Second)
	defer cancel()
	if err = p.store.base.ReadFresh(ctx); err != nil {
		return nil, nil, false, err
	}
	now := p.store.base.Present()
	if some, err := p.anything(ctx, now); !some || err != nil {
		return nil, nil, false, err
	}
	until := now
	ids, over, full, err = p.findUntil(ctx, 0, size, now, until)
	if err == nil && full && len(ids) == 0 { // none of these holders is known to be over yet, but there may be free documents behind them
		until = time.Time{}
		ids, over, full, err = p.findUntil(ctx, 0, size, now, until)
	}
	// However many documents are left alone, or foreign, there may be others behind them.
	skip := 0
	for err == nil && full && !p.some(ids) && p.isFarDue() {
		skip += size
		size = min(4*size, farMost)
		ids, over, full, err = p.findUntil(ctx, skip, size, now, until)
	}
	if skip > 0 && !p.some(ids) {
		p.mu.Lock()
		p.farAt = time.Now().Add(lookFor)
		p.mu.Unlock()
	}
	return ids, over, full, err
}

// some reports whether a look has found documents that may be drawn.
func (p *pool) some(ids []bson.RawValue) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.usable(ids)) > 0
}

// isFarDue reports whether it is time to look behind the head: that is not soon after this found nothing.
func (p *pool) isFarDue() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !time.Now().Before(p.farAt)
}

// anything reports whether there is anything to claim, as far as a find without the sort tells: that can skip what is
// put off. It is asked for if the last look found nothing.
func (p *pool) anything(ctx context.Context, now time.Time) (some bool, err error) {
	p.mu.Lock()
	ask := p.sort != nil && !p.seen.IsZero() && p.tries == 0 && len(p.ids) == 0
	p.mu.Unlock()
	if !ask {
		return true, nil
	}
	r, err := p.store.base.Find(ctx, p.store.claimableOf(p.filter, now, now), options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	return r.Found(), err
}

// findUntil makes one find: of free documents, and of those whose holder's end is not later
// than until. That is only a hint: whether such a holder is over is judged as in any claim.
func (p *pool) findUntil(ctx context.Context, skip, size int, now, until time.Time) (ids []bson.RawValue, over holders, full bool, err error) {
	opts := options.Find().SetSkip(int64(skip)).SetLimit(int64(size)).SetBatchSize(int32(size) + 1).SetProjection(bson.D{{Key: string(p.store.lock), Value: 1}})
	if p.sort != nil {
		opts.SetSort(p.sort)
	}
	base := p.store.base
	sent := base.Clock.Now()
	cursor, err := base.W1.Find(ctx, p.store.claimableOf(p.filter, now, until), opts)
	if err != nil {
		return nil, nil, false, err
	}
	defer cursor.Close(ctx)
	over = holders{}
	var marks []server.HolderState
	found := 0
	var odd error
	for cursor.Next(ctx) {
		id := cursor.Current.Lookup("_id")
		id.Value = slices.Clone(id.Value)
		seen := readLock(cursor.Current, string(p.store.lock))
		found++
		if seen.Foreign != nil {
			odd = passedOver(id, seen.Foreign)
			continue
		}
		ids = append(ids, id)
		for _, h := range seen.Holders {
			over[text(id)] = h
			marks = append(marks, h.State())
		}
	}
	if err := cursor.Err(); err != nil {
		return nil, nil, false, err
	}
	if odd != nil || skip == 0 {
		p.mu.Lock()
		p.odd = odd
		p.mu.Unlock()
	}
	full = found == size
	if len(marks) == 0 { // those that were seen before are remembered
		return ids, over, full, nil
	}
	judged, err := base.Judge(ctx, string(p.filter)+string(p.sort), marks, sent, base.Clock.Now())
	ids = slices.DeleteFunc(ids, func(id bson.RawValue) bool {
		h, held := over[text(id)]
		return held && !judged[h.ID]
	})
	return ids, over, full, err
}

// overOn returns the holder of that document that is over, or nil if it has no holder.
func (p *pool) overOn(id bson.RawValue) *lease.Holder {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, held := p.over[text(id)]; held {
		return &h
	}
	return nil
}

// passedOver returns the error of a document that claims pass over because foreign content
// stands in the lock's place, or nil if none was seen.
func (p *pool) passedOver() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.foreign
}

// lookForForeign looks now and then for such a document, which would otherwise wait for ever
// unnoticed, and whether it is another one than before. It is not part of the claim, so a fault is ignored.
func (p *pool) lookForForeign(ctx context.Context) (news bool, foreign error) {
	p.mu.Lock()
	if time.Since(p.lookedAt) <= lookFor {
		defer p.mu.Unlock()
		return false, p.foreign
	}
	p.lookedAt = time.Now()
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(server.Bare(ctx), 10*time.Second)
	defer cancel()
	image, err := p.store.steps.Find(ctx, p.store.foreignOf(p.filter, p.store.base.Present()))
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		return false, p.foreign
	}
	was := p.foreign
	if p.foreign = p.odd; image.Found() && image.Foreign != nil {
		p.foreign = passedOver(image.Image.Lookup("_id"), image.Foreign)
	}
	return p.foreign != nil && (was == nil || was.Error() != p.foreign.Error()), p.foreign
}

func passedOver(id bson.RawValue, why error) error {
	return fmt.Errorf("doclock: claim: the document with _id %s: %w", clip(id), why)
}
