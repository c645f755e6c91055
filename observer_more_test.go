package mongolock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store/memstore"
)

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
