package pathlock

import (
	"context"
	"iter"
	"time"
)

// Kind says what happened to a lock.
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

// Watch yields what happens to the locks of the tree from the moment when it returns: each
// event once, in order of time. It ends without an error when its context does, and with an
// error when the tree is closed or the storage fails; then watch again.
//
// A watcher that falls more than logLength events behind, or does not read for a minute, may
// miss some events. It is then told so by a Reset, and of each lock that exists.
func (t *Tree) Watch(ctx context.Context) (iter.Seq2[Event, error], error) {
	w := t.store.watcher(t)
	_, next, err := w.look(ctx)
	if err != nil {
		return nil, err
	}
	return func(yield func(Event, error) bool) {
		woken, leave := t.hub.join()
		defer leave()
		for poll := time.Duration(0); ; {
			poll = t.hub.patience(poll)
			err := t.hub.sleep(ctx, woken, min(poll, wordFor/4, next))
			var events []Event
			if err == nil {
				events, next, err = w.look(ctx)
			}
			for _, event := range events {
				if ctx.Err() != nil || !yield(event, nil) {
					return
				}
				poll = 0
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
