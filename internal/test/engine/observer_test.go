package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// An opLog is an observer that records which operations began and how they ended.
type opLog struct {
	mu    sync.Mutex // protects all
	begun map[mongolock.Op]int
	ended []string // op, key, token if any, count, how it ended
	open  map[string]int
	twice []string // ended more than once
}

func newOpLog() *opLog {
	return &opLog{begun: make(map[mongolock.Op]int), open: make(map[string]int)}
}

func (o *opLog) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := fmt.Sprintf("%s %s", of.Op, of.Key)
	o.begun[of.Op]++
	o.open[name]++
	var over bool
	return ctx, func(out mongolock.Outcome) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if over {
			o.twice = append(o.twice, name)
		}
		over = true
		o.open[name]--
		o.ended = append(o.ended, fmt.Sprintf("%s token=%d count=%d %s", name, out.Token, out.Count, howEnded(out.Err)))
	}
}

// howEnded returns a word for the error of an outcome.
func howEnded(err error) string {
	known := []struct {
		err  error
		word string
	}{
		{mongolock.ErrReleased, "released"}, {mongolock.ErrDetached, "detached"}, {mongolock.ErrMaxHold, "max hold"},
		{mongolock.ErrBroken, "broken"}, {mongolock.ErrLost, "lost"}, {mongolock.ErrOutcomeUnknown, "unknown"},
		{context.Canceled, "canceled"}, {mongolock.ErrHeld, "held"}, {mongolock.ErrClosed, "closed"},
	}
	if err == nil {
		return "ok"
	}
	for _, k := range known {
		if errors.Is(err, k.err) {
			return k.word
		}
	}
	return err.Error()
}

// want fails unless exactly these operations ended since the last call, in any
// order, once each.
func (o *opLog) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait() // for what is told aside
	o.mu.Lock()
	defer o.mu.Unlock()
	assert.ElementsMatch(t, want, o.ended, "the operations that ended")
	o.ended = nil
	assert.Empty(t, o.twice, "operations that ended more than once")
}

// wantNoneUnderWay fails if an operation is still under way.
func (o *opLog) wantNoneUnderWay(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, n := range o.open {
		assert.Zero(t, n, "%s: begun and not ended", name)
	}
	for _, op := range slices.Sorted(maps.Keys(o.begun)) {
		t.Logf("%s: %d", op, o.begun[op])
	}
}

// observed runs a test in a bubble with two clients on one store. The operations of the
// first are observed, and all of them must have ended when both clients are closed.
func observed(t *testing.T, test func(t *testing.T, o *opLog, s *lab.Store, client, rival *mongolock.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOpLog(), lab.New(memstore.New())
		client, rival := connect(s, mongolock.WithObserver(o)), connect(s)
		test(t, o, s, client, rival)
		assert.NoError(t, errors.Join(client.Close(), rival.Close()))
		o.wantNoneUnderWay(t)
	})
}

func TestObserverSeesALeaseFromAcquireToRelease(t *testing.T) {
	observed(t, func(t *testing.T, o *opLog, _ *lab.Store, client, _ *mongolock.Client) {
		lease := acquire(t, client, "k")
		o.want(t, "acquire k token=1 count=1 ok")
		_ = lease.Renew(t.Context())
		o.want(t, "renew k token=0 count=1 ok")
		_ = lease.Release()
		o.want(t, "release k token=1 count=1 ok", "hold k token=1 count=1 released")
		_ = lease.Release()
		o.want(t) // a second Release does nothing
	})
}

func TestObserverSeesARefusal(t *testing.T) {
	observed(t, func(t *testing.T, o *opLog, _ *lab.Store, client, rival *mongolock.Client) {
		lease := acquire(t, rival, "k")
		_, _ = client.TryAcquire(t.Context(), "k")
		o.want(t, "acquire k token=0 count=0 held")
		_ = lease.Release()
	})
}

func TestObserverSeesAWaitWithinAnAcquire(t *testing.T) {
	observed(t, func(t *testing.T, o *opLog, _ *lab.Store, client, rival *mongolock.Client) {
		theirs := acquire(t, rival, "k")
		granted := make(chan *mongolock.Lease)
		go func() {
			lease, _ := client.Acquire(t.Context(), "k")
			granted <- lease
		}()
		time.Sleep(time.Hour)
		o.want(t)
		_ = theirs.Release()
		lease := <-granted
		o.want(t, "acquire k token=2 count=1 ok", "wait k token=0 count=1 ok")
		_ = lease.Release()
	})
}

