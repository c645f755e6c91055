package simulation

import (
	"fmt"
	"time"
)

// A faultPlan is what a seed makes go wrong.
type faultPlan struct {
	noFaults   bool // only delays
	oneFault   bool // only one kind of fault, of messages, and rarely
	retries    bool // the driver's retryWrites
	ttl        time.Duration
	margin     time.Duration
	maxTrip    time.Duration // how long a message takes at most, if nothing goes wrong with it
	faultsEnd  time.Duration // when the last fault begins
	clockSkew  time.Duration // by how much a clock may be ahead of what was judged by it
	clockDrift int64         // how many millionths the servers' clocks run fast

	servers     string        // their kind
	apart       bool          // the members' clocks are far apart, and each has a drift of its own
	clocksApart time.Duration // by how much they differ at most
	ahead       time.Duration // by how much the clocks of the second shard are, more than that
	forward     bool          // a primary's clock may go forward far
	migrations  []migration
	elections   bool // many, around one key
	asking      bool // the key is held for long, and asked for again and again
	crowd       bool // many processes wait for one key, for long
	rolling     bool // all take permits of several numbers
	mixed       bool // the options of most calls are a mixture
	permits     int  // of the key that has some
	deaths      bool // some die, and nothing else goes wrong
	dying       bool // again and again
	loop        bool // likewise, always the newest, as in a crash loop
	allHear     bool // all hear notices

	lost, unanswered, late, slow, stalled int // of a thousand commands each

	partitions  []partition
	failovers   []failover
	clockSteps  []clockStep
	suspensions []suspension
}

// A partition keeps a client from the servers for a while.
type partition struct {
	client    int
	from, to  time.Duration
	delivered bool // what was sent meanwhile arrives when it is over
}

// A failover hits the primary.
type failover struct {
	at       time.Duration
	kind     string
	election time.Duration // until there is a primary again
	isolated time.Duration // how long the old primary goes on without knowing
	stepped  bool          // the clock of the next primary is set as it is elected
	offset   time.Duration // to this
}

const (
	stepDown  = "steps down"
	restart   = "restarts"
	cutOff    = "is cut off"
	neverEnds = 1 << 62
)

// A clockStep sets a member's clock.
type clockStep struct {
	at     time.Duration
	member int
	offset time.Duration
}

// A suspension stops a client's monotonic clock, as a suspended machine does.
type suspension struct {
	at     time.Duration
	client int
	long   time.Duration
}

// A span is from when until when.
type span struct{ from, to time.Duration }

// makePlan makes the plan of a seed under some settings.
func (w *world) makePlan(s Settings) faultPlan {
	x := w.weather()
	x.choose(w, s)
	x.rolling = s.Rolling
	x.mixed, x.permits = s.Rolling || w.rng("mixture").chance(s.Mixed), 2
	if x.mixed && w.rng("permits").chance(500) {
		x.permits = 5
	}
	if d := w.rng("crowd"); d.chance(s.Crowd) {
		x.gather(d)
	}
	if d := w.rng("dying"); d.chance(s.Dying) {
		x.mourn(d)
	}
	s.apply(&x)
	return x
}

// gather makes a crowd of the clients. Most often some of them die, and nothing else goes wrong: then
// it is known how long the others may wait for them.
func (x *faultPlan) gather(d *rng) {
	if x.crowd = true; !d.chance(300) {
		x.gatherMortals(d)
	}
}

// gatherMortals makes a crowd, of which some die, and nothing else goes wrong.
func (x *faultPlan) gatherMortals(d *rng) {
	*x = faultPlan{
		crowd: true, deaths: true, noFaults: true, retries: x.retries, servers: x.servers, mixed: x.mixed, rolling: x.rolling, permits: x.permits,
		ttl: x.ttl, margin: x.margin, maxTrip: x.maxTrip, clockDrift: x.clockDrift, faultsEnd: d.between(30*time.Second, time.Minute),
	}
}

func (w *world) weather() faultPlan {
	d := w.rng("weather")
	x := faultPlan{
		noFaults:   d.chance(200),
		retries:    !d.chance(300),
		ttl:        oneOf(d, time.Second, 2*time.Second, 5*time.Second, 30*time.Second),
		clockDrift: int64(d.n(1001)) - 500,
	}
	x.margin = min(time.Second, x.ttl/10)
	x.faultsEnd = d.between(8*time.Second, 30*time.Second)
	x.maxTrip = oneOf(d, time.Millisecond, 3*time.Millisecond, 10*time.Millisecond, 40*time.Millisecond)
	if x.noFaults {
		return x
	}
	x.clockSkew = x.margin / 2
	x.oneFault = d.chance(400)
	if x.oneFault { // so that what follows from it can be seen
		*oneOf(d, &x.lost, &x.unanswered, &x.late, &x.late, &x.slow, &x.stalled) = 250
		if x.late > 0 && d.chance(600) { // late commands arrive after their caller gave up, and before they expire
			x.ttl = 30 * time.Second
		}
		x.margin = min(time.Second, x.ttl/10)
		x.clockSkew, x.faultsEnd = x.margin/2, 2*x.faultsEnd
		return x
	}
	const most = 80
	x.lost, x.unanswered, x.late = d.n(most), d.n(most), d.n(most)
	x.slow, x.stalled = d.n(most), d.n(most)
	for i := range d.n(4) {
		x.partitions = append(x.partitions, x.partition(d, i))
	}
	for at := d.between(time.Second, x.faultsEnd/2); d.chance(600) && at < x.faultsEnd; at += d.between(2*time.Second, 8*time.Second) {
		f := failover{at: at, kind: oneOf(d, stepDown, restart, cutOff), election: d.between(50*time.Millisecond, 2*time.Second)}
		if f.kind == cutOff {
			f.isolated = d.between(f.election, f.election+3*time.Second)
		}
		x.failovers = append(x.failovers, f)
	}
	for range d.n(4) {
		x.clockSteps = append(x.clockSteps, clockStep{at: d.between(0, x.faultsEnd), member: d.n(3), offset: d.between(0, x.clockSkew) - x.clockSkew/2})
	}
	for i := range d.n(4) {
		x.suspensions = append(x.suspensions, suspension{at: d.between(time.Second, x.faultsEnd), client: i, long: d.between(x.ttl/2, 20*time.Second)})
	}
	return x
}

func (x *faultPlan) partition(d *rng, i int) partition {
	from := d.between(0, x.faultsEnd)
	return partition{client: i, from: from, to: min(from+d.between(x.ttl/4, 2*x.ttl), x.faultsEnd), delivered: d.chance(500)}
}

func (x *faultPlan) String() string {
	return fmt.Sprintf("%s apart=%v ahead=%v noFaults=%t retries=%t ttl=%v faultsEnd=%v clockDrift=%d lost=%d unanswered=%d late=%d slow=%d stalled=%d crowd=%t mixed=%t deaths=%t dying=%t loop=%t partitions=%v failovers=%v clockSteps=%v suspensions=%v",
		x.servers, x.clocksApart, x.ahead, x.noFaults, x.retries, x.ttl, x.faultsEnd, x.clockDrift, x.lost, x.unanswered, x.late, x.slow, x.stalled, x.crowd, x.mixed, x.deaths, x.dying, x.loop, x.partitions, x.failovers, x.clockSteps, x.suspensions)
}
