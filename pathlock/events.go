package pathlock

import (
	"context"
	"iter"
	"slices"
	"time"
)

// Kind is what happened to a lock.
type Kind string

// The kinds of events.
const (
	Added    Kind = "added"
	Released Kind = "released"
	Expired  Kind = "expired"

	// Reset says that the watcher has missed events. Forget the locks that you knew: the
	// events that follow add each lock that exists now.
	Reset Kind = "reset"
)

// An Event says what happened to one lock, and when by the storage's clock.
type Event struct {
	Seq  int64     `json:"seq"` // grows with each event of the tree; those of a Reset share one
	Kind Kind      `json:"kind"`
	At   time.Time `json:"at"`
	Lock Lock      `json:"lock"` // none with Reset
}

// Watch yields what happens to the locks of the tree from the moment when it returns:
// each event once, in order of time. It ends without an error when its context does, and
// with one when the tree is closed or the storage fails; then watch again.
//
// A watcher that falls more than LogLength events behind, or does not read for a minute,
// may miss some. It is told so by a Reset, and then of each lock that exists.
func (t *Tree) Watch(ctx context.Context) (iter.Seq2[Event, error], error) {
	w := &watcher{tree: t}
	if err := w.look(ctx); err != nil {
		return nil, err
	}
	return func(yield func(Event, error) bool) {
		woken, leave := t.hub.join()
		defer leave()
		for poll := time.Duration(0); ; {
			for _, event := range w.events {
				if ctx.Err() != nil || !yield(event, nil) {
					return
				}
			}
			if len(w.events) > 0 {
				poll = 0
			}
			w.events = nil
			poll = t.hub.patience(poll)
			err := t.hub.sleep(ctx, woken, min(poll, wordFor/4, w.next))
			if err == nil {
				err = w.look(ctx)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(Event{}, err)
				return
			}
		}
	}, nil
}

// A watcher is one Watch: how far it has read, and what is new.
type watcher struct {
	tree   *Tree
	begun  bool
	seq    int64
	events []Event       // not yielded yet
	next   time.Duration // until the first lock runs out
}

// look reads on. It writes if a lock has run out, so that the event is logged once for
// all watchers, and if the word that somebody watches has to be renewed.
func (w *watcher) look(ctx context.Context) error {
	var seen watcher
	o := w.tree.write(ctx, func(doc *Document, now Clock) (Edit, outcome) {
		e := doc.begin(now)
		doc.leaveWord(&e, now)
		seen = w.read(doc, e, now)
		return e, outcome{}
	}, "")
	if o.err == nil {
		w.begun, w.seq, w.next = true, seen.seq, seen.next
		w.events = append(w.events, seen.events...)
	}
	return o.err
}

// read returns what the watcher will know once the edit is applied. It leaves w as it
// is, because it may be called again.
func (w *watcher) read(doc *Document, e Edit, now Clock) watcher {
	seen := watcher{seq: max(doc.Seq, e.Seq), next: doc.nextExpiry(now)}
	log := slices.Concat(doc.Log, e.Events)
	if len(e.Events) > 0 {
		seen.seq = e.Events[len(e.Events)-1].Seq
	}
	if !w.begun {
		return seen
	}
	fresh := slices.DeleteFunc(slices.Clone(log), func(event Event) bool { return event.Seq <= w.seq })
	if int64(len(fresh)) < seen.seq-w.seq || seen.seq < w.seq {
		fresh = []Event{{Seq: seen.seq, Kind: Reset, At: now.Latest}}
		for _, l := range doc.all(now) {
			fresh = append(fresh, Event{Seq: seen.seq, Kind: Added, At: now.Latest, Lock: l})
		}
	}
	for _, event := range fresh {
		event.Lock = event.Lock.copied()
		seen.events = append(seen.events, event)
	}
	return seen
}

func (l Lock) copied() Lock {
	l.Owner = slices.Clone(l.Owner)
	return l
}
