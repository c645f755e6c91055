package pathlock

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// documents is the store of a tree that is one document, changed by compare-and-swap.
type documents struct {
	kept   keeper
	name   string
	atOnce bool // its calls never block
}

func (d documents) prompt() bool { return d.atOnce }

func (d documents) feed() store.Feed {
	feed, _ := d.kept.(store.Feed)
	return feed
}

// awaited: a notice costs nothing in memory, and files have no feed.
func (d documents) awaited(context.Context) bool { return true }

// update makes one step of the document.
func (d documents) update(ctx context.Context, decide func(*document, interval) outcome) outcome {
	var o outcome
	at, err := d.kept.Update(ctx, d.name, func(doc *document, now interval) { o = decide(doc, now) })
	o.at = at
	if err != nil {
		return outcome{fault: err, lock: o.lock, claims: o.claims}
	}
	return o
}

func (d documents) lock(ctx context.Context, r Request, l Lock, w *waiter) outcome {
	return d.update(ctx, func(doc *document, now interval) outcome {
		held, first := doc.conflicts(r, now), keptOut(r, doc.Reserved, now)
		if held.Len()+len(first) > 0 {
			c := conflict(r, held, 0).waitsFor(first, now)
			if mine, useless := w.reservation(c, doc.Reserved, now); mine != nil {
				doc.unreserve(useless...)
				doc.reserve(*mine)
			}
			return outcome{err: c}
		}
		l.Since, l.ExpireAt = server.Ceil(now.Latest), now.end(l.Timeout)
		doc.sweep(now)
		if w != nil {
			doc.unreserve(w.id)
		}
		doc.put(l)
		return outcome{lock: l, claims: l.Token, exact: now.exact()}
	})
}

func (d documents) refresh(ctx context.Context, token string, timeout time.Duration, least bool, left func() bool) outcome {
	return d.update(ctx, func(doc *document, now interval) outcome {
		old := doc.live(token, now)
		switch {
		case old == nil:
			return outcome{err: ErrUnknownToken}
		case left():
			return outcome{err: errLeft}
		}
		was, l := old.ExpireAt, old.copied()
		l.restart(timeout, least)
		l.ExpireAt, l.moved = now.end(l.Timeout), 0
		doc.sweep(now)
		doc.put(l)
		return outcome{lock: l, exact: now.exact(), changed: l.ExpireAt.Before(was)}
	})
}

func (d documents) release(ctx context.Context, token string) outcome {
	return d.update(ctx, func(doc *document, now interval) outcome {
		l := doc.live(token, now)
		if l == nil {
			return outcome{err: ErrUnknownToken}
		}
		doc.sweep(now)
		doc.drop(token)
		return outcome{changed: true}
	})
}

func (d documents) unreserve(ctx context.Context, id string) outcome {
	return d.update(ctx, func(doc *document, _ interval) outcome {
		return outcome{changed: doc.unreserve(id)} // it was not served
	})
}

// takeBack is settled by one step, because no step comes late.
func (d documents) takeBack(ctx context.Context, token string) (settled bool, err error) {
	o := d.release(ctx, token)
	return o.fault == nil, o.fault
}

func (d documents) view(ctx context.Context, _ part, look func(*document, interval)) error {
	return d.kept.View(ctx, d.name, look)
}
