package kubelock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/mongolock/mongolock"
	kubelock "github.com/mongolock/mongolock/adapters/kubernetes"
	"github.com/mongolock/mongolock/store/memstore"
)

// anyLock is the lock of a candidate. Between processes its client is mongolock.New(collection).
func anyLock() (lock *kubelock.Lock, end func()) {
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		log.Panic(err)
	}
	lock, err = kubelock.New(client, "billing-controller", "host-a", kubelock.Timing{})
	if err != nil {
		log.Panic(err)
	}
	return lock, func() { _ = client.Close() }
}

// quietly is a context without client-go's log.
func quietly() context.Context { return klog.NewContext(context.Background(), logr.Discard()) }

// The context that OnStartedLeading gets ends with the lease, and not only when the elector notices.
func ExampleLock_Config() {
	lock, end := anyLock()
	defer end()
	ctx, cancel := context.WithCancel(quietly())
	config := lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(leading context.Context) {
			_ = lock.Lease().Release() // as if it was lost
			fmt.Println(errors.Is(context.Cause(leading), mongolock.ErrReleased), ctx.Err())
			cancel()
		},
		OnStoppedLeading: func() {},
	})
	fmt.Println(config.LeaseDuration, config.RenewDeadline, config.RetryPeriod)
	leaderelection.RunOrDie(ctx, config)
	// Output:
	// 15s 10s 2s
	// true <nil>
}

// The token of a term goes to the resource that the leader writes to (package fence).
func ExampleFromContext() {
	lock, end := anyLock()
	defer end()
	ctx, cancel := context.WithCancel(quietly())
	leaderelection.RunOrDie(ctx, lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			lease, leads := kubelock.FromContext(ctx)
			fmt.Println(leads, lease.Token() == lock.Lease().Token())
			cancel()
		},
		OnStoppedLeading: func() {},
	}))
	// Output: true true
}

// Under controller-runtime, work gets no context that ends with the lease. Lease makes one.
func ExampleLock_Lease() {
	lock, end := anyLock()
	defer end()
	fmt.Println(lock.Lease() == nil)
	if err := lock.Create(context.Background(), resourcelock.LeaderElectionRecord{HolderIdentity: lock.Identity()}); err != nil {
		log.Panic(err)
	}
	work := lock.Lease().Context(context.Background())
	_ = lock.Lease().Release()
	fmt.Println(context.Cause(work))
	// Output:
	// true
	// mongolock: lease was released
}

// An elector calls the rest, and so may a program that shows the leader.
func ExampleLock_Get() {
	lock, end := anyLock()
	defer end()
	ctx := context.Background()
	_, _, err := lock.Get(ctx)
	fmt.Println(lock.Describe(), "has no leader:", apierrors.IsNotFound(err))

	if err := lock.Create(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: lock.Identity()}); err != nil {
		log.Panic(err)
	}
	record, _, err := lock.Get(ctx)
	fmt.Println(record.HolderIdentity, record.LeaseDurationSeconds, err)
	// Output:
	// mongolock/billing-controller has no leader: true
	// host-a 15 <nil>
}

// A record without a holder steps down.
func ExampleLock_Update() {
	lock, end := anyLock()
	defer end()
	ctx := context.Background()
	leads := resourcelock.LeaderElectionRecord{HolderIdentity: lock.Identity()}
	fmt.Println(lock.Update(ctx, leads)) // it asks for the key
	lock.RecordEvent("became leader")
	fmt.Println(lock.Update(ctx, leads)) // it renews
	fmt.Println(lock.Update(ctx, resourcelock.LeaderElectionRecord{}), lock.Lease().Err())
	fmt.Println(errors.Is(lock.Update(ctx, leads), kubelock.ErrSpent)) // one term, one lease
	lock.RecordEvent("stopped leading")
	fmt.Println(lock.Update(ctx, leads))
	// Output:
	// <nil>
	// <nil>
	// <nil> mongolock: lease was released
	// true
	// <nil>
}
