package server

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const rho = 1e-3 // as in grown

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A world has a client's monotonic clock and a server's clock. The server's drifts
// against the client's by at most rho, and is stepped now and then. The client's stands
// still while its machine is suspended.
type world struct {
	r      *rand.Rand
	local  Moment
	server time.Time // to the nanosecond; what it tells is cut to the millisecond
}

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 0x6d6f6e676f))
	return &world{r: r, server: epoch.Add(time.Duration(r.Int64N(int64(time.Hour))))}
}

func (w *world) now() Moment { return w.local }

// pass lets d pass on the client's clock, at a drift that is drawn each time, often the
// worst.
func (w *world) pass(d time.Duration) {
	drift := (w.r.Float64()*2 - 1) * rho
	switch w.r.IntN(4) {
	case 0:
		drift = rho
	case 1:
		drift = -rho
	}
	w.local = w.local.Add(d)
	w.server = w.server.Add(d + time.Duration(float64(d)*drift))
}

func (w *world) suspend(d time.Duration) { w.server = w.server.Add(d) }

func (w *world) step(d time.Duration) { w.server = w.server.Add(d) }

func (w *world) some(most time.Duration) time.Duration {
	if w.r.IntN(3) == 0 {
		most /= 1000
	}
	return time.Duration(w.r.Int64N(int64(most) + 1))
}

// tell is a command that asks for the server's time. Both ways take up to trip.
func (w *world) tell(c *Clock, trip time.Duration) {
	sent := w.now()
	w.pass(w.some(trip))
	told := w.server.Truncate(Tick)
	w.pass(w.some(trip))
	c.Observe(told, sent, true)
}

const seeds = 5000

func TestTheServersTimeIsAlwaysInsideTheInterval(t *testing.T) {
	for seed := range uint64(seeds) {
		w := newWorld(seed)
		c := NewClock(w.now)
		if _, known := c.Read(); known {
			t.Fatal("a clock without a sample claims to know the server's time")
		}
		for range 6 {
			w.step(time.Duration(w.r.Int64N(int64(2*time.Hour))) - time.Hour)
			w.tell(c, 2*time.Second)
			for range 6 {
				w.pass(w.some(time.Hour))
				got, known := c.Read()
				if !known {
					t.Fatal("a clock with a sample knows nothing")
				}
				if got.Earliest.After(w.server) || got.Latest.Before(w.server) {
					t.Fatalf("seed %d: the server shows %v, outside [%v, %v]",
						seed, w.server, got.Earliest, got.Latest)
				}
			}
		}
	}
}

func TestControlAnIntervalWithoutDriftMissesTheServersTime(t *testing.T) {
	missed := 0
	for seed := range uint64(500) {
		w := newWorld(seed)
		c := NewClock(w.now)
		w.tell(c, 2*time.Millisecond)
		w.pass(9 * time.Second)
		got, _ := c.Read()
		narrow := got.Latest.Add(-got.drift)
		if narrow.Before(w.server) || got.Earliest.Add(9*time.Millisecond).After(w.server) {
			missed++
		}
	}
	assert.GreaterOrEqual(t, missed, 100, "of 500 worlds that show it")
}

func TestASuspendedClientNeverJudgesTooSoon(t *testing.T) {
	for seed := range uint64(seeds) {
		w := newWorld(seed)
		c := NewClock(w.now)
		w.tell(c, time.Second)
		w.pass(w.some(time.Minute))
		w.suspend(w.some(time.Hour))
		w.pass(w.some(time.Minute))
		if got, _ := c.Read(); got.Earliest.After(w.server) {
			t.Fatalf("seed %d: judged by %v while the server shows %v", seed, got.Earliest, w.server)
		}
	}
}

// claim plays a claim from its sending to its reply. It returns until when, on the
// client's clock, the holder trusts it, and the expiry that it wrote.
func (w *world) claim(c *Clock, ttl time.Duration, left func(sent Moment, until, server time.Time, r Reading) time.Duration) (deadline Moment, until time.Time) {
	sent := w.now()
	r, _ := c.Read()
	_, until = r.Expiry(ttl)
	if w.r.IntN(2) == 0 {
		w.suspend(w.some(20 * time.Minute)) // before the command leaves
	}
	w.pass(w.some(ttl))
	told := w.server.Truncate(Tick)
	d := left(sent, until, told, r)
	w.pass(w.some(ttl))
	c.Observe(told, sent, true)
	return sent.Add(d), until
}

