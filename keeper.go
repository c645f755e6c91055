package mongolock

import (
	"container/heap"
	"math/bits"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
)

// A keeper renews the leases of a client. Leases whose TTLs lie within a factor of two
// form a group with its own schedule and timer: a slow call for long leases must not
// cost the short ones theirs. Between renewals there is no goroutine.
type keeper struct {
	client *Client

	mu      sync.Mutex // protects what follows and every lease's slot; never held across a store call
	groups  [64]*group // by groupOf
	stopped bool
}

type group struct {
	keeper *keeper
	least  time.Duration // the shortest TTL that belongs to the group
	due    schedule
	timer  *time.Timer
	armed  monotonic.Moment // when the timer fires; zero if it does not
}

// A slot is the place of a lease in its group's schedule.
type slot struct {
	due   monotonic.Moment
	index int
}

const unscheduled = -1

func groupOf(ttl time.Duration) int { return bits.Len64(uint64(ttl)) } // 55 for a year

// add plans a renewal of l at due.
func (k *keeper) add(l *Lease, due monotonic.Moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped || l.slot.index != unscheduled {
		return
	}
	n := groupOf(l.terms.ttl)
	g := k.groups[n]
	if g == nil {
		g = &group{keeper: k, least: 1 << (n - 1)}
		k.groups[n] = g
	}
	l.slot.due = due
	heap.Push(&g.due, l)
	g.arm()
}

// remove forgets l. The timer stays as it is and may find nothing due.
func (k *keeper) remove(l *Lease) {
	k.mu.Lock()
	if l.slot.index != unscheduled {
		heap.Remove(&k.groups[groupOf(l.terms.ttl)].due, l.slot.index)
	}
	k.mu.Unlock()
}

// stop ends all timers for good.
func (k *keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	for _, g := range k.groups {
		if g != nil {
			g.timer.Stop()
		}
	}
}

// rearm sets all timers again, by the clock as it is now.
func (k *keeper) rearm() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.groups {
		if g != nil {
			g.armed = 0
			g.arm()
		}
	}
}

// arm sets the timer to the first renewal due, or leaves a sooner one. With keeper.mu held.
func (g *group) arm() {
	if len(g.due) == 0 || g.keeper.stopped {
		return
	}
	first := g.due[0].slot.due
	if g.armed != 0 && first >= g.armed {
		return
	}
	g.armed = first
	if g.timer == nil {
		g.timer = time.AfterFunc(g.keeper.client.clock.Until(first), g.round)
	} else {
		g.timer.Reset(g.keeper.client.clock.Until(first))
	}
}

// round renews all that is due within a sixth of the TTL, so that leases which were
// granted at about the same time are renewed together.
func (g *group) round() {
	c := g.keeper.client
	if !c.enter() {
		return
	}
	defer c.background.Done()
	due := g.take(c.clock.Now())
	for len(due) > batchSize {
		batch := due[:batchSize]
		due = due[batchSize:]
		if !c.spawn(func() { g.keeper.renew(batch) }) {
			g.keeper.renew(batch)
		}
	}
	g.keeper.renew(due)
}

// take removes from the schedule what is to be renewed now.
func (g *group) take(now monotonic.Moment) []*Lease {
	k := g.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	g.armed = 0
	var due []*Lease
	if len(g.due) > 0 && g.due[0].slot.due <= now {
		for len(g.due) > 0 && g.due[0].slot.due <= now.Add(g.least/6) {
			l := heap.Pop(&g.due).(*Lease)
			if mine, _ := l.beginRenewal(); mine {
				due = append(due, l)
			} // else it has ended, or another renewal is under way and will plan the next one
		}
	}
	g.arm()
	return due
}

// A schedule is a heap of leases, with the first that is due on top.
type schedule []*Lease

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].slot.due < s[j].slot.due }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].slot.index, s[j].slot.index = i, j
}

func (s *schedule) Push(x any) {
	l := x.(*Lease)
	l.slot.index = len(*s)
	*s = append(*s, l)
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	l := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	l.slot.index = unscheduled
	return l
}

// Progress tells that the work under the lease goes on. It matters to a lease with
// MaxStall, and costs no command. It does not bring back a lease that has ended.
func (l *Lease) Progress() {
	now := l.client.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stallAt != 0 && l.err == nil && !l.over(now) {
		l.stallAt = now.Add(l.terms.maxStall)
	}
}

// over reports whether the lease's time has passed. With l.mu held.
func (l *Lease) over(now monotonic.Moment) bool {
	return now >= l.ends().Add(knob.LateTimer)
}

// ends is when the lease ends, unless it is renewed or its work goes on. With l.mu held.
func (l *Lease) ends() monotonic.Moment {
	if l.stallAt != 0 {
		return min(l.deadline, l.stallAt)
	}
	return l.deadline
}

// expire runs when the deadline's timer fires. A renewal moves the deadline but not the
// timer, so expire looks at the deadline and sets the timer again.
func (l *Lease) expire() {
	now := l.client.clock.Now()
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	if !l.over(now) {
		if l.timer != nil { // else the first renewal sets it
			l.timer.Reset(l.ends().Sub(now) + knob.LateTimer)
		}
		l.mu.Unlock()
		return
	}
	cause := l.whyOver(now)
	l.mu.Unlock()
	l.end(cause)
}

// whyOver is the cause with which a lease ends whose deadline has passed. With l.mu held.
func (l *Lease) whyOver(now monotonic.Moment) error {
	switch {
	case l.stallAt != 0 && now >= l.stallAt && l.stallAt <= l.deadline:
		return ErrStalled
	case l.maxEnd != 0 && now >= l.maxEnd:
		return ErrMaxHold
	}
	return errNotRenewed
}
