package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store/memstore"
)

// A reign is who led, in order.
type reign struct{ led chan string }

// candidate starts a candidate, and returns what ends it.
func (r *reign) candidate(t *testing.T, in *memstore.Store, name string, opts ...leader.Option) (stop func()) {
	t.Helper()
	client, err := mongolock.NewWithStore(in, mongolock.WithOwner(name))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() {
		over <- leader.Run(ctx, client, "billing", func(ctx context.Context, _ leader.Term) error {
			r.led <- name
			<-ctx.Done()
			return ctx.Err()
		}, opts...)
	}()
	return func() {
		cancel()
		assert.NoError(t, <-over)
		assert.NoError(t, client.Close())
	}
}

// next returns who leads next, and after how long.
func (r *reign) next(t *testing.T) (string, time.Duration) {
	t.Helper()
	began := time.Now()
	select {
	case name := <-r.led:
		return name, time.Since(began)
	case <-time.After(time.Minute):
		return "nobody", time.Minute
	}
}

func (r *reign) leads(t *testing.T, want string, atMost time.Duration) {
	t.Helper()
	name, took := r.next(t)
	assert.Equal(t, want, name)
	assert.LessOrEqual(t, took, atMost)
}

func TestALeaderMakesRoomForACandidateOfAHigherPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), &reign{make(chan string, 99)}
		stopLow := r.candidate(t, in, "low", leader.Priority(0))
		r.leads(t, "low", 0)
		stopLater := r.candidate(t, in, "later", leader.Priority(0))
		time.Sleep(time.Second)
		stopEqual := r.candidate(t, in, "equal", leader.Priority(0))
		time.Sleep(3 * time.Minute)
		select {
		case name := <-r.led:
			t.Errorf("%s leads, which has the same priority", name)
		default:
		}
		stopHigh := r.candidate(t, in, "high", leader.Priority(5))
		r.leads(t, "high", 6*time.Second)
		stopHigher := r.candidate(t, in, "higher", leader.Priority(9))
		r.leads(t, "higher", 6*time.Second)
		time.Sleep(2 * time.Second) // high stands aside for a second
		stopHigher()
		r.leads(t, "high", time.Second)
		stopHigh()
		r.leads(t, "later", time.Second) // low stood aside, and then behind it
		stopLater()
		r.leads(t, "equal", time.Second)
		stopEqual()
		r.leads(t, "low", time.Second)
		stopLow()
	})
}

func TestALeaderWithoutAPriorityResignsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), &reign{make(chan string, 99)}
		stop := r.candidate(t, in, "unranked")
		r.leads(t, "unranked", 0)
		stopOther := r.candidate(t, in, "waits", leader.Priority(0))
		time.Sleep(time.Second)
		stopHigh := r.candidate(t, in, "high", leader.Priority(9))
		name, _ := r.next(t)
		assert.Equal(t, "nobody", name)
		stop()
		r.leads(t, "high", time.Second)
		stopHigh()
		r.leads(t, "waits", time.Second)
		stopOther()
	})
}

// The priority of a leader is that of its place, however it was given.
func TestTwoPrioritiesOfACandidateAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), &reign{make(chan string, 999)}
		for _, name := range []string{"a", "b"} {
			defer r.candidate(t, in, name, leader.Priority(0), leader.With(mongolock.Priority(5)))()
		}
		time.Sleep(10 * time.Minute)
		assert.Len(t, r.led, 1, "terms")
	})
}

// Work that made room and returns its context's cause has not failed, if the process ends meanwhile.
func TestRunThatEndsWhileItsWorkMakesRoomReturnsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), &reign{make(chan string, 99)}
		client, err := mongolock.NewWithStore(in)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() {
			over <- leader.Run(ctx, client, "billing", func(ctx context.Context, _ leader.Term) error {
				<-ctx.Done()
				time.Sleep(10 * time.Second)
				return context.Cause(ctx)
			}, leader.Priority(0))
		}()
		time.Sleep(time.Second)
		defer r.candidate(t, in, "high", leader.Priority(5))()
		time.Sleep(8 * time.Second)
		cancel()
		require.NoError(t, <-over)
		require.NoError(t, client.Close())
	})
}
