package filestore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
)

// A machine has a clock that counts from its start, and one that can be set.
type machine struct {
	boots int
	began time.Time     // when its clock began to count
	ahead time.Duration // of its wall clock
	wall  func() time.Time
	dir   string // of its clients
}

func newMachine() *machine {
	m := &machine{began: time.Now().Add(-time.Hour)}
	m.wall = func() time.Time { return time.Now().Add(m.ahead) }
	return m
}

func (m *machine) open(t testing.TB, dir string) *filestore.Store {
	up := func() time.Duration { return time.Since(m.began) }
	return open(t, dir).Clocked(hostclock.Of(fmt.Sprint("boot ", m.boots), up), m.wall)
}

// client is that of another process, in the same directory each time.
func (m *machine) client(t *testing.T) *mongolock.Client {
	if m.dir == "" {
		m.dir = disktest.InMemory(t)
	}
	client, err := mongolock.NewWithStore(m.open(t, m.dir))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (m *machine) set(by time.Duration) { m.ahead += by }

// restart makes the clock begin again, so long before now. Stores have to be opened again.
func (m *machine) restart(before time.Duration) {
	m.boots++
	m.began = time.Now().Add(-before)
}

func rival(key string) store.Claim {
	c := mine(key)
	c.ID = "the rival's"
	return c
}

// leftOf claims a key for a rival and returns how long it is refused for: zero if it was
// granted.
func leftOf(t *testing.T, s *filestore.Store, key string) time.Duration {
	t.Helper()
	_, err := s.Acquire(t.Context(), rival(key))
	if err == nil {
		return 0
	}
	var held *store.HeldError
	require.ErrorAs(t, err, &held)
	return held.Left()
}

func TestAStepOfTheWallClockNeitherEndsNorProlongsALease(t *testing.T) {
	for _, by := range []time.Duration{2 * time.Hour, 40 * time.Minute, -40 * time.Minute, -24 * time.Hour, 20 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine()
			s := m.open(t, disktest.InMemory(t))
			first, err := s.Acquire(t.Context(), mine("k")) // for an hour
			require.NoError(t, err)

			m.set(by)
			assert.Equal(t, time.Hour, leftOf(t, s, "k"), "%v", by)
			all, err := s.Look(t.Context(), []string{"k"})
			require.NoError(t, err)
			assert.Equal(t, time.Hour, all[0].Left(), "%v", by)
			time.Sleep(30 * time.Minute)
			renewed := s.Renew(t.Context(), []store.Renewal{{Ref: mine("k").Ref, TTL: time.Hour}})
			require.NoError(t, renewed[0].Err, "%v", by)
			m.set(-2 * by)
			assert.Equal(t, time.Hour, leftOf(t, s, "k"), "%v", by)

			time.Sleep(time.Hour)
			next, err := s.Acquire(t.Context(), rival("k"))
			require.NoError(t, err, "%v", by)
			assert.Greater(t, next.Token, first.Token, "tokens do not depend on the clock")
		})
	}
}

func TestAStepOfTheWallClockNeitherEndsNorProlongsAPlace(t *testing.T) {
	for _, c := range []struct {
		by       time.Duration
		restarts bool
	}{{2 * time.Hour, false}, {-2 * time.Hour, false}, {-2 * time.Hour, true}} {
		synctest.Test(t, func(t *testing.T) {
			m, dir := newMachine(), disktest.InMemory(t)
			s := m.open(t, dir)
			reader := mine("k")
			reader.Mode, reader.Limit = store.Shared, 0
			_, err := s.Acquire(t.Context(), reader)
			require.NoError(t, err)
			writer := rival("k")
			writer.Place = store.NewPlace(store.Exclusive, 1, 1, "")
			_, err = s.Acquire(t.Context(), writer)
			require.ErrorIs(t, err, store.ErrHeld)

			m.set(c.by)
			if c.restarts {
				m.restart(0)
				s = m.open(t, dir)
			}
			another := reader
			another.ID = "another reader's"
			_, err = s.Acquire(t.Context(), another)
			require.ErrorIs(t, err, store.ErrHeld, "%v: the writer comes first", c)
			time.Sleep(store.ReserveFor)
			_, err = s.Acquire(t.Context(), another)
			require.NoError(t, err, "%v: it has not come", c)
		})
	}
}

// A virtual machine is paused for an hour and its guest cannot tell. Then a time daemon sets its
// wall clock right. Neither the lease nor the store has counted that hour.
func TestAPauseThatIsHiddenFromTheHostGrantsAKeyToNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		holder, other := m.client(t), m.client(t)
		lease, err := holder.Acquire(t.Context(), "k")
		require.NoError(t, err)
		m.set(time.Hour)
		_, err = other.TryAcquire(t.Context(), "k")
		require.ErrorIs(t, err, mongolock.ErrHeld)
		require.NoError(t, lease.Err())
	})
}

// A bubble's leases do not count time asleep, and this host's clocks do. Then two processes have
// the key at once, until the next renewal.
func TestControlALeaseThatDoesNotCountTimeAsleepIsTrustedTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		holder, other := m.client(t), m.client(t)
		lease, err := holder.Acquire(t.Context(), "k")
		require.NoError(t, err)
		m.set(time.Hour)
		m.began = m.began.Add(-time.Hour)
		next, err := other.TryAcquire(t.Context(), "k")
		require.NoError(t, err)
		assert.Greater(t, next.Token(), lease.Token())
		require.NoError(t, lease.Err())
	})
}

