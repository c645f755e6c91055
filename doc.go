// Package mongolock is a distributed lock for teams that already run MongoDB: one
// process at a time does the thing, everyone can trust that, and nobody had to
// install a second cluster for it.
//
//	err := mongolock.Do(ctx, client, "nightly-report", func(ctx context.Context, lease *mongolock.Lease) error {
//		return report(ctx) // ctx ends when the lease does
//	})
//
// This comment is the protocol of a lease. It is all one needs to read lease.go,
// keeper.go and release.go; the commands that go to the database are explained in
// docs/design.md.
//
// # The life of a lease
//
// A [Client] sends claims to a store (package store), which is the only judge
// between processes and judges by its own clock. Every claim has a new ID, and
// every later write names that ID, so nothing can be renewed or removed but the
// acquisition it belongs to.
//
//	                    granted, in time
//	Acquire ──── claim ─────────────────▶ HELD ◀──┐ renewed: the deadline moves on
//	   ▲           │                       │ │ └──┘ every third of the TTL
//	   │ wait      │ held                  │ │
//	   └───────────┤                       │ └────── Release, Detach, Close ──▶ ENDED
//	               │ fault, unknown        │         ErrReleased, ErrDetached, ErrClosed
//	               ▼                       │
//	            undone in the background   └──────── deadline, gone, broken, MaxHold ──▶ LOST
//	            until that is certain                ErrLost, ErrBroken, ErrMaxHold
//
// Ended and lost are final. [Lease.Done] is closed and contexts are cancelled
// before anything that frees the key leaves this process.
//
// # How long a lease is trusted
//
//	sent        reply                               deadline   the store may grant it again
//	 │───────────│──────────────────────────────────────│────────│
//	 │◀──────────────────── Left, promised by the store ────────▶│
//	 │                                                  │◀margin▶│
//
// Trust begins when the request is sent, not when the reply comes: however long
// the reply took, it has been paid for. Left is a duration that the store
// promises to honour, counted from sent on this process's monotonic clock, with
// the drift of both clocks already taken off. The engine subtracts the margin and
// nothing else; that is the deadline. Two machines' clocks are never compared, and
// the wall clock decides nothing.
//
// At the deadline the lease is lost, whether or not the store can be reached: its
// holder knows at least one margin before anybody else can be granted the key. The
// margin pays for timers that fire late and for the time that work takes to stop.
// A renewal that succeeds moves the deadline, never back; a renewal that fails is
// repeated until one succeeds or the deadline comes; an answer that comes after
// the deadline moves nothing, and a grant that does is given back.
//
// A process that is paused runs no timers. So [Lease.Err], [Lease.Remaining] and
// the Err of a [Lease.Context] look at the clock themselves. Between that look and
// the next instruction a process can still be paused: only the token, checked by
// the resource that is written to (package fence), stops a write after that.
//
// # What a call's outcome can be
//
// Granted: a lease and no error. Held: [ErrHeld], which says by whom and for how
// long. Failed and surely not held: the store's error. Unknown and being cleaned
// up: the store's error with [ErrOutcomeUnknown]. Never a nil lease with a nil
// error.
//
// Every command may have been applied although its reply was lost. What happens
// then:
//
//   - Acquire: the claim is undone by its ID, again and again, until the store says
//     that it holds nothing and never will, or its TTL is over.
//   - Renew: counts as failed; the old deadline stands. It is sent again.
//   - Release: is sent again by ID until it is answered or the TTL is over. Finding
//     nothing then means that it worked the first time.
//   - Handing over inside a process: both IDs are undone, so the key comes free and
//     the waiter asks for it itself.
//   - Resume: the new ID is undone; if it never landed, the ticket stays good.
//
// No store call runs on a caller's context. When a caller's context ends he gets
// his error at once, and the grant, if it comes, goes back. So a cancel leaves no
// unknown outcome behind.
//
// # Giving back
//
// [Lease.Release] ends the lease first and then removes its ID from the store. A
// lease that was lost is removed too, one margin after its end and not before: its
// holder may need that time to notice. Where a waiter of the same client stands in
// line the key is handed over in one step instead, until others have left word
// that they wait; then at most 16 times in a row or 100 ms, and after that this
// process's waiters leave the key alone for 50 ms.
//
// # Waiting
//
// The waiters of a client for one key stand in a queue, first come first served,
// and only the head talks to the store. It asks when a wake-up comes (from a
// release in this process, or by the store's feed), when the holder it saw has run
// out, and otherwise about once a minute. Without a feed one read for all keys of
// the process is repeated instead, from 50 ms to 1 s apart. A wake-up is a hint:
// lost, late or doubled it costs time, never safety.
//
// # Sharing
//
// With [Shared] a key has any number of holders, with [OneOf] up to n. Each has a
// lease of its own, with an ID, a deadline and renewals of its own, so that one who
// comes, goes or dies touches no other. Who asks for the key alone, a writer, waits
// for all of them, and they for it.
//
// A writer that waits leaves a word that keeps new sharers out, and leaves it again
// before it runs out. So it waits no longer than those who were in when it came,
// however many others come and overlap. When it gives up it takes its word back; if
// it died the word runs out, after the writer's TTL, but no sooner than 5 s and no
// later than 30 s. Sharers whose uses do not overlap can get in before a writer now
// and then: its word went with the record that the last of them took along.
package mongolock