func TestObserverSeesAWaitThatGaveUp(t *testing.T) {
	observed(t, func(t *testing.T, o *opLog, _ *lab.Store, client, rival *mongolock.Client) {
		theirs := acquire(t, rival, "k")
		_, _ = client.Acquire(t.Context(), "k", mongolock.MaxWait(time.Second))
		o.want(t, "acquire k token=0 count=0 held", "wait k token=0 count=1 held")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = client.Acquire(ctx, "k")
		o.want(t, "acquire k token=0 count=0 held", "wait k token=0 count=1 held")
		_ = theirs.Release()
	})
}

func TestObserverSeesOneRenewalForManyLeases(t *testing.T) {
	observed(t, func(t *testing.T, o *opLog, _ *lab.Store, client, _ *mongolock.Client) {
		var leases []*mongolock.Lease
		for i := range 7 {
			leases = append(leases, acquire(t, client, fmt.Sprint(i)))
		}
		o.mu.Lock()
		o.ended = nil
		o.mu.Unlock()
		time.Sleep(11 * time.Second)
		o.want(t, "renew  token=0 count=7 ok")
		for _, lease := range leases {
			_ = lease.Release()
		}
	})
}

func TestObserverSeesAHandOver(t *testing.T) {
	observed(t, func(t *testing.T, o *opLog, _ *lab.Store, client, _ *mongolock.Client) {
		first := acquire(t, client, "k")
		granted := make(chan *mongolock.Lease)
		go func() {
			lease, _ := client.Acquire(t.Context(), "k")
			granted <- lease
		}()
		synctest.Wait()
		o.want(t, "acquire k token=1 count=1 ok")
		_ = first.Release()
		second := <-granted
		o.want(t, "release k token=1 count=1 ok", "transfer k token=2 count=1 ok", "hold k token=1 count=1 released",
			"wait k token=0 count=1 ok", "acquire k token=2 count=1 ok")
		_ = second.Release()
		o.want(t, "release k token=2 count=1 ok", "hold k token=2 count=1 released")
	})
}

func TestObserverSeesHowALeaseEnded(t *testing.T) {
	ends := map[string]struct {
		opts []mongolock.AcquireOption
		end  func(ctx context.Context, s *lab.Store, rival *mongolock.Client, lease *mongolock.Lease)
		want []string
	}{
		"deleted by hand": {
			end: func(ctx context.Context, s *lab.Store, _ *mongolock.Client, lease *mongolock.Lease) {
				s.Mem.Delete("k")
				_ = lease.Renew(ctx)
			},
			want: []string{"renew k token=0 count=0 lost", "hold k token=1 count=1 lost"},
		},
		"broken": {
			end: func(ctx context.Context, _ *lab.Store, rival *mongolock.Client, lease *mongolock.Lease) {
				_, _ = rival.Break(ctx, "k", "because", -1)
				_ = lease.Renew(ctx)
				_ = lease.Release()
			},
			want: []string{"renew k token=0 count=0 broken", "hold k token=1 count=1 broken", "release k token=1 count=1 broken"},
		},
		"not renewed": {
			opts: []mongolock.AcquireOption{mongolock.NoRenewal()},
			end: func(_ context.Context, _ *lab.Store, _ *mongolock.Client, lease *mongolock.Lease) {
				<-lease.Done()
				_ = lease.Release()
			},
			want: []string{"hold k token=1 count=1 lost", "release k token=1 count=1 lost"},
		},
		"MaxHold": {
			opts: []mongolock.AcquireOption{mongolock.MaxHold(time.Second)},
			end: func(_ context.Context, _ *lab.Store, _ *mongolock.Client, lease *mongolock.Lease) {
				<-lease.Done()
				_ = lease.Release()
			},
			want: []string{"hold k token=1 count=1 max hold", "release k token=1 count=1 max hold"},
		},
		"detached": {
			end: func(ctx context.Context, _ *lab.Store, _ *mongolock.Client, lease *mongolock.Lease) {
				_, _ = lease.Detach(ctx)
			},
			want: []string{"renew k token=0 count=1 ok", "hold k token=1 count=1 detached"},
		},
	}
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			observed(t, func(t *testing.T, o *opLog, s *lab.Store, client, rival *mongolock.Client) {
				lease := acquire(t, client, "k", e.opts...)
				o.want(t, "acquire k token=1 count=1 ok")
				e.end(t.Context(), s, rival, lease)
				synctest.Wait() // all that happens at this instant is done
				o.want(t, e.want...)
			})
		})
	}
}