// late returns by how much the server's clock is past until when the client's clock
// shows the deadline. If that is not positive, the server still honours the holder.
func (w *world) late(deadline Moment, until time.Time) time.Duration {
	if left := deadline.Sub(w.now()); left > 0 {
		w.pass(left)
		return w.server.Sub(until)
	}
	return -1 // it was over before the reply came
}

func TestNoDeadlineOutlastsTheServersPromise(t *testing.T) {
	useful := 0
	for seed := range uint64(seeds) {
		w := newWorld(seed)
		c := NewClock(w.now)
		w.tell(c, time.Second)
		for range 4 {
			w.pass(w.some(time.Hour)) // the sample grows old, and the client knows it
			if w.r.IntN(2) == 0 {
				w.suspend(w.some(20 * time.Minute)) // or does not
			}
			ttl := 100*time.Millisecond + w.some(time.Minute)
			deadline, until := w.claim(c, ttl, func(sent Moment, until, server time.Time, _ Reading) time.Duration {
				return Left(ttl, sent, sent, until, server)
			})
			if deadline.Sub(w.now()) > 0 {
				useful++
			}
			if late := w.late(deadline, until); late > 0 {
				t.Fatalf("seed %d: trusted for %v after the server gave it away (ttl %v)", seed, late, ttl)
			}
		}
	}
	assert.GreaterOrEqual(t, useful, seeds, "claims that were of use: with fewer the test shows little")
}

// A bulk of renewals is followed by one hello, which was sent later than the bulk.
func TestNoDeadlineFromALaterCommandOutlastsTheServersPromise(t *testing.T) {
	for seed := range uint64(seeds) {
		w := newWorld(seed)
		c := NewClock(w.now)
		w.tell(c, time.Second)
		w.pass(w.some(time.Hour))
		if w.r.IntN(2) == 0 {
			w.suspend(w.some(20 * time.Minute))
		}
		ttl := 100*time.Millisecond + w.some(time.Minute)
		sent := w.now()
		r, _ := c.Read()
		_, until := r.Expiry(ttl)
		w.pass(w.some(ttl / 2)) // the bulk
		drawn := w.now()
		if w.r.IntN(2) == 0 {
			w.suspend(w.some(ttl))
		}
		w.pass(w.some(ttl / 4))
		told := w.server.Truncate(Tick)
		deadline := sent.Add(Left(ttl, sent, drawn, until, told))
		w.pass(w.some(ttl / 4))
		if late := w.late(deadline, until); late > 0 {
			t.Fatalf("seed %d: trusted for %v after the server gave it away (ttl %v)", seed, late, ttl)
		}
	}
}

// A machine that was suspended does not know how old its sample is.
func TestControlADeadlineFromASampleBeforeTheClaimIsTooLate(t *testing.T) {
	caught := 0
	for seed := range uint64(500) {
		w := newWorld(seed)
		c := NewClock(w.now)
		w.tell(c, 2*time.Millisecond)
		w.suspend(10 * time.Minute)
		const ttl = 30 * time.Second
		deadline, until := w.claim(c, ttl, func(_ Moment, until, _ time.Time, r Reading) time.Duration {
			left := until.Sub(r.Latest)
			return left - grown(left)
		})
		if w.late(deadline, until) > 0 {
			caught++
		}
	}
	assert.GreaterOrEqual(t, caught, 100, "of 500 worlds that show it")
}

func TestControlADeadlineWithoutDriftIsTooLate(t *testing.T) {
	caught := 0
	for seed := range uint64(500) {
		w := newWorld(seed)
		c := NewClock(w.now)
		w.tell(c, 0)
		const ttl = time.Minute
		sent := w.now()
		r, _ := c.Read()
		_, until := r.Expiry(ttl)
		told := w.server.Truncate(Tick)
		if w.late(sent.Add(min(ttl, until.Sub(told)-Tick)), until) > 0 {
			caught++
		}
	}
	assert.GreaterOrEqual(t, caught, 50, "of 500 worlds that show it")
}

