package pathlock

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kind is what happened to a lock.
type Kind string

// The kinds of events.
const (
	Added    Kind = "added"
	Released Kind = "released"
	Expired  Kind = "expired"
)

// An Event is what happened to one lock, and when by the storage's clock.
type Event struct {
	Seq  int64     `json:"seq"` // of the tree's; later ones are greater
	Kind Kind      `json:"kind"`
	At   time.Time `json:"at"`
	Lock Lock      `json:"lock"`
}

// Watch yields what happens to the locks of the tree from the moment when it returns:
// each event once, in order of time. It ends when its context does, without an error,
// or with one when the tree is closed or the storage fails; then watch again.
//
// Who falls more than LogLength events behind is told what became of the locks that he
// knew, but not of those that came and went meanwhile.
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
	known  map[string]Lock
	events []Event       // not yet yielded
	next   time.Duration // until the first lock that it knows runs out
}

// look reads on. It writes where a lock has run out, so that the event is logged once
// for all who watch, and where the word that somebody watches has to be renewed.
func (w *watcher) look(ctx context.Context) error {
	var seen watcher
	o := w.tree.write(ctx, func(doc *Document, now Clock) (Edit, outcome) {
		e := doc.begin(now)
		e.Watched = doc.watch(now)
		seen = w.read(doc, e, now)
		return e, outcome{}
	}, "")
	if o.err == nil {
		w.begun, w.seq, w.known, w.next = true, seen.seq, seen.known, seen.next
		w.events = append(w.events, seen.events...)
	}
	return o.err
}

// read is what the watcher will know once the edit is applied. The document is not to
// be kept, and this may be asked again, so w stays as it is.
func (w *watcher) read(doc *Document, e Edit, now Clock) watcher {
	seen := watcher{seq: doc.Seq, known: make(map[string]Lock), next: pollLive}
	log := slices.Concat(doc.Log, e.Events)
	if len(e.Events) > 0 {
		seen.seq = e.Events[len(e.Events)-1].Seq
	}
	for l := range doc.Locks() {
		if slices.Contains(e.Drop, l.Token) {
			continue
		}
		seen.known[l.Token] = l
		if !l.ExpireAt.IsZero() {
			seen.next = min(seen.next, max(tick, l.ExpireAt.Sub(now.Earliest)+tick))
		}
	}
	if !w.begun {
		return seen
	}
	fresh := slices.DeleteFunc(slices.Clone(log), func(event Event) bool { return event.Seq <= w.seq })
	if int64(len(fresh)) < seen.seq-w.seq || seen.seq < w.seq || !doc.watched(now) {
		fresh = w.differences(seen, now)
	}
	for _, event := range fresh {
		event.Lock = event.Lock.copied()
		seen.events = append(seen.events, event)
	}
	return seen
}

// differences are the events that can still be told when the log has gone on without
// the watcher.
func (w *watcher) differences(seen watcher, now Clock) []Event {
	var all []Event
	for token, l := range seen.known {
		if _, ok := w.known[token]; !ok {
			all = append(all, Event{Seq: seen.seq, Kind: Added, At: l.Since, Lock: l})
		}
	}
	for _, token := range slices.Sorted(maps.Keys(w.known)) {
		l := w.known[token]
		if _, ok := seen.known[token]; ok {
			continue
		}
		event := Event{Seq: seen.seq, Kind: Released, At: now.Latest, Lock: l}
		if !l.live(now.Earliest) {
			event.Kind, event.At = Expired, l.ExpireAt
		}
		all = append(all, event)
	}
	slices.SortStableFunc(all, func(a, b Event) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Lock.Token, b.Lock.Token))
	})
	return all
}

func (l Lock) copied() Lock {
	l.Owner = slices.Clone(l.Owner)
	return l
}
