package storetest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock/store"
)

// Mode says whose time a suite runs in.
type Mode int

const (
	// Virtual runs each claim in a testing/synctest bubble: hours cost nothing, and
	// time is exact. For stores that live in the process and start no goroutine
	// outside of the bubble.
	Virtual Mode = iota
	// Real runs the claims side by side in real time, with short TTLs and some
	// slack. For everything else.
	Real
)

func (m Mode) String() string {
	if m == Virtual {
		return "virtual"
	}
	return "real"
}

// slack is by how much a store may be late to free a key.
func (m Mode) slack() time.Duration {
	if m == Virtual {
		return time.Millisecond
	}
	return 250 * time.Millisecond
}

// A Purger is a store under test that can remove the record of a key, as
// somebody with a shell on the database would. It is optional.
type Purger interface{ Purge(key string) error }

// A Stranger is a store under test that can put a record under a key that is not
// of this library, in place of whatever is there. It is optional. Called several
// times it may choose another shape each time. Intact tells whether the record is
// still there as it was put.
type Stranger interface {
	Foreign(key string) (intact func() error, err error)
}

// Run proves that a store keeps its contract: one subtest for each claim. What
// newStore returns, or what that wraps by a method Unwrap() store.Store, may also
// be a store.Feed, a Purger and a Stranger; the claims about them are made only
// if it is.
//
// Each claim asks newStore for a store, in the bubble if there is one, and all of
// them may be the same: keys are unique. One more store is made at first, to see
// what it is, and not used but to ask whether it has shared holders and permits. One
// that does without them must say so without a trace.
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

// run gives a body its time.
func (m Mode) run(t *testing.T, body func(testing.TB)) {
	if m == Virtual {
		synctest.Test(t, func(t *testing.T) { body(t) })
		return
	}
	body(t)
}

// A claim is one behaviour that a store owes, and how to see it. The body makes
// use of nothing but the env, so that a test can run it against a broken store and
// watch it fail.
type claim struct {
	name string
	body func(*env)
}

// claimsOn is what can be claimed of s.
func claimsOn(s store.Store) []claim {
	all := slices.Concat(acquireClaims, expiryClaims, renewClaims, releaseClaims, transferClaims,
		undoClaims, breakClaims, wordClaims, tokenClaims, lookClaims, listClaims, dataClaims, contextClaims)
	if sharesKeys(s) {
		all = append(all, slices.Concat(sharedClaims, permitClaims, writerClaims)...)
	} else {
		all = append(all, exclusiveOnlyClaims...)
	}
	if _, ok := as[Purger](s); ok {
		all = append(all, purgeClaims...)
	}
	if _, ok := as[Stranger](s); ok {
		all = append(all, strangerClaims...)
	}
	if store.FeedOf(s) != nil {
		all = append(all, feedClaims...)
	}
	return all
}

// as finds what s, or what it wraps, can do beyond a store.
func as[T any](s store.Store) (T, bool) {
	for s != nil {
		if found, ok := s.(T); ok {
			return found, true
		}
		wrapper, ok := s.(interface{ Unwrap() store.Store })
		if !ok {
			break
		}
		s = wrapper.Unwrap()
	}
	var none T
	return none, false
}
