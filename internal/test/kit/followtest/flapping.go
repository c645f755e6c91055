// Package followtest has a feed for the tests of what follows one.
package followtest

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/store"
)

// ErrBroken is how a Flapping feed ends.
var ErrBroken = errors.New("the feed broke")

// Flapping is a feed that opens, and breaks at once.
type Flapping struct{ opened atomic.Int64 }

// Notify loses the notice.
func (f *Flapping) Notify(context.Context, ...store.Notice) error { return nil }

// Watch yields that it is live, and then an error.
func (f *Flapping) Watch(context.Context, store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		f.opened.Add(1)
		_ = yield(store.Notice{}, nil) && yield(store.Notice{}, ErrBroken)
	}
}

// TriedTooOften reports whether the feed was opened more often than a package
// follow.Follower does that needed it for as long as lasted: with pauses of 5 s, and
// shorter ones at first.
func (f *Flapping) TriedTooOften(lasted time.Duration) (opened int64, tooOften bool) {
	opened = f.opened.Load()
	return opened, opened > int64(lasted/(4*time.Second))+10
}