func TestObserverSeesAResume(t *testing.T) {
	observed(t, func(t *testing.T, o *opLog, _ *lab.Store, client, rival *mongolock.Client) {
		ticket, err := acquire(t, rival, "k").Detach(t.Context())
		require.NoError(t, err)
		lease, err := client.Resume(t.Context(), ticket)
		require.NoError(t, err)
		o.want(t, "transfer k token=1 count=1 ok")
		_, _ = client.Resume(t.Context(), ticket)
		o.want(t, "transfer k token=1 count=1 lost")
		_ = lease.Release()
		o.want(t, "release k token=1 count=1 ok", "hold k token=1 count=1 released")
	})
}

func TestObserverSeesCloseEndALease(t *testing.T) {
	observed(t, func(t *testing.T, o *opLog, _ *lab.Store, client, _ *mongolock.Client) {
		acquire(t, client, "k")
		assert.NoError(t, client.Close())
		o.want(t, "acquire k token=1 count=1 ok", "hold k token=1 count=1 closed", "release k token=1 count=1 ok")
	})
}

func TestReleaseAndTransferGetTheContextOfTheirOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, of := recordOps()
		client := newClient(t, s, mongolock.WithObserver(spanObserver{newOpLog()}))
		first := acquire(t, client, "k")
		next := make(chan *mongolock.Lease)
		go func() {
			lease, err := client.Acquire(t.Context(), "k")
			assert.NoError(t, err)
			next <- lease
		}()
		synctest.Wait()
		_ = first.Release() // hands over
		_ = (<-next).Release()
		assert.Equal(t, mongolock.OpTransfer, of(lab.Transfer), "the operation of Transfer")
		assert.Equal(t, mongolock.OpRelease, of(lab.Release), "the operation of Release")
	})
}

// ended is the context of a call: cancelled, or with a deadline in a second.
func ended(t *testing.T, how string) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	switch how {
	case "deadline":
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	case "later":
		time.AfterFunc(time.Second, cancel)
	default:
		cancel()
	}
	t.Cleanup(cancel)
	return ctx
}

func TestEveryEndOfACallHasItsName(t *testing.T) {
	calls := map[string]struct {
		call func(t *testing.T, locks *mongolocktest.Locker) error
		want string
	}{
		"a grant": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.TryAcquire(t.Context(), "k")
			_ = lease.Release()
			return err
		}, mongolock.OutcomeGranted},
		"a refusal": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Hold("k")
			_, err := locks.TryAcquire(t.Context(), "k")
			return err
		}, mongolock.OutcomeHeld},
		"MaxWait": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Hold("k")
			_, err := locks.Acquire(t.Context(), "k", mongolock.MaxWait(time.Second))
			assert.ErrorIs(t, err, mongolock.ErrHeld)
			return err
		}, mongolock.OutcomeTimeout},
		"MaxWait, after a fault": {func(t *testing.T, locks *mongolocktest.Locker) error {
			release := locks.Hold("k")
			time.AfterFunc(500*time.Millisecond, func() { locks.Fail(errors.New("down")); release() })
			_, err := locks.Acquire(t.Context(), "k", mongolock.MaxWait(2*time.Second))
			return err
		}, mongolock.OutcomeTimeout},
		"a deadline": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Hold("k")
			_, err := locks.Acquire(ended(t, "deadline"), "k")
			return err
		}, mongolock.OutcomeTimeout},
		"a cancel": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Hold("k")
			_, err := locks.Acquire(ended(t, "later"), "k")
			return err
		}, mongolock.OutcomeCancelled},
		"a context that had ended": {func(t *testing.T, locks *mongolocktest.Locker) error {
			_, err := locks.Acquire(ended(t, "before"), "k")
			return err
		}, mongolock.OutcomeCancelled},
		"a wait under a lease that was lost": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.Acquire(t.Context(), "mine", mongolock.MaxHold(time.Second))
			require.NoError(t, err)
			locks.Hold("k")
			_, err = locks.Acquire(lease.Context(t.Context()), "k")
			return err
		}, mongolock.OutcomeCancelled},
		"a lost lease": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.Acquire(t.Context(), "k")
			require.NoError(t, err)
			locks.Lose("k")
			return lease.Release()
		}, mongolock.OutcomeLost},
		"MaxHold": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.Acquire(t.Context(), "k", mongolock.MaxHold(time.Second))
			require.NoError(t, err)
			<-lease.Done()
			return lease.Err()
		}, mongolock.OutcomeLost},
		"a released lease": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.Acquire(t.Context(), "k")
			require.NoError(t, errors.Join(err, lease.Release()))
			return lease.Renew(t.Context())
		}, mongolock.OutcomeReleased},
		"an outage": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Fail(errors.New("down"))
			defer locks.Fail(nil)
			_, err := locks.TryAcquire(t.Context(), "k")
			return err
		}, mongolock.OutcomeUnknown},
		"an outage that changed nothing, after a deadline of the driver": {func(t *testing.T, locks *mongolocktest.Locker) error {
			locks.Fail(fmt.Errorf("%w: %w", store.ErrNotApplied, context.DeadlineExceeded))
			defer locks.Fail(nil)
			_, err := locks.TryAcquire(t.Context(), "k")
			return err
		}, mongolock.OutcomeFailed},
		"another mode": {func(t *testing.T, locks *mongolocktest.Locker) error {
			lease, err := locks.Acquire(t.Context(), "k", mongolock.Shared())
			require.NoError(t, err)
			defer lease.Release()
			_, err = locks.TryAcquire(t.Context(), "k", mongolock.OneOf(2))
			return err
		}, mongolock.OutcomeFailed},
		"a closed client": {func(t *testing.T, locks *mongolocktest.Locker) error {
			require.NoError(t, locks.Close())
			_, err := locks.Acquire(t.Context(), "k")
			return err
		}, mongolock.OutcomeCancelled},
	}
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := c.call(t, mongolocktest.New(t))
				assert.Equal(t, c.want, mongolock.OutcomeOf(err), "the outcome of %v", err)
			})
		})
	}
}

