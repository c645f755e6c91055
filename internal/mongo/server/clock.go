package server

import (
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

const (
	// Fresh is the age up to which a sample judges with the time that has passed since
	// it was drawn. An older one judges as if no time had passed: what has run out by
	// that count surely has.
	Fresh = 10 * time.Second

	// Tick is the resolution of a server's times.
	Tick = time.Millisecond

	// slackPart bounds how much drift may add to a written expiry: a twentieth of the
	// TTL. See Expiry.
	slackPart = 20
)

// A Moment is a point of the local monotonic clock.
type Moment = monotonic.Moment

// Monotonic makes a monotonic clock, and returns the function that reads it.
func Monotonic() func() Moment {
	return monotonic.New().Now
}

// A sample is a server time and the local moments between which it was drawn.
type sample struct {
	server time.Time
	sent   Moment
	got    Moment
	judges bool
}

// A Clock holds what is known of one server's clock, as an interval on the local monotonic clock
// (docs/internals/design.md §4.3). No wall clock takes part, and two machines' clocks are never
// compared. A server's time is known only by how long ago, at least and at most, the server drew it.
//
// From a sample (a time, when the command that drew it was sent, and when it was answered) follows
// between which two times the server's clock lies at a local moment. The lower end judges which
// holders have surely run out. The upper end is written: until when a holder is honoured. No
// deadline rests on either end, because a machine that was suspended does not know how old its
// sample is. A deadline rests on a server time that was drawn after the claim was sent: see [Left].
//
// It is safe for concurrent use.
type Clock struct {
	now func() Moment

	mu    sync.Mutex // protects the rest
	last  sample
	known bool
}

// NewClock makes a Clock without a sample, on the given monotonic clock.
func NewClock(now func() Moment) *Clock { return &Clock{now: now} }

func (c *Clock) Now() Moment { return c.now() }

// Observe takes a sample: a server time drawn for a command that was sent at sent and is answered now.
// The newest sample replaces the old one, because the server's clock may have been stepped in between.
//
// A sample that does not judge is of another machine's clock than that of the one that keeps the
// documents, as a mongos tells it. It is good enough to write an expiry with, because no deadline rests
// on that. It never judges whether a holder is over, and it never replaces one that does.
func (c *Clock) Observe(server time.Time, sent Moment, judges bool) {
	s := sample{server: server, sent: sent, got: c.now(), judges: judges}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Of two commands under way at once it is not known which server time was drawn later. The
	// one sent later is staler by at most the other's round trip.
	if c.known && c.last.judges && (!judges || s.sent < c.last.sent) {
		return
	}
	c.last, c.known = s, true
}

// Jumped reports whether a server time that was drawn for a command sent at sent, and is
// answered now, lies outside of what the sample at hand allows, by more than by: the server's
// clock was stepped, or it is another machine's.
func (c *Clock) Jumped(server time.Time, sent Moment, by time.Duration) bool {
	r, known := c.Read()
	return known && r.from.judges && sent >= r.from.sent && !r.Allows(server, sent, r.At, by)
}

// Still returns how long a rival must have seen a holder with that TTL unchanged, by the
// rival's clock, for the trust of the holder to be over by the holder's clock: the TTL, and the
// drift of both.
func Still(ttl time.Duration) time.Duration { return ttl + 2*grown(ttl) + Tick }

// A Reading is the server's clock at one local moment.
type Reading struct {
	At       Moment
	Earliest time.Time // a time that is not after it has surely passed; zero: nothing may be judged
	Latest   time.Time // the server's clock shows no more than this
	Fresh    bool      // Earliest moves with the local clock

	// For code that waits long and asks seldom (package schedule): the likeliest time, which
	// only timers may go by, and the lower end, less the drift, however old the sample is.
	// Lowest is zero if nothing may be judged.
	Likely time.Time
	Lowest time.Time
	Age    time.Duration // of the sample

	drift time.Duration // how much of Latest is drift
	from  sample
}

// Allows reports whether a server time, drawn for a command that was sent at sent and
// answered at got, may be of the clock that was read: it lies in what the sample allows, or
// outside by no more than by.
func (r Reading) Allows(server time.Time, sent, got Moment, by time.Duration) bool {
	s := r.from
	if !s.judges {
		return true
	}
	least, most := sent.Sub(s.got), got.Sub(s.sent)
	return !server.Before(s.server.Add(least-grown(least)-by)) && !server.After(s.server.Add(Tick+most+grown(most)+by))
}

// Read returns the server's clock now; false before the first sample.
func (c *Clock) Read() (Reading, bool) {
	t := c.now()
	c.mu.Lock()
	s, known := c.last, c.known
	c.mu.Unlock()
	if !known {
		return Reading{At: t}, false
	}
	age := t.Sub(s.sent)
	r := Reading{At: t, Fresh: age <= Fresh, drift: grown(age), from: s}
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

// Expiry returns the times to write for a holder that begins now and lasts ttl: when it begins
// and when it ends, both rounded up.
//
// They rest on the upper end of the interval, but drift adds at most a twentieth of the TTL.
// After an idle day it would add a minute and a half, and a holder that crashed would keep its
// key for that much longer. An expiry that is too short does no harm: Left tells how long a
// holder may be trusted.
func (r Reading) Expiry(ttl time.Duration) (since, until time.Time) {
	since = r.Latest
	if most := ttl / slackPart; r.drift > most {
		since = since.Add(most - r.drift)
	}
	since = Ceil(since)
	return since, Ceil(since.Add(ttl))
}

// Left returns how long a holder may be trusted, counted from the local moment sent, at which
// the claim was sent that wrote it with the expiry until. server is the server's time in the
// reply to a command that was sent at drawn, which must not be before sent.
//
// The server honours the holder until its clock shows until. At some moment not before drawn
// that clock showed less than server + 1 ms. So drift takes at most the part ρ of until −
// server − 1 ms. A sample from before the claim will not do: the machine may have been
// suspended since, and its own clock with it.
func Left(ttl time.Duration, sent, drawn Moment, until, server time.Time) time.Duration {
	left := min(ttl, drawn.Sub(sent)+until.Sub(server)-Tick)
	if left <= 0 {
		return 0
	}
	return left - grown(left)
}

// grown returns d·ρ, rounded up: rounded down it could be a nanosecond short. ρ bounds the relative
// drift between this machine's monotonic clock and the server's: 1,000 ppm, ten times as much as
// NTP slews a clock at most.
func grown(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return (d + 999) / 1000
}

// Floor returns t rounded down to a whole Tick.
func Floor(t time.Time) time.Time { return t.Truncate(Tick) }

// Ceil returns t rounded up to a whole Tick.
func Ceil(t time.Time) time.Time {
	if down := Floor(t); !down.Equal(t) {
		return down.Add(Tick)
	}
	return t
}
