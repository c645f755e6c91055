package mongolock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store"
)

type observedKey struct{}

// A spanning observer hangs itself into the context, as a tracer does.
type spanning struct{ *opLog }

func (s spanning) Begin(ctx context.Context, op mongolock.Op, key string) (context.Context, func(mongolock.Outcome)) {
	ctx, end := s.opLog.Begin(ctx, op, key)
	return context.WithValue(ctx, observedKey{}, op), end
}

// A seeing store writes down the operation that its calls belong to.
type seeing struct {
	*countingStore
	acquire, renew any
}

func (s *seeing) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.acquire = ctx.Value(observedKey{})
	return s.countingStore.Acquire(ctx, c)
}

func (s *seeing) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	s.renew = ctx.Value(observedKey{})
	return s.countingStore.Renew(ctx, batch)
}

func TestStoreCallsBelongToTheOperationTheyAreMadeFor(t *testing.T) {
	s := &seeing{countingStore: newCountingStore()}
	client := connect(s, mongolock.WithObserver(spanning{newOpLog()}))
	defer client.Close()
	lease := acquire(t, client, "k")
	_ = lease.Renew(t.Context())
	_ = lease.Release()
	if s.acquire != mongolock.OpAcquire || s.renew != mongolock.OpRenew {
		t.Errorf("Acquire was called within %v, Renew within %v", s.acquire, s.renew)
	}
}

func TestAWaitThatRodeOutAFaultAndWasGrantedEndedWell(t *testing.T) {
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

// A closer closes its client in the moment when a lease begins.
type closer struct {
	*opLog
	client *mongolock.Client
	closed chan error
}

func (c *closer) Begin(ctx context.Context, op mongolock.Op, key string) (context.Context, func(mongolock.Outcome)) {
	ctx, end := c.opLog.Begin(ctx, op, key)
	if op == mongolock.OpHold {
		go func() { c.closed <- c.client.Close() }()
		time.Sleep(time.Millisecond)
	}
	return ctx, end
}

func TestAHoldThatBeginsAsItsClientClosesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &closer{opLog: newOpLog(), closed: make(chan error)}
		c.client = connect(newCountingStore(), mongolock.WithObserver(c))
		lease, err := c.client.TryAcquire(t.Context(), "k")
		if lease != nil || !errors.Is(err, mongolock.ErrClosed) {
			t.Errorf("TryAcquire: %v, %v", lease, err)
		}
		assert.NoError(t, <-c.closed)
		c.wantNoneUnderWay(t)
	})
}
