package pathlock

import (
	"context"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// documents is the store of a tree that is one document, changed by compare-and-swap.
type documents struct {
	kept keeper
	name string
}

func (d documents) feed() store.Feed {
	feed, _ := d.kept.(store.Feed)
	return feed
}

func (d documents) prompt() bool {
	_, is := d.kept.(prompt)
	return is
}

// update makes one edit of the document.
func (d documents) update(ctx context.Context, decide func(*document, interval) (edit, outcome)) outcome {
	var o outcome
	at, err := d.kept.Update(ctx, d.name, func(doc *document, now interval) (edit, error) {
		var e edit
		e, o = decide(doc, now)
		o.changed = o.changed || len(e.Drop) > 0 || len(e.Events) > 0
		o.heard = doc.watched(now)
		return e, nil
	})
	o.at = at
	if err != nil {
		return outcome{fault: err, lock: o.lock, claims: o.claims}
	}
	return o
}

func (d documents) lock(ctx context.Context, r Request, l Lock, w *waiter) outcome {
	return d.update(ctx, func(doc *document, now interval) (edit, outcome) {
		held, first := doc.conflicts(r, now), keptOut(r, doc.Reserved, now)
		if held.Len()+len(first) > 0 {
			var e edit
			if w != nil && d.feed() != nil {
				doc.leaveWord(&e, now)
			}
			c := conflict(r, held, 0).waitsFor(first, now)
			e.Reserve, e.Unreserve = w.reservation(c, doc.Reserved, now)
			return e, outcome{err: c}
		}
		l := l
		l.Since, l.ExpireAt = server.Ceil(now.Latest), now.end(l.Timeout)
		e := doc.begin(now)
		if w != nil && doc.reserved(w.id) {
			e.Unreserve = []string{w.id}
		}
		e.Put = append(e.Put, l)
		doc.log(&e, now, Added, l, l.Since)
		return e, outcome{lock: l, claims: l.Token, exact: now.exact()}
	})
}

func (d documents) refresh(ctx context.Context, token string, timeout time.Duration, least bool, left func() bool) outcome {
	var was time.Time
	var wrote Lock
	o := d.update(ctx, func(doc *document, now interval) (edit, outcome) {
		old := doc.live(token, now)
		switch {
		case old == nil:
			return edit{}, outcome{err: ErrUnknownToken}
		case left():
			return edit{}, outcome{err: errLeft}
		}
		was = old.ExpireAt
		l := old.copied()
		l.restart(timeout, least)
		l.ExpireAt, l.moved = now.end(l.Timeout), 0
		wrote = l
		e := doc.begin(now)
		e.Put = append(e.Put, l)
		return e, outcome{lock: l, exact: now.exact(), changed: l.ExpireAt.Before(was)}
	})
	if o.err == nil && o.fault == nil && !was.IsZero() && !o.at.Before(was) {
		o.revived = func(ctx context.Context) (bool, error) { return d.dropRevived(ctx, wrote, was) }
	}
	return o
}

// dropRevived removes a lock that a refresh wrote after its end, unless it was refreshed since.
// A lock that was refreshed since has another timeout, or runs out at least that timeout after
// the end. (Two locks without end cannot be told apart.)
func (d documents) dropRevived(ctx context.Context, wrote Lock, was time.Time) (settled bool, err error) {
	if wrote.Timeout != Infinite && !wrote.ExpireAt.Before(server.Ceil(was.Add(wrote.Timeout))) {
		return true, nil // only a little too late, so it may be the later refresh: let it run out
	}
	_, err = d.kept.Update(ctx, d.name, func(doc *document, now interval) (edit, error) {
		l := doc.live(wrote.Token, now)
		if l == nil || l.Timeout != wrote.Timeout || !l.ExpireAt.Equal(wrote.ExpireAt) {
			return edit{}, nil
		}
		e := doc.begin(now)
		doc.log(&e, now, Released, *l, now.Latest)
		e.Drop = append(e.Drop, l.Token)
		return e, nil
	})
	return err == nil, err
}

func (d documents) release(ctx context.Context, token string) outcome {
	return d.update(ctx, func(doc *document, now interval) (edit, outcome) {
		l := doc.live(token, now)
		if l == nil {
			return edit{}, outcome{err: ErrUnknownToken}
		}
		e := doc.begin(now)
		e.Drop = append(e.Drop, token)
		doc.log(&e, now, Released, *l, now.Latest)
		return e, outcome{}
	})
}

func (d documents) unreserve(ctx context.Context, id string) outcome {
	return d.update(ctx, func(doc *document, _ interval) (e edit, o outcome) {
		if doc.reserved(id) { // it was not served
			e.Unreserve, o.changed = []string{id}, true
		}
		return e, o
	})
}

// takeBack is settled by one edit. It writes a new revision even if the token is not there: a
// late command of the first write then finds another revision than it names.
func (d documents) takeBack(ctx context.Context, token string) (settled bool, err error) {
	_, err = d.kept.Update(ctx, d.name, func(doc *document, now interval) (edit, error) {
		e := doc.begin(now)
		if l := doc.live(token, now); l != nil {
			doc.log(&e, now, Released, *l, now.Latest)
		}
		e.Drop, e.Touch = append(e.Drop, token), true
		return e, nil
	})
	return err == nil, err
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
		return w.update(ctx, func(doc *document, now interval) (edit, outcome) {
			e := doc.begin(now)
			doc.leaveWord(&e, now)
			read.seq, read.fresh = w.read(doc, e, now)
			read.next = doc.nextExpiry(now)
			return e, outcome{}
		})
	})
	if o.err != nil {
		return nil, 0, o.err
	}
	w.begun, w.seq = true, read.seq
	return read.fresh, read.next, nil
}

// read returns how far the watcher will have read once the edit is applied, and the new events.
// It leaves w as it is, because it may be called again.
func (w *documentWatcher) read(doc *document, e edit, now interval) (seq int64, fresh []Event) {
	seq = max(doc.Seq, e.Seq)
	if len(e.Events) > 0 {
		seq = e.Events[len(e.Events)-1].Seq
	}
	if !w.begun {
		return seq, nil
	}
	fresh = slices.DeleteFunc(slices.Concat(doc.Log, e.Events), func(event Event) bool { return event.Seq <= w.seq })
	if int64(len(fresh)) < seq-w.seq || seq < w.seq {
		return seq, reset(seq, now.Latest, doc.all(now))
	}
	for i := range fresh {
		fresh[i].Lock = fresh[i].Lock.copied()
	}
	return seq, fresh
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
