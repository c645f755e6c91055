// Package mongoclock keeps a server's clock as an interval on the local
// monotonic one (docs/design.md §4, "Time"). No wall clock takes part, and two
// machines' clocks are never compared: a server's time is known only by how long
// ago, at least and at most, it was drawn.
//
// A sample is a time s that the server drew for a command sent at t0 and answered
// at t1. It was drawn somewhere between the two, and cut to the millisecond, so at
// a local moment t the server's clock lies in
//
//	[ s + (t−t1)(1−ρ),  s + 1 ms + (t−t0)(1+ρ) ]
//
// where ρ bounds how much faster or slower the one clock runs than the other.
// The lower end judges (who has surely run out), the upper end writes (until when
// a holder is honoured). Neither is trusted for a deadline: a machine that was
// suspended does not know how old its sample is. That rests on a server time
// drawn after the claim was sent: see [Left].
package mongoclock

import (
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
)

const (
	// Rho bounds the relative drift between this machine's monotonic clock and the
	// server's: 1,000 ppm, ten times what a clock that NTP slews at most does.
	Rho = 1e-3

	// Fresh is the age up to which a sample judges by the time that passed since.
	// An older one judges as if none had: what it says has run out surely has.
	Fresh = 10 * time.Second

	// Tick is the resolution of a server's times.
	Tick = time.Millisecond

	// slackPart bounds by how much drift may lengthen what is written: a twentieth
	// of the TTL. See Expiry.
	slackPart = 20
)

// A Moment is a point of the local monotonic clock.
type Moment = monotonic.Moment

// Monotonic makes a clock of this process, and returns how to read it.
func Monotonic() func() Moment {
	clock := monotonic.New()
	if slept := knob.Sleeper(); slept != nil {
		return func() Moment { return clock.Now().Add(-slept()) }
	}
	return clock.Now
}

// A sample is a server time and the local moments around its drawing.
type sample struct {
	server time.Time
	sent   Moment
	got    Moment
	judges bool
}

// A Clock is what is known of one server's clock. Safe for concurrent use.
type Clock struct {
	now func() Moment

	mu    sync.Mutex // protects the rest
	last  sample
	known bool
}

// New makes a Clock that knows nothing yet, on the given monotonic clock.
func New(now func() Moment) *Clock { return &Clock{now: now} }

// Now is the local moment.
func (c *Clock) Now() Moment { return c.now() }

// Observe takes a server time drawn by a command sent at sent, whose answer is
// here now. The newest sample replaces the old one: the server's clock may have
// been stepped in between, and only the newest knows.
func (c *Clock) Observe(server time.Time, sent Moment) {
	c.observe(sample{server: server, sent: sent, got: c.now(), judges: true})
}

// ObserveForWriting takes the clock of another machine than the one that keeps
// the documents, as a mongos tells it: good enough for what is written, because
// deadlines do not rest on it, and no judge of anybody's expiry. It replaces no
// sample of the right machine.
func (c *Clock) ObserveForWriting(server time.Time, sent Moment) {
	c.mu.Lock()
	judged := c.known && c.last.judges
	c.mu.Unlock()
	if !judged {
		c.observe(sample{server: server, sent: sent, got: c.now()})
	}
}

func (c *Clock) observe(s sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Of two replies under way at once the later drawn is not known; the later
	// sent is, and cannot be the staler by more than the other's trip.
	if c.known && c.last.judges && s.sent < c.last.sent {
		return
	}
	c.last, c.known = s, true
}

// A Reading is the server's clock at one local moment.
type Reading struct {
	At       Moment
	Earliest time.Time // what is not after it has surely passed; zero if nobody may be judged
	Latest   time.Time // the server's clock shows no more than this
	Fresh    bool      // Earliest moves with the local clock

	// For what waits long and asks seldom (package schedule): the likeliest time, on
	// which nothing may rest but a timer, and the lower end however old the sample is,
	// its drift taken off. Lowest is zero where nobody may be judged.
	Likely time.Time
	Lowest time.Time
	Age    time.Duration // of the sample

	drift time.Duration // how much of Latest is drift
}

// Read is the server's clock now. It is not known before the first sample.
func (c *Clock) Read() (Reading, bool) {
	t := c.now()
	c.mu.Lock()
	s, known := c.last, c.known
	c.mu.Unlock()
	if !known {
		return Reading{At: t}, false
	}
	age := t.Sub(s.sent)
	r := Reading{At: t, Fresh: age <= Fresh, drift: grown(age)}
	r.Latest = s.server.Add(Tick + age + r.drift)
	r.Age = age
	r.Likely = s.server.Add(t.Sub(s.sent) - s.got.Sub(s.sent)/2)
	if s.judges {
		r.Lowest = Floor(s.server.Add(max(0, t.Sub(s.got)-grown(t.Sub(s.got)))))
		r.Earliest = s.server
		if since := t.Sub(s.got); r.Fresh && since > 0 {
			r.Earliest = s.server.Add(since - grown(since))
		}
		r.Earliest = Floor(r.Earliest)
	}
	r.Fresh = r.Fresh && s.judges
	return r, true
}

// Expiry is the time to write for a holder that begins now and is to last ttl,
// and the one at which it begins; both rounded up.
//
// They rest on the upper end of the interval, but drift adds at most a twentieth
// of the TTL: after an idle day it would be a minute and a half, by which a holder
// that crashed would keep the key too long. Too short an expiry harms nobody
// either: Left, not this, says what the holder may trust.
func (r Reading) Expiry(ttl time.Duration) (since, until time.Time) {
	since = r.Latest
	if most := ttl / slackPart; r.drift > most {
		since = since.Add(most - r.drift)
	}
	since = Ceil(since)
	return since, Ceil(since.Add(ttl))
}

// Left is how long after the local moment sent a holder may be trusted that was
// written with this expiry by a claim sent then, if at drawn the server's clock
// showed server, for a command that was not sent before drawn. drawn must not lie
// before sent.
//
// The server honours the holder until its clock shows until. It showed less than
// server + 1 ms at some moment not before drawn, so of until − server − 1 ms at
// most ρ is lost to drift. A sample from before the claim will not do: the machine
// may have been suspended since, and its own clock with it.
func Left(ttl time.Duration, sent, drawn Moment, until, server time.Time) time.Duration {
	left := min(ttl, drawn.Sub(sent)+until.Sub(server)-Tick)
	if left <= 0 {
		return 0
	}
	return left - grown(left)
}

// grown is d·ρ, rounded up. (Without it one could come out a nanosecond short.)
func grown(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return (d + 999) / 1000
}

// Floor is t rounded down to what a server's time can show.
func Floor(t time.Time) time.Time { return t.Truncate(Tick) }

// Ceil is t rounded up to what a server's time can show.
func Ceil(t time.Time) time.Time {
	if down := Floor(t); !down.Equal(t) {
		return down.Add(Tick)
	}
	return t
}
