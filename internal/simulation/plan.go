package simulation

import (
	"fmt"
	"time"
)

// A weather is what a seed makes go wrong.
type weather struct {
	calm    bool // only delays
	gentle  bool // only messages go wrong, and few of them
	retries bool // the driver's retryWrites
	ttl     time.Duration
	margin  time.Duration
	trip    time.Duration // a message takes at most so long, as a rule
	storm   time.Duration // faults stop after so long
	spread  time.Duration // by how much the members' clocks differ at most
	rate    int64         // how many millionths the servers' clocks run fast

	lost, unanswered, late, slow, stalled int // of a thousand commands each

	cuts    []cut
	strokes []stroke
	steps   []step
	naps    []nap
}

// A cut keeps a client from the servers for a while.
type cut struct {
	client    int
	from, to  time.Duration
	delivered bool // what was sent meanwhile arrives when it is over
}

// A stroke hits the primary.
type stroke struct {
	at   time.Duration
	kind string
	down time.Duration // until there is another, or itself again
	last time.Duration // how long it goes on as if nothing had happened
}

const (
	stepDown  = "steps down"
	restart   = "restarts"
	cutOff    = "is cut off"
	neverEnds = 1 << 62
)

// A step sets a member's clock.
type step struct {
	at     time.Duration
	member int
	offset time.Duration
}

// A span is from when until when.
type span struct{ from, to time.Duration }

// A nap is a client's machine suspended: its monotonic clock stands still.
type nap struct {
	at     time.Duration
	client int
	long   time.Duration
}

func (w *world) forecast() weather {
	d := w.dice("weather")
	x := weather{
		calm:    d.chance(200),
		retries: !d.chance(300),
		ttl:     oneOf(d, time.Second, 2*time.Second, 5*time.Second, 30*time.Second),
		rate:    int64(d.n(1001)) - 500,
	}
	x.margin = min(time.Second, x.ttl/10)
	x.storm = d.between(8*time.Second, 30*time.Second)
	x.trip = oneOf(d, time.Millisecond, 3*time.Millisecond, 10*time.Millisecond, 40*time.Millisecond)
	if x.calm {
		return x
	}
	x.spread = x.margin / 2
	x.gentle = d.chance(400)
	if x.gentle { // one thing at a time, so that what follows from it can be seen
		*oneOf(d, &x.lost, &x.unanswered, &x.late, &x.late, &x.slow, &x.stalled) = 250
		if x.late > 0 && d.chance(600) { // what comes after its caller gave up, and before it has run out
			x.ttl = 30 * time.Second
		}
		x.margin = min(time.Second, x.ttl/10)
		x.spread, x.storm = x.margin/2, 2*x.storm
		return x
	}
	const most = 80
	x.lost, x.unanswered, x.late = d.n(most), d.n(most), d.n(most)
	x.slow, x.stalled = d.n(most), d.n(most)
	for i := range d.n(4) {
		x.cuts = append(x.cuts, x.cut(d, i))
	}
	for at := d.between(time.Second, x.storm/2); d.chance(600) && at < x.storm; at += d.between(2*time.Second, 8*time.Second) {
		s := stroke{at: at, kind: oneOf(d, stepDown, restart, cutOff), down: d.between(50*time.Millisecond, 2*time.Second)}
		if s.kind == cutOff {
			s.last = d.between(s.down, s.down+3*time.Second)
		}
		x.strokes = append(x.strokes, s)
	}
	for range d.n(4) {
		x.steps = append(x.steps, step{at: d.between(0, x.storm), member: d.n(3), offset: d.between(0, x.spread) - x.spread/2})
	}
	for i := range d.n(4) {
		x.naps = append(x.naps, nap{at: d.between(time.Second, x.storm), client: i, long: d.between(x.ttl/2, 20*time.Second)})
	}
	return x
}

func (x *weather) cut(d *dice, i int) cut {
	from := d.between(0, x.storm)
	return cut{client: i, from: from, to: min(from+d.between(x.ttl/4, 2*x.ttl), x.storm), delivered: d.chance(500)}
}

func (x *weather) String() string {
	return fmt.Sprintf("calm=%t retries=%t ttl=%v storm=%v rate=%d lost=%d unanswered=%d late=%d slow=%d stalled=%d cuts=%v strokes=%v steps=%v naps=%v",
		x.calm, x.retries, x.ttl, x.storm, x.rate, x.lost, x.unanswered, x.late, x.slow, x.stalled, x.cuts, x.strokes, x.steps, x.naps)
}

// A fate is what becomes of one command.
type fate struct {
	out   time.Duration // until it arrives; negative: never
	stall time.Duration // how long its insert is held up
	back  time.Duration // until its answer is there; negative: never
	reset time.Duration // when the sender sees a broken connection; 0: never
	any   bool          // comes to whoever is primary then
}

// fate decides. With w.mu held.
func (w *world) fate(r *request, d *dice) fate {
	x, now := &w.weather, w.since()
	f := fate{out: d.between(50*time.Microsecond, x.trip), back: d.between(50*time.Microsecond, x.trip)}
	if x.calm || now > x.storm {
		return f
	}
	if t := w.trouble[r.client.id]; x.gentle && (now > t.from && now < t.to || r.actor == "" || r.cmd.Name != "findAndModify") {
		return f
	}
	seen := func() time.Duration { // half of the losses show at once, the others never do
		return oneOf(d, 0, d.between(time.Millisecond, 50*time.Millisecond))
	}
	for _, c := range x.cuts {
		if c.client != r.client.id || now < c.from || now >= c.to {
			continue
		}
		w.fault("cut off")
		f.reset, f.out, f.back = seen(), -1, -1
		if c.delivered {
			f.out = c.to - now + d.between(time.Millisecond, 100*time.Millisecond)
		}
		return f
	}
	roll := d.n(1000)
	next := func(part int) bool { roll -= part; return roll < 0 }
	switch {
	case next(x.lost):
		w.fault("command lost")
		f.out, f.reset = -1, seen()
	case next(x.unanswered):
		w.fault("reply lost")
		f.back, f.reset = -1, seen()
	case next(x.late):
		w.fault("applied late")
		f.back, f.reset = -1, oneOf(d, seen(), d.between(time.Second, 2*time.Second))
		f.out, f.any = d.between(5*time.Millisecond, oneOf(d, x.ttl/2, x.ttl, 3*x.ttl)), d.chance(500)
	case next(x.slow):
		w.fault("slow")
		if d.chance(500) {
			f.out = d.between(time.Millisecond, x.ttl)
		} else {
			f.back = d.between(time.Millisecond, x.ttl)
		}
	case next(x.stalled):
		f.stall = d.between(time.Millisecond, 2*x.ttl)
	default:
		return f
	}
	t := span{now, now + max(f.out, 0) + f.stall + max(f.back, 0) + f.reset + 3*time.Second}
	if last := w.trouble[r.client.id]; last.from == now { // either of them may be first
		t.to = max(t.to, last.to)
	}
	w.trouble[r.client.id] = t
	return f
}

// isCut reports whether a client hears nothing now. With w.mu held.
func (w *world) isCut(client int) bool {
	now := w.since()
	for _, c := range w.weather.cuts {
		if c.client == client && now >= c.from && now < c.to {
			return true
		}
	}
	return false
}
