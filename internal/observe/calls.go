// Package observe counts the calls of a store.
package observe

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/mongolock/mongolock/store"
)

// A Call is a kind of call of a store.
type Call int

// The calls of a store and of its feed.
const (
	Acquire Call = iota
	Transfer
	Renew
	Release
	Leave
	Undo
	Break
	Look
	List
	Notify
	Watch
	calls // how many there are
)

var callNames = [calls]string{"acquire", "transfer", "renew", "release", "leave", "undo", "break", "look", "list", "notify", "watch"}

// Calls counts calls of a store, by kind. A call for many keys is one.
type Calls struct{ counts [calls]atomic.Uint64 }

// Add counts one call.
func (c *Calls) Add(kind Call) { c.counts[kind].Add(1) }

// ByName returns the calls so far.
func (c *Calls) ByName() map[string]uint64 {
	all := make(map[string]uint64, calls)
	for kind := range c.counts {
		all[callNames[kind]] = c.counts[kind].Load()
	}
	return all
}

// Feed returns a feed whose calls are counted; nil stays nil.
func (c *Calls) Feed(f store.Feed) store.Feed {
	if f == nil {
		return nil
	}
	return counted{f, c}
}

type counted struct {
	store.Feed
	calls *Calls
}

func (f counted) Notify(ctx context.Context, all ...store.Notice) error {
	f.calls.Add(Notify)
	return f.Feed.Notify(ctx, all...)
}

func (f counted) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	f.calls.Add(Watch)
	return f.Feed.Watch(ctx, of)
}
