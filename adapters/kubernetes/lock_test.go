package kubelock_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/mongolock/mongolock"
	kubelock "github.com/mongolock/mongolock/adapters/kubernetes"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

const key = "controller"

func client(t testing.TB, s store.Store, opts ...mongolock.ClientOption) *mongolock.Client {
	t.Helper()
	c, err := mongolock.NewWithStore(s, append(opts, mongolock.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func lock(t testing.TB, c kubelock.Client, identity string) *kubelock.Lock {
	t.Helper()
	l, err := kubelock.New(c, key, identity, kubelock.Timing{})
	require.NoError(t, err)
	return l
}

// quiet is t's context without client-go's log.
func quiet(t testing.TB) context.Context {
	return klog.NewContext(t.Context(), logr.Discard())
}

func names(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15}
}

// A term is what an elector did, and when.
type term struct {
	began, ended, stopped time.Time // leading, until the context of the work ended, and OnStoppedLeading
	token                 int64
}

// run runs client-go's elector once, until ctx ends or it stops.
func run(ctx context.Context, l *kubelock.Lock, change ...func(*leaderelection.LeaderElectionConfig)) term {
	var did term
	worked := make(chan struct{})
	config := l.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			did.began = time.Now()
			if lease, ok := kubelock.FromContext(ctx); ok {
				did.token = lease.Token()
			}
			<-ctx.Done()
			did.ended = time.Now()
			close(worked)
		},
		OnStoppedLeading: func() { did.stopped = time.Now() },
	})
	for _, c := range change {
		c(&config)
	}
	leaderelection.RunOrDie(ctx, config)
	synctest.Wait()
	if !did.began.IsZero() {
		<-worked
	}
	return did
}

func TestThreeElectorsLeadOneAtATimeAndInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		ctx, cancel := context.WithTimeout(quiet(t), time.Hour) // virtual
		defer cancel()
		var mu sync.Mutex
		var terms []term
		led := map[int]bool{}
		var wg sync.WaitGroup
		for i := range 3 {
			l := lock(t, client(t, s), fmt.Sprintf("host-%d", i))
			wg.Go(func() {
				for ctx.Err() == nil {
					once, stop := context.WithTimeout(ctx, time.Duration(20+7*i)*time.Second)
					var leads atomic.Bool
					config := l.Config(leaderelection.LeaderCallbacks{
						OnStartedLeading: func(ctx context.Context) {
							leads.Store(true)
							lease, _ := kubelock.FromContext(ctx)
							one := term{began: time.Now(), token: lease.Token()}
							<-ctx.Done()
							one.ended = time.Now()
							mu.Lock()
							defer mu.Unlock()
							led[i], terms = true, append(terms, one)
						},
						OnStoppedLeading: func() {},
					})
					config.ReleaseOnCancel = i%2 == 0
					leaderelection.RunOrDie(once, config)
					stop()
					time.Sleep(20 * time.Second) // virtual: the process starts again, after its lease
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		assert.Len(t, led, 3, "electors that led")
		assert.Greater(t, len(terms), 10)
		for i := 1; i < len(terms); i++ {
			assert.False(t, terms[i].began.Before(terms[i-1].ended), "terms %d and %d overlap: %v, %v", i-1, i, terms[i-1], terms[i])
			assert.Greater(t, terms[i].token, terms[i-1].token)
		}
	})
}

// What follows, up to TestTheFastPath, are the cases of client-go's own tests of its elector,
// on what this lock has in place of a Lease object.

func TestAFreeKeyIsNotFoundAndCreated(t *testing.T) {
	l := lock(t, mongolocktest.New(t), "baz")
	_, _, err := l.Get(t.Context())
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	require.NoError(t, l.Create(t.Context(), names("baz")))
	record, raw, err := l.Get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "baz", record.HolderIdentity)
	assert.Equal(t, 15, record.LeaseDurationSeconds)
	assert.Contains(t, string(raw), `"holderIdentity":"baz"`)
	assert.NoError(t, l.Update(t.Context(), names("")))
}

func TestAKeyThatAnotherHoldsIsNotAcquiredWhateverTheElectorHasObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		bing, baz := lock(t, client(t, s), "bing"), lock(t, client(t, s), "baz")
		require.NoError(t, bing.Create(t.Context(), names("bing")))
		record, _, err := baz.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "bing", record.HolderIdentity)
		for range 10 { // its time is never over as long as it is renewed
			time.Sleep(10 * time.Second) // virtual: two thirds of the lease
			assert.NoError(t, bing.Update(t.Context(), names("bing")))
			assert.ErrorIs(t, baz.Update(t.Context(), names("baz")), mongolock.ErrHeld)
			assert.ErrorIs(t, baz.Create(t.Context(), names("baz")), mongolock.ErrHeld)
		}
	})
}

