// Package lab has the store over which tests hear, lose, slow down and change what a process asks of
// a store. It uses the standard library alone, as the suites of users do that stand on it.
package lab

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// An Op names a kind of call.
type Op string

// The calls of a store and of its feed.
const (
	Acquire  Op = "acquire"
	Renew    Op = "renew"
	Release  Op = "release"
	Leave    Op = "leave"
	Transfer Op = "transfer"
	Undo     Op = "undo"
	Break    Op = "break"
	Look     Op = "look"
	List     Op = "list"
	Notify   Op = "notify"
	Watch    Op = "watch" // the opening of a watch
)

// calls are those that All hooks: a watch is no call that ends.
var calls = []Op{Acquire, Renew, Release, Leave, Transfer, Undo, Break, Look, List, Notify}

// A Store is one process's connection to a store. It counts the calls, and a Hook decides what
// becomes of each. New makes one. It is safe for concurrent use, and starts no goroutine but for
// Call.Late, so it works in a testing/synctest bubble.
//
// It is a Feed whatever it wraps. Over a store that is not, its feed answers errors.ErrUnsupported.
type Store struct {
	store.Store                 // calls on it meet no hook
	Mem         *memstore.Store // the same, if it is one

	// Tests set these before the store is used.
	Each  func(*Call)             // sees each call before its hook
	Heard func(store.Notice) bool // may delay a notice, and reports whether it is heard

	mu      sync.Mutex // protects what follows; never held across a call
	count   map[Op]int
	hooks   map[Op]Hook
	watches map[*context.CancelCauseFunc]struct{}
}

// New makes a connection to s.
func New(s store.Store) *Store {
	mem, _ := s.(*memstore.Store)
	return &Store{Store: s, Mem: mem, count: make(map[Op]int), hooks: make(map[Op]Hook), watches: make(map[*context.CancelCauseFunc]struct{})}
}

// Unwrap returns the store that s connects to.
func (s *Store) Unwrap() store.Store { return s.Store }

// On has h decide about each call of a kind from now on. With nil they are made as they come.
func (s *Store) On(op Op, h Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks[op] = h
}

// All is On for every kind of call but Watch. All(nil) ends that of Watch too.
func (s *Store) All(h Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range calls {
		s.hooks[op] = h
	}
	if h == nil {
		clear(s.hooks)
	}
}

// FailFeed has the feed answer err, and ends the watches that are open with it. With nil it works again.
func (s *Store) FailFeed(err error) {
	if err == nil {
		s.On(Notify, nil)
		s.On(Watch, nil)
		return
	}
	s.On(Notify, Fail(err))
	s.On(Watch, Fail(err))
	s.Cut(err)
}

// CutOff has every call fail with err, and is not heard of; with nil it is connected again.
func (s *Store) CutOff(err error) {
	if err == nil {
		s.All(nil)
		return
	}
	s.All(Fail(err))
	s.FailFeed(err)
}

// Cut ends the watches that are open, each with that error.
func (s *Store) Cut(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for end := range s.watches {
		(*end)(cut{err})
	}
}

type cut struct{ error }

// Count returns how many calls of these kinds have begun since the last Reset, or of all.
func (s *Store) Count(ops ...Op) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for op, calls := range s.count {
		if len(ops) == 0 || slices.Contains(ops, op) {
			n += calls
		}
	}
	return n
}

// Counts shows how many calls of each kind there were.
func (s *Store) Counts() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(maps.Clone(s.count))
}

// Reset sets the counts to zero.
func (s *Store) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.count)
}

// call counts a call, and makes it as its hook says.
func (s *Store) call(ctx context.Context, c *Call, apply func(context.Context, *Call)) *Call {
	c.Context, c.apply = ctx, apply
	if s.Each != nil {
		s.Each(c)
	}
	s.mu.Lock()
	s.count[c.Op]++
	hook := s.hooks[c.Op]
	s.mu.Unlock()
	if hook == nil {
		apply(ctx, c)
		return c
	}
	if err := hook(ctx, c); err != nil && err != c.err { //nolint:errorlint // it asks whether it is the store's own answer
		return &Call{err: err}
	}
	return c
}