type observedKey struct{}

// A spanObserver puts each operation into the context of the calls made for it, as a
// tracer does.
type spanObserver struct{ *opLog }

func (s spanObserver) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	ctx, end := s.opLog.Begin(ctx, of)
	return context.WithValue(ctx, observedKey{}, of.Op), end
}

// recordOps returns a store, and the operation that the last call of each kind belonged to.
func recordOps() (s *lab.Store, of func(lab.Op) any) {
	s = lab.New(memstore.New())
	var ops sync.Map
	s.Each = func(c *lab.Call) { ops.Store(c.Op, c.Context.Value(observedKey{})) }
	return s, func(call lab.Op) any { op, _ := ops.Load(call); return op }
}

func TestStoreCallsGetTheContextOfTheirOperation(t *testing.T) {
	s, of := recordOps()
	client := newClient(t, s, mongolock.WithObserver(spanObserver{newOpLog()}))
	lease := acquire(t, client, "k")
	_ = lease.Renew(t.Context())
	_ = lease.Release()
	assert.Equal(t, mongolock.OpAcquire, of(lab.Acquire), "the operation of Acquire")
	assert.Equal(t, mongolock.OpHold, of(lab.Renew), "that under which the lease is renewed")
}

func TestAWaitThatIsGrantedAfterAFaultEndsWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpLog()
		locks := mongolocktest.New(t, mongolock.WithObserver(o))
		release := locks.Hold("k")
		granted := make(chan *mongolock.Lease)
		go func() {
			lease, _ := locks.Acquire(t.Context(), "k")
			granted <- lease
		}()
		synctest.Wait()
		locks.Fail(errors.New("down"))
		release()
		time.Sleep(time.Second)
		locks.Fail(nil)
		lease := <-granted
		o.want(t, "acquire k token=2 count=1 ok", "wait k token=0 count=1 ok")
		_ = lease.Release()
	})
}

// A closeOnHold is an observer that closes its client at the moment when a lease begins.
type closeOnHold struct {
	*opLog
	client *mongolock.Client
	closed chan error
}

func (c *closeOnHold) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	ctx, end := c.opLog.Begin(ctx, of)
	if of.Op == mongolock.OpHold {
		go func() { c.closed <- c.client.Close() }()
		time.Sleep(time.Millisecond)
	}
	return ctx, end
}

func TestAHoldThatBeginsAsItsClientClosesIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &closeOnHold{opLog: newOpLog(), closed: make(chan error)}
		c.client = connect(memstore.New(), mongolock.WithObserver(c))
		lease, err := c.client.TryAcquire(t.Context(), "k")
		assert.Nil(t, lease)
		assert.ErrorIs(t, err, mongolock.ErrClosed)
		assert.NoError(t, <-c.closed)
		c.wantNoneUnderWay(t)
	})
}
