package simulation

import (
	"cmp"
	"fmt"
	"time"
)

// A delivery is what becomes of one command.
type delivery struct {
	out   time.Duration // until the command arrives; negative: never
	stall time.Duration // how long its insert is held up
	back  time.Duration // until its reply is there; negative: never
	reset time.Duration // when the sender sees a broken connection; 0: never
	any   bool          // goes to whichever member is primary on arrival
}

func (f delivery) String() string {
	if f.stall+f.reset == 0 && f.out >= 0 && f.back >= 0 {
		return fmt.Sprintf("%d+%d", f.out, f.back)
	}
	return fmt.Sprintf("out %d stall %d back %d reset %d", f.out, f.stall, f.back, f.reset)
}

// deliver decides what becomes of a command. With w.mu held.
func (w *world) deliver(r *request, d *rng) delivery {
	x, now := &w.plan, w.since()
	f := delivery{out: d.between(50*time.Microsecond, x.maxTrip), back: d.between(50*time.Microsecond, x.maxTrip)}
	if x.noFaults || now > x.faultsEnd || r.client.id < 0 {
		return f
	}
	if t := w.trouble[r.client.id]; x.oneFault && (now > t.from && now < t.to || r.actor == "" || r.cmd.Name != "findAndModify") {
		return f
	}
	seen := func() time.Duration { // half of the losses are noticed at once, the others never
		return oneOf(d, 0, d.between(time.Millisecond, 50*time.Millisecond))
	}
	for _, p := range x.partitions {
		if p.client != r.client.id || now < p.from || now >= p.to {
			continue
		}
		w.fault("cut off")
		f.reset, f.out, f.back = seen(), -1, -1
		if p.delivered {
			f.out = p.to - now + d.between(time.Millisecond, 100*time.Millisecond)
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
	if last := w.trouble[r.client.id]; last.from == now { // of two in one instant either may be decided first
		t.to = max(t.to, last.to)
	}
	w.trouble[r.client.id] = t
	return f
}

// trouble returns how long a command's delivery is felt, if it is out of the ordinary.
func (r *request) trouble() (until time.Duration, is bool) {
	f := r.delivery
	lost := f.out < 0 || f.back < 0
	if !lost && f.stall == 0 && f.out+f.back <= 2*r.client.world.plan.maxTrip {
		return 0, false
	}
	until = max(f.out, 0) + f.stall + max(f.back, 0)
	if lost && f.reset == 0 { // until the caller's patience ends
		until = max(until, cmp.Or(r.cmd.Limit(), 10*time.Second))
	}
	return max(until, f.reset), true
}

// isCutOff reports whether a client is partitioned from the servers now. With w.mu held.
func (w *world) isCutOff(client int) bool {
	now := w.since()
	for _, p := range w.plan.partitions {
		if p.client == client && now >= p.from && now < p.to {
			return true
		}
	}
	return false
}
