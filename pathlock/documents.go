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

// update makes one step of the document.
func (d documents) update(ctx context.Context, decide func(*document, interval) outcome) outcome {
	var o outcome
	at, err := d.kept.Update(ctx, d.name, func(doc *document, now interval) {
		heard := doc.watched(now)
		doc.ended = false
		o = decide(doc, now)
		o.changed, o.heard = o.changed || doc.ended, heard
	})
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
			if w != nil && d.feed() != nil {
				doc.leaveWord(now)
			}
			c := conflict(r, held, 0).waitsFor(first, now)
			if mine, useless := w.reservation(c, doc.Reserved, now); mine != nil {
				doc.unreserve(useless...)
				doc.reserve(*mine)
			}
			return outcome{err: c}
		}
		l.Since, l.ExpireAt = server.Ceil(now.Latest), now.end(l.Timeout)
		doc.begin(now)
		if w != nil {
			doc.unreserve(w.id)
		}
		doc.put(l)
		doc.log(now, Added, l, l.Since)
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
		doc.begin(now)
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
		doc.begin(now)
		doc.drop(token)
		doc.log(now, Released, *l, now.Latest)
		return outcome{}
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

func (d documents) watcher(t *Tree) watcher { return &documentWatcher{documents: d, tree: t} }

// A documentWatcher holds how far one Watch has read.
type documentWatcher struct {
	documents
	tree  *Tree
	begun bool
	seq   int64
}

// look reads on. It writes if a lock has run out, so that the event is logged once for all
// watchers, and if the word of the watchers has to be renewed.
func (w *documentWatcher) look(ctx context.Context) (events []Event, next time.Duration, err error) {
	var read struct { // by a request that goes on if the caller leaves
		seq   int64
		fresh []Event
		next  time.Duration
	}
	o := w.tree.write(ctx, func(ctx context.Context) outcome {
		return w.update(ctx, func(doc *document, now interval) outcome {
			doc.begin(now)
			doc.leaveWord(now)
			read.seq, read.fresh, read.next = doc.Seq, w.read(doc, now), doc.nextExpiry(now)
			return outcome{}
		})
	})
	if o.err != nil {
		return nil, 0, o.err
	}
	w.begun, w.seq = true, read.seq
	return read.fresh, read.next, nil
}

// read returns the new events. It leaves w as it is: the caller may have left.
func (w *documentWatcher) read(doc *document, now interval) (fresh []Event) {
	if !w.begun {
		return nil
	}
	for _, event := range doc.Log {
		if event.Seq > w.seq {
			event.Lock = event.Lock.copied()
			fresh = append(fresh, event)
		}
	}
	if int64(len(fresh)) < doc.Seq-w.seq || doc.Seq < w.seq {
		return reset(doc.Seq, now.Latest, doc.all(now))
	}
	return fresh
}

// reset tells a watcher that missed events of all locks.
func reset(seq int64, at time.Time, locks []Lock) []Event {
	all := []Event{{Seq: seq, Kind: Reset, At: at}}
	for _, l := range locks {
		l.Left = 0
		all = append(all, Event{Seq: seq, Kind: Added, At: at, Lock: l})
	}
	return all
}