func TestAClaimOnAFreshSampleIsTrustedForNearlyItsTTL(t *testing.T) {
	w := newWorld(1)
	c := NewClock(w.now)
	w.tell(c, time.Millisecond)
	const ttl = 30 * time.Second
	sent := w.now()
	r, _ := c.Read()
	since, until := r.Expiry(ttl)
	assert.Equal(t, ttl, until.Sub(since))
	left := Left(ttl, sent, sent, until, w.server.Truncate(Tick))
	assert.LessOrEqual(t, left, ttl)
	assert.GreaterOrEqual(t, left, ttl-40*time.Millisecond)
}

func TestExpiryIsRoundedUpAndDriftAddsLittle(t *testing.T) {
	at := epoch.Add(1234567 * time.Nanosecond)
	for age, most := range map[time.Duration]time.Duration{
		time.Second:    2*Tick + 1*time.Millisecond,
		time.Hour:      2*Tick + 100*time.Millisecond,
		24 * time.Hour: 2*Tick + 100*time.Millisecond,
	} {
		var local Moment
		c := NewClock(func() Moment { return local })
		c.Observe(at, 0, true)
		local = local.Add(age)
		r, _ := c.Read()
		const ttl = 2 * time.Second
		since, until := r.Expiry(ttl)
		over := since.Sub(at.Add(age))
		assert.GreaterOrEqual(t, over, time.Duration(0), "after %v: begins before the server's time", age)
		assert.LessOrEqual(t, over, most, "after %v: begins too long after the server's time", age)
		for name, e := range map[string]time.Time{"since": since, "until": until, "earliest": r.Earliest} {
			assert.Equal(t, e.Truncate(Tick), e, "after %v: %s is not a whole millisecond", age, name)
		}
	}
}

func TestAnOldSampleJudgesAsIfNoTimeHadPassed(t *testing.T) {
	var local Moment
	c := NewClock(func() Moment { return local })
	c.Observe(epoch, 0, true)
	local = Moment(Fresh)
	r, _ := c.Read()
	assert.True(t, r.Fresh)
	assert.True(t, r.Earliest.After(epoch), "at %v: earliest %v", Fresh, r.Earliest)
	local++
	r, _ = c.Read()
	assert.False(t, r.Fresh)
	assert.Equal(t, epoch, r.Earliest, "past %v it is the sample's own", Fresh)
}

func TestAnotherMachinesClockWritesExpiriesButJudgesNoHolder(t *testing.T) {
	var local Moment
	c := NewClock(func() Moment { return local })
	c.Observe(epoch.Add(time.Hour), 0, false)
	r, known := c.Read()
	require.True(t, known)
	assert.Zero(t, r.Earliest, "a router's clock judges")
	assert.False(t, r.Fresh, "a router's clock judges")
	assert.False(t, r.Latest.Before(epoch.Add(time.Hour)), "a router's clock does not write: %v", r.Latest)
	c.Observe(epoch, 0, true)
	c.Observe(epoch.Add(time.Hour), 0, false)
	r, _ = c.Read()
	assert.Equal(t, epoch, r.Earliest, "a router's clock replaced that of the machine with the documents")
}

func TestTheNewestSampleReplacesTheOldOne(t *testing.T) {
	local := Moment(time.Second)
	c := NewClock(func() Moment { return local })
	c.Observe(epoch.Add(time.Hour), local, true)
	local = local.Add(time.Second)
	c.Observe(epoch, local, true) // the server's clock was set back
	r, _ := c.Read()
	assert.False(t, r.Latest.After(epoch.Add(time.Second)), "still by the old sample: %v", r.Latest)
	c.Observe(epoch.Add(time.Minute), local.Add(-time.Second), true) // an older command's late reply
	r, _ = c.Read()
	assert.False(t, r.Latest.After(epoch.Add(time.Second)), "by the late reply: %v", r.Latest)
}
