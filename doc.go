// Package mongolock is a distributed lock for teams that already run MongoDB: one
// process at a time does the work, and no second cluster has to be installed for that.
//
//	err := mongolock.Do(ctx, client, "nightly-report", func(ctx context.Context, lease *mongolock.Lease) error {
//		return report(ctx) // ctx ends when the lease does
//	})
//
// This comment is the protocol of a lease: all that is needed to read lease.go,
// holding.go, renewal.go and release.go. The commands that go to the database are explained in
// docs/internals/design.md.
//
// # The life of a lease
//
// A [Client] sends claims to a store (package store). The store is the only judge
// between processes, and judges by its own clock. Every claim has a new ID, and every
// later write names that ID, so only the acquisition itself can be renewed or removed.
//
//	                    granted, in time
//	Acquire ──── claim ─────────────────▶ HELD ◀──┐ renewed: the deadline moves on
//	   ▲           │                       │ │ └──┘ every third of the TTL
//	   │ wait      │ held                  │ │
//	   └───────────┤                       │ └────── Release, Detach, Close ──▶ ENDED
//	               │ fault, unknown        │         ErrReleased, ErrDetached, ErrClosed
//	               ▼                       │
//	            undone in the background   └── deadline, gone, broken, MaxHold, MaxStall ──▶ LOST
//	            until that is certain          ErrLost, ErrBroken, ErrMaxHold, ErrStalled
//
// Ended and lost are final. [Lease.Done] is closed and contexts are cancelled before
// anything that frees the key leaves this process.
//
// # How long a lease is trusted
//
//	sent        reply                               deadline   the store may grant it again
//	 │───────────│──────────────────────────────────────│────────│
//	 │◀──────────────────── Left, promised by the store ────────▶│
//	 │                                                  │◀margin▶│
//
// Trust begins when the request is sent, not when the reply comes: the time that the
// reply took is already paid for. Left is a duration that the store promises to honour.
// It counts from sent on this process's monotonic clock, and the drift of both clocks
// is already taken off. The deadline is the end of Left minus the margin, and nothing
// else. Two machines' clocks are never compared, and the wall clock decides nothing.
//
// At the deadline the lease is lost, whether or not the store can be reached: its holder
// knows at least one margin before the key can be granted again. The margin allows for
// timers that fire late and for the time that work takes to stop. A renewal that succeeds
// moves the deadline forward, never back. A renewal that fails is repeated until one
// succeeds or the deadline comes. One that hangs is given up after a tenth of the TTL and
// repeated, apart from other leases. So an outage of half the TTL loses no lease, and a
// blocked record loses only its own lease. A reply that comes after the deadline does not
// move it, and a grant that comes after its deadline is given back.
//
// A process that is paused runs no timers. So [Lease.Err], [Lease.Remaining] and the Err
// of a [Lease.Context] read the clock themselves. That clock counts the time for which
// the machine was suspended. Within a second of waking, leases that ran out meanwhile are
// ended and those that are due are renewed. (A virtual machine may be paused without its
// guest noticing: no clock inside it shows that.) Between reading the clock and the next
// instruction the process can still be paused. Only the token, checked by the resource
// that is written to (package fence), stops a write after that.
//
// # The outcomes of a call
//
//   - Granted: a lease and no error.
//   - Held: [ErrHeld], which names the holder and the time that it has left.
//   - Failed and surely not held: the store's error.
//   - Unknown and being cleaned up: the store's error with [ErrOutcomeUnknown].
//
// A call never returns a nil lease with a nil error.
//
// Every command may have been applied although its reply was lost. What happens then:
//
//   - Acquire: the claim is undone by its ID. That is repeated until the store says that
//     the claim holds nothing and never will, or until its TTL is over.
//   - Renew: the renewal counts as failed and is sent again. The old deadline stands.
//   - Release: it is sent again by ID, until it is answered or the TTL is over. If the
//     store then finds nothing, the first attempt worked.
//   - A handoff inside a process: both IDs are undone, so the key becomes free and the
//     waiter asks for it itself.
//   - Resume: the new ID is undone. If the claim was never applied, the ticket stays good.
//
// No store call runs on a caller's context. When a caller's context ends, the call
// returns at once with that error; if the key is granted after all, it is given back.
// So a cancel leaves no unknown outcome behind. A claim that is still not answered a
// second later is cut off and cleaned up.
//
// # Giving back
//
// [Lease.Release] ends the lease first and then removes its ID from the store. A lease
// that was lost is removed too, but no sooner than one margin after its end: its holder
// may need that time to notice. If another call of the same client waits, the key is handed
// off to it in one step instead. While other processes are known to stand in line, that
// happens at most 16 times in a row and for at most 100 ms.
//
// With [Linger] a release keeps the key in the store for a while, and the next Acquire of
// this client gets it without a store call: a new lease, with a greater token and with the
// deadline that the last renewal gave. The lease that was released has ended, and cannot
// affect the next one. A waiter of another process sends a notice to a holder that
// lingers. The key is then freed at once, or by the next release. A client whose feed is
// not live keeps no keys.
//
// # Waiting
//
// The calls of a client that wait for one key stand in a queue, first come, first served, and
// only the first of them, the head, talks to the store. The processes stand in the line of the
// key, which is part of its record: a claim that is refused joins the line at its end, and the
// store grants the key only to those whose turn it is. A release shows who is next, and tells
// that process alone. If it does not come within a second, the next one in line passes it.
//
// The head asks when it is told that its turn has come, when the holder that it saw has run
// out, and otherwise about every 25 s, which also keeps its place. Without a feed the client
// reads all keys that it waits for with one command, every 50 ms at first, and less and less
// often down to once a second. The line and the notices say only who asks when. If they are
// wrong, late or lost, that costs time but never safety.
//
// # Sharing
//
// With [Shared] a key has any number of holders, with [OneOf] up to n. Each has its own
// lease, with its own ID, deadline and renewals, so that one holder does not notice when
// another comes, goes or dies. A writer, which wants the key alone, waits for all sharers
// (readers, or holders of a permit), and they wait for a writer that has the key.
//
// All stand in the same line. So a writer waits only for the sharers that held the key when it
// came, or were in line before it, however many others come. The readers up to the first writer
// come together. A writer that gives up leaves the line. If it dies, it keeps new sharers
// out for 30 s at most.
package mongolock
