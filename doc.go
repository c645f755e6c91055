// Package mongolock is a distributed lock for programs that already use MongoDB. One process at
// a time holds a key, and there is no second cluster to run.
//
//	locks, err := mongolock.New(db.Collection("locks")) // one for each process
//	…
//	defer locks.Close()
//
//	err = mongolock.Do(ctx, locks, "nightly-report", func(ctx context.Context, lease *mongolock.Lease) error {
//		return report(ctx) // ctx ends when the lease does
//	})
//
// [Do] waits for the key, and [TryDo] skips the work if another process holds the key.
// [Client.Acquire] and [Client.TryAcquire] return the [Lease] itself. The lease is renewed in the
// background until it is released. If the process dies, the key is free after the [TTL], 30 s by
// default.
//
//   - Pass the lease's context on to everything that the work calls, and stop when it ends: it ends
//     at least one margin before another process can be granted the key.
//   - A process that is paused can still write after that. If that matters, give [Lease.Token] to the
//     resource that is written to (package fence).
//   - Two processes whose clocks differ may both run a short job, one after the other. [MinHold]
//     prevents that for small differences, and package schedule for all.
//   - Locks are not reentrant: a call that waits, under a lease's context, for the key of that lease
//     fails at once.
//   - [Shared] lets readers in together, and [OneOf] n holders at a time. [AcquireAll] takes several
//     keys.
//
// Tests of code that locks use package mongolocktest.
//
// # The outcomes of a call
//
//   - Granted: a lease and no error.
//   - Held: [ErrHeld], with the holder and the time that it has left.
//   - Failed, and certainly not held: the store's error.
//   - Unknown, and being cleaned up: the store's error, joined with [ErrOutcomeUnknown].
//
// A call never returns a nil lease with a nil error. When the caller's context ends, the call returns
// at once with that error. A grant that arrives later is given back.
//
// A lease ends when it is released ([ErrReleased], [ErrDetached], [ErrClosed]), or it is lost
// ([ErrLost], with the reason: [ErrBroken], [ErrMaxHold], [ErrStalled]). Both are final.
//
// # Order
//
// Waiting processes are served in the order in which they came, and the waiters of one process in
// theirs. A process that does not come when it is its turn is passed after a second, or sooner where
// leases are short. A writer, which wants a key alone, waits only for the sharers that came before it.
//
// The protocol of a lease is explained in docs/internals/lease.md, and the commands that go to the
// database in docs/internals/design.md.
package mongolock