// Acquire passes a claim on, as its hook says. So do the other methods with theirs.
func (s *Store) Acquire(ctx context.Context, claim store.Claim) (store.Grant, error) {
	c := s.call(ctx, &Call{Op: Acquire, Key: claim.Key, Ref: claim.Ref, Claim: claim}, func(ctx context.Context, c *Call) {
		c.Grant, c.err = s.Store.Acquire(ctx, claim)
	})
	return c.Grant, c.err
}

func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	c := s.call(ctx, &Call{Op: Renew, Batch: batch}, func(ctx context.Context, c *Call) {
		c.Renewed = s.Store.Renew(ctx, batch)
	})
	if c.err == nil {
		return c.Renewed
	}
	return slices.Repeat([]store.Renewed{{Err: c.err}}, len(batch))
}

func (s *Store) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	c := s.call(ctx, &Call{Op: Release, Key: e.Key, Ref: e.Ref}, func(ctx context.Context, c *Call) {
		c.Released, c.err = s.Store.Release(ctx, e)
	})
	return c.Released, c.err
}

func (s *Store) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	c := s.call(ctx, &Call{Op: Leave, Key: key}, func(ctx context.Context, c *Call) {
		c.Status, c.err = s.Store.Leave(ctx, key, p)
	})
	return c.Status, c.err
}

func (s *Store) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	c := s.call(ctx, &Call{Op: Transfer, Key: to.Key, Ref: to.Ref, Claim: to}, func(ctx context.Context, c *Call) {
		c.Grant, c.err = s.Store.Transfer(ctx, from, to)
	})
	return c.Grant, c.err
}

func (s *Store) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	c := s.call(ctx, &Call{Op: Undo, Key: claim.Key, Ref: claim}, func(ctx context.Context, c *Call) {
		c.Settled, c.err = s.Store.Undo(ctx, claim, from)
	})
	return c.Settled, c.err
}

func (s *Store) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	return s.call(ctx, &Call{Op: Break, Key: r.Key, Ref: r}, func(ctx context.Context, c *Call) {
		c.err = s.Store.Break(ctx, r, reason, now)
	}).err
}

func (s *Store) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	c := s.call(ctx, &Call{Op: Look, Keys: keys}, func(ctx context.Context, c *Call) {
		c.Statuses, c.err = s.Store.Look(ctx, keys)
	})
	return c.Statuses, c.err
}

// List reads all from the store before it yields anything.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		c := s.call(ctx, &Call{Op: List, Key: prefix}, func(ctx context.Context, c *Call) {
			for status, err := range s.Store.List(ctx, prefix) {
				if c.err = err; err != nil {
					return
				}
				c.Statuses = append(c.Statuses, status)
			}
		})
		for _, status := range c.Statuses {
			if !yield(status, nil) {
				return
			}
		}
		if c.err != nil {
			yield(store.Status{}, c.err)
		}
	}
}

func (s *Store) Notify(ctx context.Context, all ...store.Notice) error {
	return s.call(ctx, &Call{Op: Notify}, func(ctx context.Context, c *Call) {
		if feed := store.FeedOf(s.Store); feed != nil {
			c.err = feed.Notify(ctx, all...)
		} else {
			c.err = errors.ErrUnsupported
		}
	}).err
}

func (s *Store) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		ctx, end := context.WithCancelCause(ctx)
		defer s.watching(&end)()
		feed := store.FeedOf(s.Store)
		c := s.call(ctx, &Call{Op: Watch}, func(_ context.Context, c *Call) {
			if feed == nil {
				c.err = errors.ErrUnsupported
			}
		})
		if c.err != nil {
			yield(store.Notice{}, c.err)
			return
		}
		broken := func() (err cut, is bool) { return errors.AsType[cut](context.Cause(ctx)) }
		for n, err := range feed.Watch(ctx, of) {
			if _, is := broken(); is {
				break
			}
			if err == nil && s.Heard != nil && !s.Heard(n) {
				continue
			}
			if !yield(n, err) {
				return
			}
		}
		if err, is := broken(); is {
			yield(store.Notice{}, err.error)
		}
	}
}

// watching registers a watch for Cut until it is over.
func (s *Store) watching(end *context.CancelCauseFunc) (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[end] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, end)
		(*end)(nil)
	}
}
