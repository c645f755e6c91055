package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
	"github.com/mongolock/mongolock/store/memstore"
)

// A sessionStore counts renewals, and can refuse those of sessions.
type sessionStore struct {
	*memstore.Store
	renewed, sessions atomic.Int64
	begun             atomic.Int64
	refuse            atomic.Bool  // of the session
	failRenewals      atomic.Bool  // of leases
	answerLate        atomic.Int64 // a duration
	each              atomic.Int64 // how long a renewal of one lease takes
	underWay          atomic.Bool  // a renewal of a session
	beside            atomic.Int64 // renewals that were sent meanwhile
}

func (s *sessionStore) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	s.renewed.Add(int64(len(batch)))
	if s.underWay.Load() {
		s.beside.Add(1)
	}
	time.Sleep(time.Duration(len(batch)) * time.Duration(s.each.Load())) // virtual: the store's work
	if s.failRenewals.Load() {
		return allFail(batch, errNet)
	}
	return s.Store.Renew(ctx, batch)
}

func (s *sessionStore) BeginSession(ctx context.Context, of store.Session) (time.Duration, error) {
	s.begun.Add(1)
	return s.Store.BeginSession(ctx, of)
}

func (s *sessionStore) RenewSession(ctx context.Context, of store.Session) (store.SessionRenewed, error) {
	s.sessions.Add(1)
	if s.refuse.Load() {
		return store.SessionRenewed{}, errNet
	}
	s.underWay.Store(true)
	defer s.underWay.Store(false)
	r, err := s.Store.RenewSession(ctx, of)
	time.Sleep(time.Duration(s.answerLate.Load())) // virtual: how late the answer comes
	return r, err
}

func withSession(t *testing.T, test func(t *testing.T, s *sessionStore, c *mongolock.Client)) {
	synctest.Test(t, func(t *testing.T) {
		s := &sessionStore{Store: memstore.New()}
		test(t, s, newClient(t, s, mongolock.WithSession()))
	})
}

func TestUnderASessionLeasesAreNotRenewedOneByOne(t *testing.T) {
	withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
		var leases []*mongolock.Lease
		for i := range 100 {
			leases = append(leases, acquire(t, c, fmt.Sprint(i)))
		}
		time.Sleep(time.Minute) // all are under the session
		s.renewed.Store(0)
		s.sessions.Store(0)
		time.Sleep(10 * time.Minute) // virtual: many renewals
		assert.Zero(t, s.renewed.Load(), "renewals of leases")
		assert.InDelta(t, 60, s.sessions.Load(), 1, "three in a TTL of 30 s")
		for _, l := range leases {
			assert.NoError(t, l.Err())
			mustBeHeld(t, s, l.Key())
		}
	})
}

// The session's first renewal and that with which the lease comes under it are due in one
// instant. Whichever is first, the session is needed.
func TestASessionIsNotEndedWhileALeaseIsAboutToComeUnderIt(t *testing.T) {
	for range 20 {
		withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
			l := acquire(t, c, "k")
			time.Sleep(2 * time.Minute) // virtual: many renewals
			assert.NoError(t, l.Err())
			assert.EqualValues(t, 1, s.begun.Load(), "sessions begun")
		})
	}
}

func TestWithASessionEveryLeaseEndsBeforeItsKeyIsFree(t *testing.T) {
	withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
		var leases []*mongolock.Lease
		for i := range 10 {
			leases = append(leases, acquire(t, c, fmt.Sprint(i)))
		}
		time.Sleep(10 * time.Minute) // virtual: many renewals
		s.refuse.Store(true)
		for _, l := range leases {
			<-l.Done()
			assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
			mustBeHeld(t, s, l.Key())
		}
		time.Sleep(2 * time.Second) // the margin, and what gives the session up
		s.refuse.Store(false)
		for _, l := range leases {
			mustBeFree(t, s, l.Key())
		}
		again := acquire(t, c, "again")
		time.Sleep(10 * time.Minute) // virtual: many renewals
		s.renewed.Store(0)
		time.Sleep(10 * time.Minute) // virtual: many renewals
		assert.NoError(t, again.Err())
		assert.Zero(t, s.renewed.Load(), "a lease under the next session")
	})
}

func TestAnAnswerAfterTheSessionsDeadlineRevivesNothing(t *testing.T) {
	withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
		l := acquire(t, c, "k")
		time.Sleep(10 * time.Minute) // virtual: many renewals
		s.answerLate.Store(int64(31 * time.Second))
		<-l.Done()
		assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
		time.Sleep(time.Minute) // virtual: two TTLs
		assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
		s.answerLate.Store(0)
	})
}

func TestABrokenLeaseUnderASessionIsTold(t *testing.T) {
	withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
		l, other := acquire(t, c, "k"), acquire(t, c, "other")
		time.Sleep(10 * time.Minute) // virtual: many renewals
		_, err := newClient(t, s).Break(t.Context(), "k", "because", 15*time.Second)
		require.NoError(t, err)
		assert.ErrorIs(t, l.Err(), mongolock.ErrBroken)
		assert.ErrorContains(t, l.Err(), "because")
		assert.NoError(t, other.Err())
		mustBeFree(t, s, "k")
	})
}

