package storetest

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock/store"
)

// Mode is the kind of time that a suite runs in.
type Mode int

const (
	// Virtual runs each claim in a testing/synctest bubble, where hours cost nothing and
	// time is exact. It is for stores that live in the process and start no goroutine
	// outside the bubble.
	Virtual Mode = iota
	// Real runs the claims in parallel in real time, with short TTLs and some slack. It
	// is for all other stores.
	Real
)

func (m Mode) String() string {
	if m == Virtual {
		return "virtual"
	}
	return "real"
}

// slack is how late a store may free a key.
func (m Mode) slack() time.Duration {
	if m == Virtual {
		return time.Millisecond
	}
	return 250 * time.Millisecond
}

// longest is the longest call so far, in real time, that had no other call to wait for.
var longest atomic.Int64

func (e *env) took(d time.Duration) {
	for e.mode == Real {
		if most := longest.Load(); int64(d) <= most || longest.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

// slack is how late a store may free a key. A store knows the time from its replies, and
// no better than a call takes: once when it writes an expiry, and once when it judges it.
func (e *env) slack() time.Duration {
	if e.mode == Real {
		return e.mode.slack() + 2*time.Duration(longest.Load())
	}
	return e.mode.slack()
}

// A Purger is a store under test that can remove the record of a key, as an operator
// with a shell on the database would. It is optional.
type Purger interface {
	// Purge removes the record of a key, whatever holders it has.
	Purge(key string) error
}

// A Stranger is a store under test that can replace the record of a key by a foreign
// one, which is not of this library. It is optional. It may choose another shape at
// each call. The returned intact reports an error if the foreign record was changed.
type Stranger interface {
	// Foreign puts a foreign record in the place of the key's.
	Foreign(key string) (intact func() error, err error)
}

// An Ager is a store under test that can make a place in line older, as if its waiter had last been
// seen so much earlier. It is optional. In virtual time the claims about places that are stale
// wait instead; in real time they are made only if the store is an Ager.
type Ager interface {
	// Age moves the time when the waiter at a place was last seen.
	Age(key string, p store.Place, by time.Duration) error
}

// Run proves that a store keeps the contract of package store, with one subtest for
// each claim. The store that newStore returns, or a store that it wraps (by a method
// Unwrap() store.Store), may also be a store.Feed, a Purger and a Stranger; only then the
// claims about these are made.
//
// Each claim asks newStore for a store, inside the bubble if there is one. All of them
// may be the same store, because keys are unique. One more store is made first, to
// learn what it implements and whether it has shared holders and permits. A store
// without them must refuse them without leaving a trace.
func Run(t *testing.T, mode Mode, newStore func(t testing.TB) store.Store) {
	for _, c := range claimsOn(newStore(t)) {
		t.Run(c.name, func(t *testing.T) {
			if mode == Real {
				t.Parallel()
			}
			mode.run(t, func(t testing.TB) { c.body(newEnv(t, mode, newStore)) })
		})
	}
}

// run calls a body in the time of the mode.
func (m Mode) run(t *testing.T, body func(testing.TB)) {
	if m == Virtual {
		synctest.Test(t, func(t *testing.T) { body(t) })
		return
	}
	body(t)
}

// A claim is one behaviour that a store owes, and its test. The body uses nothing but
// the env, so that it can also be run against a broken store and be seen to fail.
type claim struct {
	name string
	body func(*env)
}

// claimsOn returns the claims that apply to s.
func claimsOn(s store.Store) []claim {
	all := slices.Concat(acquireClaims, expiryClaims, renewClaims, releaseClaims, transferClaims,
		undoClaims, breakClaims, lineClaims, turnClaims, tokenClaims, lookClaims, listClaims, dataClaims, contextClaims)
	if sharesKeys(s) {
		all = append(all, slices.Concat(sharedClaims, permitClaims, sharedTurnClaims)...)
	} else {
		all = append(all, exclusiveOnlyClaims...)
	}
	if _, ok := as[Purger](s); ok {
		all = append(all, purgeClaims...)
	}
	if _, ok := as[Stranger](s); ok {
		all = append(all, foreignClaims...)
	}
	if store.FeedOf(s) != nil {
		all = append(all, feedClaims...)
	}
	return all
}

// as returns the store as a T, or the store that it wraps (by a method Unwrap() store.Store), and
// reports whether either is one.
func as[T any](s store.Store) (found T, ok bool) {
	for s != nil {
		if found, ok = s.(T); ok {
			return found, true
		}
		w, wraps := s.(interface{ Unwrap() store.Store })
		if !wraps {
			break
		}
		s = w.Unwrap()
	}
	return found, false
}
