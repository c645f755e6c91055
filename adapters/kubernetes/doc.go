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
// An elector decides when it asks, but the database decides whether it gets the lease, by the
// database's clock. Get answers NotFound if the lease has run out. Create, and Update by an elector
// that has no lease, ask for the key once, and fail while it is held. Only Update by the elector that
// has the lease renews it: a lease is not renewed on behalf of an elector that hangs or has returned.
//
// Create and Update succeed only if the lease has at least RetryPeriod + RenewDeadline left to its
// deadline, which is as long as the elector may consider itself the leader. So it stops at least a
// margin before another can lead, except for timers that fire late and a process that is paused: for
// these the context that [Lock.Config] gives to OnStartedLeading ends with the lease.
//
// Every term has a lease and a token of its own. After a loss a Lock refuses the key until the elector
// has stopped. A Lock belongs to one elector at a time; after Run has returned it may be run again.
//
// docs/internals/kubernetes.md has the argument.
package kubelock