func TestALeaseUnderASessionCanBeDetachedAndLeavesTheSession(t *testing.T) {
	withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
		l, left := acquire(t, c, "k"), acquire(t, c, "left")
		time.Sleep(10 * time.Minute) // virtual: many renewals
		ticket, _ := detach(t, l), detach(t, left)
		require.NoError(t, c.Close())
		resumed, err := newClient(t, s).Resume(t.Context(), ticket)
		require.NoError(t, err)
		assert.NoError(t, resumed.Err())
		time.Sleep(31 * time.Second) // virtual: longer than the TTL
		mustBeFree(t, s, "left")
		mustBeHeld(t, s, "k")
	})
}

func TestClosingEndsTheSession(t *testing.T) {
	withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
		acquire(t, c, "k")
		time.Sleep(10 * time.Minute) // virtual: many renewals
		require.NoError(t, c.Close())
		mustBeFree(t, s, "k")
		s.sessions.Store(0)
		time.Sleep(10 * time.Minute) // virtual: many renewals
		assert.Zero(t, s.sessions.Load())
	})
}

func TestASessionThatKeepsNothingEnds(t *testing.T) {
	withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
		l := acquire(t, c, "k")
		time.Sleep(10 * time.Minute) // virtual: many renewals
		release(t, l)
		time.Sleep(time.Minute) // virtual: two TTLs
		s.sessions.Store(0)
		time.Sleep(10 * time.Minute) // virtual: many renewals
		assert.Zero(t, s.sessions.Load())
	})
}

func TestASessionDoesNotWaitForTheLeasesThatAreToComeUnderIt(t *testing.T) {
	withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
		s.each.Store(int64(9 * time.Millisecond))
		for i := range 2000 { // 18 s of work, from a third of the TTL on
			acquire(t, c, fmt.Sprint(i))
		}
		time.Sleep(21 * time.Second) // virtual: a session is renewed every 10 s
		assert.Less(t, s.renewed.Load(), int64(2000), "all leases are renewed by now: this shows nothing")
		assert.Equal(t, int64(1), s.sessions.Load(), "renewals of the session")
	})
}

// The server's time goes to the session first, whatever else its client wants.
func TestLeasesUnderASessionAreNotRenewedBesideIt(t *testing.T) {
	besides := func(answerLate time.Duration) (n int64) {
		withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
			acquire(t, c, "under")
			for i := range 4 { // of groups of their own: one or another is renewed at any moment
				acquire(t, c, fmt.Sprint(i), mongolock.TTL(1900*time.Millisecond<<i))
			}
			s.answerLate.Store(int64(answerLate))
			time.Sleep(10 * time.Minute) // virtual: many renewals
			n = s.beside.Load()
			s.answerLate.Store(0)
		})
		return n
	}
	assert.Zero(t, besides(700*time.Millisecond), "renewals beside one of the session, less than a fortieth of the TTL")
	assert.Positive(t, besides(2*time.Second), "renewals beside one that is slow: leases wait for it no longer than that")
}

func TestAShorterLeaseIsKeptByItself(t *testing.T) {
	withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
		acquire(t, c, "k", mongolock.TTL(10*time.Second))
		time.Sleep(time.Minute) // virtual: two TTLs
		s.renewed.Store(0)
		time.Sleep(10 * time.Minute) // virtual: many renewals
		assert.InDelta(t, 180, s.renewed.Load(), 2)
		assert.Zero(t, s.sessions.Load())
	})
}

func TestWithSessionNeedsAStoreThatHasThem(t *testing.T) {
	files, err := filestore.Open(t.TempDir())
	require.NoError(t, err)
	_, err = mongolock.NewWithStore(files, mongolock.WithSession())
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "WithSession: *filestore.Store has no sessions")
}

// Clients with a session and without one want the same keys, in every mode.
func TestClientsWithAndWithoutASessionExcludeEachOther(t *testing.T) {
	withSession(t, func(t *testing.T, s *sessionStore, c *mongolock.Client) {
		plain := newClient(t, s)
		under, alone := acquire(t, c, "a"), acquire(t, plain, "b")
		sharedUnder, sharedAlone := acquire(t, c, "shared", mongolock.Shared()), acquire(t, plain, "shared", mongolock.Shared())
		time.Sleep(10 * time.Minute) // virtual: many renewals
		for range 2 {
			mustNotAcquire(t, plain, "a")
			mustNotAcquire(t, c, "b")
			mustNotAcquire(t, plain, "shared")
			mustNotAcquire(t, c, "shared")
		}
		release(t, sharedAlone)
		time.Sleep(10 * time.Minute)       // virtual: many renewals
		mustNotAcquire(t, plain, "shared") // the one under the session is still there
		release(t, sharedUnder)
		release(t, acquire(t, plain, "shared"))
		release(t, under)
		release(t, alone)
		release(t, acquire(t, plain, "a"))
		release(t, acquire(t, c, "b"))
		permits := []*mongolock.Lease{acquire(t, c, "p", mongolock.OneOf(2)), acquire(t, plain, "p", mongolock.OneOf(2))}
		time.Sleep(10 * time.Minute) // virtual: many renewals
		mustNotAcquire(t, plain, "p", mongolock.OneOf(2))
		release(t, permits[0])
		permits[0] = acquire(t, plain, "p", mongolock.OneOf(2))
		mustNotAcquire(t, c, "p", mongolock.OneOf(2))
		for _, l := range permits {
			assert.NoError(t, l.Err())
		}
	})
}

// mustNotAcquire asks for a key that others hold.
func mustNotAcquire(t *testing.T, c *mongolock.Client, key string, opts ...mongolock.AcquireOption) {
	t.Helper()
	_, err := c.TryAcquire(t.Context(), key, opts...)
	assert.ErrorIs(t, err, mongolock.ErrHeld, key)
}
