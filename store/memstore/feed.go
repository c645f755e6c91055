package memstore

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/mongolock/mongolock/store"
)

// backlog is how many notices a watcher may be behind. After that one empty notice replaces
// them all: read everything.
const backlog = 64

// feed hands notices to the watchers of a store.
type feed struct {
	mu       sync.Mutex // protects watchers; held while sending
	watchers map[chan store.Notice]store.Audience
}

// Notify sends each notice to the watchers for whom it is, and waits for none of them.
func (s *Store) Notify(ctx context.Context, all ...store.Notice) error {
	if err := ended(ctx); err != nil {
		return err
	}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	for _, n := range all {
		for watcher, of := range s.feed.watchers {
			if gets(of, n) {
				send(watcher, n)
			}
		}
	}
	return nil
}

// gets reports whether a notice is for the audience.
func gets(of store.Audience, n store.Notice) bool {
	switch {
	case n == store.Notice{}, of.Address == "" && len(of.Topics) == 0:
		return true
	case n.To != "":
		return n.To == of.Address
	}
	return slices.Contains(of.Topics, n.Topic)
}

// Watch yields an empty notice at once, and then every notice that is sent to its audience. A
// watcher that falls far behind gets one empty notice in place of all it missed.
func (s *Store) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		watcher := make(chan store.Notice, backlog)
		s.feed.add(watcher, of)
		defer s.feed.remove(watcher)

		notice := store.Notice{}
		for {
			// The context comes first: a busy feed must not keep an ended watch alive.
			if ctx.Err() != nil || !yield(notice, nil) {
				return
			}
			select {
			case notice = <-watcher:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (f *feed) add(watcher chan store.Notice, of store.Audience) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers == nil {
		f.watchers = make(map[chan store.Notice]store.Audience)
	}
	f.watchers[watcher] = of
}

func (f *feed) remove(watcher chan store.Notice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, watcher)
}

// send never blocks: feed.mu is held, so no other call sends, and a drained channel has room
// for the one notice that stands for all the others.
func send(watcher chan store.Notice, n store.Notice) {
	select {
	case watcher <- n:
		return
	default:
	}
	for len(watcher) > 0 {
		select {
		case <-watcher:
		default:
		}
	}
	watcher <- store.Notice{}
}
