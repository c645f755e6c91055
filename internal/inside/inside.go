// Package inside shows other packages of this library, and its tests, what no user may
// see of a client, a lease or a store. The package that owns the inside sets these
// functions when it is initialised. Their parameters are of type any, as the types live in
// packages that import this one. Package above has those of the packages above the lock.
package inside

import (
	"context"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock/store"
)

// Leases returns the leases of a *mongolock.Client that are not given back yet, each as
// a *mongolock.Lease. It is for package mongolocktest alone: a lease belongs to the code
// that acquired it.
var Leases func(client any) []any

// Waits is told, if it is not nil, of keys that may be waited for by attempts that begin on other
// goroutines: those of AcquireAll. Package mongolocktest sets it, and knows its Lockers.
var Waits func(ctx context.Context, locker any, keys []string)

// Unresumable is a key of the context of an acquisition. If an error is set for it, Detach
// of the lease returns that: no store could resume it.
type Unresumable struct{}

// Packaged is a store of leases of another package of this library. Observers see that
// package's name.
type Packaged interface{ Package() string }

// ShownKey is the key of a context value, Shown, that says as what observers see an
// acquisition made with that context.
type ShownKey struct{}

// Shown is the package and the key that an observer sees; empty: as they are.
type Shown struct{ Package, Key string }

// Observer returns the mongolock.Observer of the *mongolock.Client that a locker is or embeds. If
// there is none it returns one that does nothing.
var Observer func(locker any) any

// Terms are what a lease is asked for on.
type Terms struct {
	Mode     store.Mode
	Limit    int
	MinHold  time.Duration
	MaxWait  time.Duration
	MaxStall time.Duration
	Logger   *slog.Logger // the client's

	NoRenewal bool
	Note      string
}

// TermsOf returns what a mongolock.Locker asks for when it acquires key with options,
// a []mongolock.AcquireOption, or what is wrong with them. The defaults are those of the
// client that the Locker is or embeds; if it has none, those of a client without options.
var TermsOf func(locker any, key string, options any) (Terms, error)

// A Waiting is what one client does about one key at the moment.
type Waiting struct {
	Refused bool // the head of the queue was refused, and has no claim under way
	Asleep  bool // the head knows the key's status, and has nothing to do
}

// Of a *mongolock.Client.
var (
	// Look tells what the client does about a key.
	Look func(client any, key string) Waiting
	// FeedLinger sets how long the client's feed stays open without waiters.
	FeedLinger func(client any, d time.Duration)
)

// Of a *mongolock.Lease.
var (
	// StoreExpiry is until when the store honours the lease: its deadline and its margin.
	StoreExpiry func(lease any) time.Time
	// Abandon makes the lease give nothing back, as if its process had died.
	Abandon func(lease any)
)

// FeedAwait sets how long the server keeps a read of a *mongostore.Store's wake-ups
// that finds nothing.
var FeedAwait func(store any, d time.Duration)