func TestAKeyWhoseHolderDoesNotRenewIsAcquiredWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		bing, baz := lock(t, client(t, s), "bing"), lock(t, client(t, s), "baz")
		require.NoError(t, bing.Create(t.Context(), names("bing")))
		time.Sleep(14 * time.Second) // virtual: a second before the lease is over
		assert.ErrorIs(t, baz.Update(t.Context(), names("baz")), mongolock.ErrHeld)
		time.Sleep(2 * time.Second) // virtual: a second after it
		_, _, err := baz.Get(t.Context())
		assert.True(t, apierrors.IsNotFound(err), "%v", err)
		assert.NoError(t, baz.Create(t.Context(), names("baz")))
	})
}

func TestAnElectorThatWasReplacedCannotUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		bing, baz := lock(t, client(t, s), "bing"), lock(t, client(t, s), "baz")
		require.NoError(t, bing.Create(t.Context(), names("bing")))
		bing.RecordEvent("became leader")
		time.Sleep(16 * time.Second) // virtual: longer than the lease
		require.NoError(t, baz.Create(t.Context(), names("baz")))
		assert.ErrorIs(t, bing.Update(t.Context(), names("bing")), mongolock.ErrLost)
		record, _, err := bing.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "baz", record.HolderIdentity)
		assert.NoError(t, bing.Update(t.Context(), names("")), "it has nothing to release")
		assert.NoError(t, baz.Update(t.Context(), names("baz")), "and releases nothing of another's")
	})
}

func TestReleaseOnCancelFreesTheKeyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		ctx, cancel := context.WithTimeout(quiet(t), 5*time.Second)
		defer cancel()
		did := run(ctx, lock(t, locks, "baz"), func(c *leaderelection.LeaderElectionConfig) { c.ReleaseOnCancel = true })
		assert.Positive(t, did.token)
		status, err := locks.Inspect(t.Context(), key)
		require.NoError(t, err)
		assert.True(t, status.Free())
	})
}

func TestWithoutReleaseOnCancelTheKeyIsFreeOneLeaseDurationLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		ctx, cancel := context.WithTimeout(quiet(t), 5*time.Second)
		defer cancel()
		run(ctx, lock(t, locks, "baz"))
		time.Sleep(9 * time.Second) // virtual; nothing renews it any more
		status, err := locks.Inspect(t.Context(), key)
		require.NoError(t, err)
		assert.False(t, status.Free())
		time.Sleep(7 * time.Second) // virtual: the lease is over now
		status, err = locks.Inspect(t.Context(), key)
		require.NoError(t, err)
		assert.True(t, status.Free())
	})
}

func TestTheFastPathOfALeaderIsOneRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memstore.New())
		l := lock(t, c, "baz")
		ctx, cancel := context.WithTimeout(quiet(t), 19*time.Second) // renewals at 0, 2, … 18 s
		defer cancel()
		run(ctx, l)
		calls := c.Stats().Calls
		assert.EqualValues(t, 1, calls["acquire"], "%v", calls)
		assert.EqualValues(t, 10, calls["renew"], "%v", calls)
		assert.EqualValues(t, 1, calls["look"], "%v", calls) // before the first Create
	})
}

// An elector of client-go that finds its key free again would go on as the leader, though the
// context of its work has ended.
func TestAfterALossTheElectorStopsThoughTheKeyIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		l := lock(t, locks, "baz")
		time.AfterFunc(5*time.Second, func() { locks.Lose(key) })
		began := time.Now()
		ctx, cancel := context.WithTimeout(quiet(t), time.Hour)
		defer cancel()
		did := run(ctx, l)
		assert.LessOrEqual(t, did.ended.Sub(began), 8*time.Second, "the work ends by the renewal that finds the lease gone")
		assert.LessOrEqual(t, did.stopped.Sub(began), 20*time.Second, "the elector stops after its RenewDeadline")
		assert.NoError(t, ctx.Err())

		again, cancel2 := context.WithTimeout(quiet(t), 5*time.Second)
		defer cancel2()
		assert.Greater(t, run(again, l, func(c *leaderelection.LeaderElectionConfig) { c.ReleaseOnCancel = true }).token, did.token, "the next term of the same elector")
	})
}

