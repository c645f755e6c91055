// Package kubelock lets the controllers of Kubernetes elect their leader by a lease of
// mongolock instead of a Lease object: across clusters, or outside of one.
//
//	lock, err := kubelock.New(client, "billing-controller", hostname, kubelock.Timing{})
//	leaderelection.RunOrDie(ctx, lock.Config(leaderelection.LeaderCallbacks{
//		OnStartedLeading: func(ctx context.Context) { run(ctx) }, // ctx ends when the lease does
//		OnStoppedLeading: func() { os.Exit(1) },
//	}))
//
// [Lock] implements client-go's resourcelock.Interface. The elector of package
// leaderelection asks it; the lease decides.
//
//   - Give each process an identity of its own, such as the pod's name. The durations of [Timing] are
//     those of client-go: 15 s, 10 s and 2 s by default.
//   - [Lock.Config] makes the elector's configuration. The context that OnStartedLeading gets ends with
//     the lease; [FromContext] returns that, and its Token, which rises with each term.
//   - Under controller-runtime, set the lock as LeaderElectionResourceLockInterface, with the same
//     three durations, and let the work use lock.Lease().Context(ctx).
//   - Set ReleaseOnCancel only if your work has ended when the elector's context ends. It frees the key
//     at once; otherwise the next leader waits for up to a LeaseDuration.
//   - If [ErrTiming] is returned, the lease is too short for the elector: prolong LeaseDuration.
//   - mongolock ls shows the leader. There is no Lease object, and there are no events.
//
// A program that does not need client-go has less to do with package leader.
//
// # Which side decides
//
// With a Lease object the electors decide: each remembers, by its own clock, when it saw the
// object change, and takes it if it did not change for the LeaseDuration. A write succeeds if
// the object was not written in between (by the object's version).
//
// With this lock an elector still decides when it asks, but the database decides whether it
// gets the lease, by the database's clock:
//
//   - Get reads the holder of the key. If the lease has run out there is no leader: the answer
//     is NotFound, and any elector may ask at once.
//   - Create, and Update by an elector that has no lease, ask for the key once. While the key
//     is held they fail, whatever the elector has observed.
//   - Update by the elector that has the lease renews it. Nothing else does: a lease is not
//     renewed on behalf of an elector that hangs or has returned. If the lease has ended,
//     Update fails.
//   - Update with no holder, which is how an elector steps down, releases the lease.
//
// # Why two never lead
//
// An elector considers itself the leader from a Create or Update that succeeded, at r, until it
// could not renew: it then waits for one RetryPeriod, tries for one RenewDeadline, and calls
// OnStoppedLeading. Every try ends with its context. So it stops by
//
//	r + RetryPeriod + RenewDeadline
//
// A lease is trusted until its deadline, which counts from the moment at which the renewal was
// sent, and the key is granted to no other until one margin after it (package mongolock).
// Create and Update succeed only if at r the lease has at least RetryPeriod + RenewDeadline
// left to its deadline. A renewal whose reply was slow is repeated until that is so, or its
// context ends. So the elector stops before the deadline, and a margin before another can lead.
// With a Lease object neither the time that the reply took nor the RetryPeriod is counted: only
// LeaseDuration > RenewDeadline is required.
//
// What remains are timers that fire late, and a process that is paused. The margin allows for
// the first. For the second, the context that [Lock.Config] gives to OnStartedLeading ends with
// the lease and reads the clock itself, and [FromContext] has the lease's token, which a
// resource can check (package fence).
//
// # One term, one lease
//
// An elector that lost its lease may find the key free and take it again before it has noticed.
// Then it never calls OnStoppedLeading, although the context of its work has ended. So after a
// loss a Lock refuses the key until the elector has stopped (it says so by RecordEvent). And an
// elector that runs again while the lease of its last term has not run out releases that lease,
// and asks for another: every term has a token of its own. A Lock belongs to one elector at a
// time; after Run has returned it may be run again.
package kubelock