// On systems that have no better clock.
func TestWhereTheWallClockJudgesAStepBackTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		s := open(t, disktest.InMemory(t)).Clocked(hostclock.Of("wall clock", func() time.Duration { return time.Duration(m.wall().UnixNano()) }), m.wall)
		_, err := s.Acquire(t.Context(), mine("k")) // for an hour
		require.NoError(t, err)
		m.set(-24 * time.Hour)
		assert.Equal(t, time.Hour, leftOf(t, s, "k"))
		m.set(40 * time.Minute)
		assert.Equal(t, 20*time.Minute, leftOf(t, s, "k"), "a step forward shortens it by the step")
	})
}

func TestAfterARestartOfTheHostALeaseKeepsTheTimeItHadLeft(t *testing.T) {
	for what, c := range map[string]struct{ down, ahead, left time.Duration }{
		"at once":                        {0, 0, 40 * time.Minute},
		"down for less than a minute":    {30 * time.Second, 0, 40 * time.Minute},
		"down for ten minutes":           {10 * time.Minute, 0, 31 * time.Minute},
		"down for longer than its hour":  {2 * time.Hour, 0, 0},
		"its wall clock knows no date":   {10 * time.Minute, -50 * 365 * 24 * time.Hour, 40 * time.Minute},
		"its wall clock is too far back": {10 * time.Minute, -8 * time.Minute, 39 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, dir := newMachine(), disktest.InMemory(t)
			s := m.open(t, dir)
			_, err := s.Acquire(t.Context(), mine("k")) // for an hour
			require.NoError(t, err)
			time.Sleep(20 * time.Minute)
			renewed := s.Renew(t.Context(), []store.Renewal{{Ref: mine("k").Ref, TTL: 40 * time.Minute}})
			require.NoError(t, renewed[0].Err)

			time.Sleep(c.down)
			m.set(c.ahead)
			m.restart(0)
			s = m.open(t, dir)
			all, err := s.Look(t.Context(), []string{"k"})
			require.NoError(t, err)
			assert.Equal(t, c.left, all[0].Left(), what)
			assert.Equal(t, c.left, leftOf(t, s, "k"), what)
			if c.left == 0 {
				return
			}
			time.Sleep(c.left / 2)
			m.set(-c.ahead) // it is set right
			assert.Equal(t, c.left/2, leftOf(t, s, "k"), "%s: counted from the first claim", what)
		})
	}
}

// Two containers name the boot differently, and ask in turn.
func TestALeaseEndsThoughItsRivalsCannotAgreeOnTheBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := newMachine(), disktest.InMemory(t)
		one := m.open(t, dir)
		m.boots++
		two := m.open(t, dir)
		_, err := one.Acquire(t.Context(), mine("k")) // for an hour
		require.NoError(t, err)
		began := time.Now()
		for leftOf(t, two, "k") > 0 && leftOf(t, one, "k") > 0 && time.Since(began) < 2*time.Hour {
			time.Sleep(time.Second)
		}
		assert.GreaterOrEqual(t, time.Since(began), time.Hour)
		assert.LessOrEqual(t, time.Since(began), time.Hour+time.Minute)
	})
}

// A trusted lease is one whose holder may still rely on it.
type trusted struct {
	ref   store.Ref
	until time.Time
}

// clockStorm makes processes of a host claim, renew and release one key at random, while its wall
// clock is set and the host is restarted. It returns what was wrong. With outlive a lease counts
// after a restart too, as that of a ticket does; then the wall clock is never off by more than a
// minute. Else it shows anything.
func clockStorm(t *testing.T, seed uint64, outlive bool) (wrong []string) {
	d := rand.New(rand.NewPCG(seed, 0))
	random := func(most time.Duration) time.Duration { return time.Duration(d.Int64N(int64(most))) }
	m, dir := newMachine(), disktest.InMemory(t)
	s := m.open(t, dir)
	var live []trusted
	for i := range 60 {
		time.Sleep(random(2 * time.Second))
		sent := time.Now()
		switch d.IntN(8) {
		case 0:
			if outlive {
				m.ahead = random(50*time.Second) - 25*time.Second
			} else {
				m.ahead = random(4*time.Hour) - 2*time.Hour
			}
		case 1:
			time.Sleep(random(3 * time.Second))
			m.restart(random(2 * time.Hour))
			if !outlive {
				live = nil // their processes have ended
			}
			s = m.open(t, dir)
		case 2, 3:
			if len(live) == 0 {
				continue
			}
			h := &live[d.IntN(len(live))]
			ttl := time.Second + random(20*time.Second)
			switch r := s.Renew(t.Context(), []store.Renewal{{Ref: h.ref, TTL: ttl}})[0]; {
			case r.Err == nil:
				h.until = sent.Add(r.Left)
			case h.until.After(time.Now()):
				wrong = append(wrong, fmt.Sprintf("step %d: a live lease was not renewed: %v", i, r.Err))
			}
		case 4:
			if len(live) > 0 {
				_, _ = s.Release(t.Context(), store.ReleaseRequest{Ref: live[0].ref})
				live = live[1:]
			}
		default:
			c := rival("k")
			c.ID, c.TTL = fmt.Sprint(i), time.Second+random(20*time.Second)
			g, err := s.Acquire(t.Context(), c)
			if err != nil {
				continue
			}
			for _, h := range live {
				if h.until.After(time.Now()) {
					wrong = append(wrong, fmt.Sprintf("step %d: granted while another has it for %v", i, time.Until(h.until)))
				}
			}
			live = append(live, trusted{c.Ref, sent.Add(g.Left)})
		}
	}
	return wrong
}

func storms(t *testing.T, outlive bool) (wrong []string) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) { wrong = append(wrong, clockStorm(t, seed, outlive)...) })
	}
	return wrong
}

func TestNoSettingOfTheWallClockGivesAKeyToTwo(t *testing.T) { assert.Empty(t, storms(t, false)) }

func TestALeaseThatOutlivesTheHostIsGrantedToNoOther(t *testing.T) { assert.Empty(t, storms(t, true)) }