func TestTwoProcessesOfOneIdentityDoNotBothLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		first, second := lock(t, client(t, s), "pod-0"), lock(t, client(t, s), "pod-0")
		require.NoError(t, first.Create(t.Context(), names("pod-0")))
		record, _, err := second.Get(t.Context())
		require.NoError(t, err)
		assert.NotEqual(t, "pod-0", record.HolderIdentity, "the elector would take it for itself")
		assert.ErrorIs(t, second.Update(t.Context(), names("pod-0")), mongolock.ErrHeld)
	})
}

func TestBadInputIsRefusedByName(t *testing.T) {
	locks := mongolocktest.New(t)
	_, err := kubelock.New(nil, "", "", kubelock.Timing{})
	for _, want := range []string{"the client is nil", "the key has 0 bytes", "the identity has 0 bytes"} {
		assert.ErrorContains(t, err, want)
	}
	for want, bad := range map[string]string{"has 1025 bytes": strings.Repeat("a", 1025), "is not UTF-8": "\xff"} {
		_, err = kubelock.New(locks, bad, bad, kubelock.Timing{})
		assert.ErrorContains(t, err, "the key "+want)
		assert.ErrorContains(t, err, "the identity "+want)
	}
	_, err = kubelock.New(locks, key, "a", kubelock.Timing{LeaseDuration: 12 * time.Second})
	assert.ErrorIs(t, err, kubelock.ErrTiming)
	_, err = kubelock.New(locks, key, "a", kubelock.Timing{RetryPeriod: 9 * time.Second})
	assert.ErrorContains(t, err, "the RenewDeadline (10s)")
	assert.ErrorContains(t, lock(t, locks, "a").Update(t.Context(), names("b")), `cannot elect "b"`)
}

func TestAMarginThatLeavesTooLittleIsSeenAtTheFirstGrant(t *testing.T) {
	c := client(t, memstore.New(), mongolock.WithMargin(4*time.Second))
	l := lock(t, c, "baz")
	assert.ErrorIs(t, l.Create(t.Context(), names("baz")), kubelock.ErrTiming)
	status, err := c.Inspect(t.Context(), key)
	require.NoError(t, err)
	assert.True(t, status.Free(), "the grant was not given back")
}

func ExampleNew() {
	client, err := mongolock.NewWithStore(memstore.New()) // mongolock.New(collection) between processes
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()
	lock, err := kubelock.New(client, "billing-controller", "host-a", kubelock.Timing{})
	if err != nil {
		log.Panic(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	leaderelection.RunOrDie(ctx, lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			lease, _ := kubelock.FromContext(ctx)
			fmt.Println("leads", lease.Token() > 0)
			cancel()
		},
		OnStoppedLeading: func() {},
	}))
	// Output: leads true
}

// asking is a log handler that asks a lock.
type asking struct {
	slog.Handler
	of atomic.Pointer[kubelock.Lock]
}

func (a *asking) Enabled(context.Context, slog.Level) bool { return true }
func (a *asking) Handle(context.Context, slog.Record) error {
	if l := a.of.Load(); l != nil {
		l.Lease()
	}
	return nil
}

// The call that finds a lease to be over logs that, and runs what the application has bound to its contexts. In real
// time, as a bubble waits for whom a mutex stops.
func TestALockCanBeAskedByWhatTheLossOfItsLeaseCalls(t *testing.T) {
	for range 20 { // the timer of the lease may be first
		log := &asking{}
		c, err := mongolock.NewWithStore(memstore.New(), mongolock.WithLogger(slog.New(log)))
		require.NoError(t, err)
		l, err := kubelock.New(c, key, "a", kubelock.Timing{LeaseDuration: 150 * time.Millisecond, RenewDeadline: 50 * time.Millisecond, RetryPeriod: 10 * time.Millisecond})
		require.NoError(t, err)
		require.NoError(t, l.Create(t.Context(), names("a")))
		log.of.Store(l)
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			for began := time.Now(); time.Since(began) < 200*time.Millisecond; {
				_, _, _ = l.Get(t.Context())
			}
		}()
		select {
		case <-asked:
		case <-time.After(30 * time.Second):
			t.Fatal("the lock is locked for ever")
		}
		_ = c.Close()
	}
}
