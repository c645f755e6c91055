package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// roundTrip is how long a call of a distantStore takes, with its answer.
const roundTrip = 20 * time.Millisecond

// A distantStore answers after a round trip, and carries out the call in the middle of it. A
// notice reaches its listeners after half a round trip.
type distantStore struct {
	*lab.Store
	late atomic.Int64 // how much later releases arrive: a time.Duration
	lose atomic.Bool  // answers to releases get lost
	deaf atomic.Bool  // notices do not come
}

func newDistantStore(mem *memstore.Store) *distantStore {
	f := &distantStore{Store: lab.New(mem)}
	for _, op := range []lab.Op{lab.Acquire, lab.Look, lab.Notify} {
		f.On(op, lab.Slow(roundTrip/2, roundTrip/2))
	}
	f.On(lab.Release, func(_ context.Context, call *lab.Call) error {
		time.Sleep(time.Duration(f.late.Load())) // virtual: a slow network
		travel()
		defer travel()
		err := call.Do()
		if f.lose.Load() {
			return errNet
		}
		return err
	})
	f.Heard = func(n store.Notice) bool {
		travel()
		return n.Kind == "" || !f.deaf.Load()
	}
	return f
}

func travel() { time.Sleep(roundTrip / 2) } // virtual: one way

// A rivalry is two processes, one of which waits for the key that the other holds.
type rivalry struct {
	near, far *distantStore
	one, two  *mongolock.Client
}

func newRivalry(t *testing.T) *rivalry {
	mem := memstore.New()
	r := &rivalry{near: newDistantStore(mem), far: newDistantStore(mem)}
	r.one, r.two = newClient(t, r.near), newClient(t, r.far)
	return r
}

// handOver lets one hold the key for a while and release it. It returns how long it then takes
// until two has the key, and how many notices the release took.
func (r *rivalry) handOver(t *testing.T, while func()) (took time.Duration, notices int) {
	t.Helper()
	l := acquire(t, r.one, "k")
	wait := inBackground(t.Context(), r.two, "k")
	time.Sleep(5 * time.Second) // virtual: it stands in line, and sleeps
	require.Equal(t, store.FeedLive, r.two.Stats().Feed)
	if while != nil {
		while()
	}
	before, start := r.near.Count(lab.Notify), time.Now()
	_ = l.Release()
	got := <-wait
	require.NoError(t, got.err)
	took = got.when.Sub(start)
	time.Sleep(time.Second) // virtual: what is sent in the background is sent
	notices = r.near.Count(lab.Notify) - before
	release(t, got.lease)
	return took, notices
}

func TestAHandOverTakesTwoTripsOnceItIsKnownThatOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivalry(t)
		took, notices := r.handOver(t, nil)
		assert.Equal(t, 3*roundTrip, took, "where nobody could know: the release, the notice, the claim")
		assert.Equal(t, 1, notices)
		for range 3 {
			claims := r.far.Count(lab.Acquire)
			took, notices = r.handOver(t, nil)
			assert.Equal(t, 2*roundTrip, took, "where the last release found that others wait: the notice and the claim")
			assert.Equal(t, 1, notices)
			assert.LessOrEqual(t, r.far.Count(lab.Acquire)-claims, 3, "claims: on arrival, on the notice")
		}
		assert.Zero(t, r.far.Count(lab.Notify), "notices of the one that nobody waits for")

		release(t, acquire(t, r.one, "k"))
		time.Sleep(time.Second) // virtual: what is sent in the background is sent
		before := r.near.Count(lab.Notify)
		for range 10 {
			release(t, acquire(t, r.one, "k"))
		}
		time.Sleep(time.Second) // virtual: as above
		assert.Equal(t, before, r.near.Count(lab.Notify), "notices where nobody waits any more, but for one")
	})
}

// The waiter may not have seen that holder: within its process, the key went from lease to
// lease.
func TestAWaiterThatWasToldTooEarlyByAHolderItHadNotSeenSoonLooksAgain(t *testing.T) {
	for late := time.Duration(0); late <= 200*time.Millisecond; late += 10 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			r := newRivalry(t)
			r.handOver(t, nil)
			first := acquire(t, r.one, "k")
			far := inBackground(t.Context(), r.two, "k")
			time.Sleep(5 * time.Second) // virtual: it stands in line, and sleeps
			near := inBackground(t.Context(), r.one, "k")
			time.Sleep(time.Second) // virtual: it waits too
			release(t, first)
			next := <-near
			require.NoError(t, next.err)
			r.near.late.Store(int64(late))
			time.Sleep(5 * time.Millisecond) // virtual: its section
			start := time.Now()
			release(t, next.lease)
			got := <-far
			require.NoError(t, got.err)
			assert.LessOrEqual(t, got.when.Sub(start), 2*late+4*roundTrip, "with a release that comes %v late", late)
			release(t, got.lease)
		})
	}
}

// A cursor that is opened after the notice and before the release hears neither. The key is
// read when both are over: the empty notice stands for the opening.
func TestAFeedThatIsOpenedDuringAReleaseMissesNothing(t *testing.T) {
	for at := time.Duration(0); at <= 300*time.Millisecond; at += 20 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			r := newRivalry(t)
			r.handOver(t, nil)
			r.near.late.Store(int64(200 * time.Millisecond))
			took, notices := r.handOver(t, func() {
				r.far.deaf.Store(true)
				time.AfterFunc(at, func() { _ = r.far.Mem.Notify(context.WithoutCancel(t.Context()), store.Notice{}) })
			})
			assert.LessOrEqual(t, took, 700*time.Millisecond, "with a feed that is opened %v after the release was sent", at)
			assert.Equal(t, 1, notices)
		})
	}
}

// Then the key is not freed, and a waiter that was told so stays in its place.
func TestAWaiterThatWasToldOfAReleaseThatFailedIsServedWhenItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivalry(t)
		r.handOver(t, nil)
		var served time.Time
		took, _ := r.handOver(t, func() {
			fails, until := errors.Join(store.ErrNotApplied, errNet), time.Now().Add(12*time.Second)
			r.near.On(lab.Release, func(_ context.Context, call *lab.Call) error {
				travel()
				defer travel()
				if time.Now().Before(until) {
					return fails
				}
				served = time.Now()
				return call.Do()
			})
		})
		assert.NotZero(t, served)
		assert.Less(t, took, 20*time.Second, "before the key would have run out")
	})
}
