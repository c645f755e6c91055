// Package seam lets this module's own tests and packages reach what no user may:
// the inside of a client or a store. The package that owns the inside fills these
// variables when it is linked. Parameters are of type any, as their types live in
// packages that import this one.
package seam

import "time"

// A Waiting is what one client does about one key at the moment, and about its feed.
type Waiting struct {
	Unsettled int  // claims of unknown outcome that the client still cleans up
	Waiters   int  // of all keys
	Listening bool // the feed is live
	Announces bool // the client tells others that a key is free
	FeedOpen  bool // the feed is live, or being opened

	Refused bool // the head of the queue was refused
	Asking  bool // the head has a claim under way
	Seen    bool // a refusal showed the key's status
	Woken   bool // the head is to look again
}

// Of a *mongolock.Client.
var (
	// Look tells what the client does about a key.
	Look func(client any, key string) Waiting
	// FeedLinger sets how long the client's feed stays open when nobody waits.
	FeedLinger func(client any, d time.Duration)
	// EndLinger closes the feed as if that time were over.
	EndLinger func(client any)
	// Freed tells the client that a key may be free.
	Freed func(client any, key string)
)

// Of a *mongolock.Lease.
var (
	// Undo cleans up after the lease as if its claim were of unknown outcome.
	Undo func(lease any, within time.Duration)
	// Honoured is until when the store honours the lease: its deadline and its margin.
	Honoured func(lease any) time.Time
	// Abandon makes the lease give nothing back, as if its process had died.
	Abandon func(lease any)
)

// FeedAwait sets how long the server keeps a read of a *mongostore.Store's wake-ups
// that finds nothing.
var FeedAwait func(store any, d time.Duration)
