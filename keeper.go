package mongolock

import (
	"container/heap"
	"math/bits"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
)

// A keeper renews the leases of a client. Leases whose TTLs lie within a factor of two form a
// group with its own schedule and timer: a slow call for leases with long TTLs must not delay
// those with short ones. Between renewals there is no goroutine.
type keeper struct {
	client *Client

	mu      sync.Mutex // protects what follows and every lease's slot; never held across a store call
	groups  [64]*group // by groupOf
	pace    pace
	stopped bool
}

type group struct {
	keeper *keeper
	least  time.Duration // the shortest TTL that belongs to the group
	due    schedule
	timer  *time.Timer
	armed  monotonic.Moment // when the timer fires; zero if it does not
	busy   bool             // a round is under way, and arms the timer when it ends
}

// A slot is the place of a lease in its group's schedule.
type slot struct {
	due   monotonic.Moment
	index int
}

const unscheduled = -1

// groupOf returns the index of a lease's group; it is 55 for a TTL of a year. Sessions have a
// group of their own: they must not wait behind the leases that have yet to come under them.
func groupOf(l *Lease) int {
	if l.isSession() {
		return 0
	}
	return bits.Len64(uint64(l.terms.ttl))
}

// add plans a renewal of l at due.
func (k *keeper) add(l *Lease, due monotonic.Moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped || l.slot.index != unscheduled {
		return
	}
	n := groupOf(l)
	g := k.groups[n]
	if g == nil {
		g = &group{keeper: k, least: 1 << (bits.Len64(uint64(l.terms.ttl)) - 1)}
		k.groups[n] = g
	}
	l.slot.due = due
	heap.Push(&g.due, l)
	g.arm()
}

// remove takes l out of the schedule, and returns when it was due. The timer stays set and may
// find nothing due.
func (k *keeper) remove(l *Lease) monotonic.Moment {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.slot.index != unscheduled {
		heap.Remove(&k.groups[groupOf(l)].due, l.slot.index)
	}
	return l.slot.due
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

// rearm sets all timers again, by the clock's present reading.
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

// arm sets the timer to the first renewal due, or leaves it if it fires sooner. Call it with
// keeper.mu held.
func (g *group) arm() {
	if len(g.due) == 0 || g.keeper.stopped || g.busy {
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

// round renews all leases that are due within a sixth of the TTL, so that leases which were
// granted at about the same time are renewed together. Each bulk is sent after the last one was
// answered or given up: so a slow server does not spend its time on renewals that are no longer
// waited for.
func (g *group) round() {
	c := g.keeper.client
	if !c.enter() {
		return
	}
	defer c.background.Done()
	now := c.clock.Now()
	soon, bound := now.Add(g.least/6), g.least/10
	for due := now; ; due = soon {
		if g != g.keeper.groups[0] { // the session's group
			c.giveWay()
		}
		batch, more := g.take(due, soon, bound/4)
		if !more {
			g.keeper.renew(batch)
			return
		}
		answered := make(chan struct{})
		if !c.spawn(func() {
			tell := g.keeper.send(batch)
			close(answered)
			tell()
		}) {
			g.keeper.renew(batch)
			continue
		}
		timer := time.NewTimer(bound)
		select {
		case <-answered:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take removes from the schedule the leases that one bulk renews: those due soon if the first
// is due, and as many as the store is likely to answer in time. It reports whether there are
// more.
func (g *group) take(due, soon monotonic.Moment, in time.Duration) (batch []*Lease, more bool) {
	k := g.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	g.armed = 0
	if len(g.due) > 0 && g.due[0].slot.due <= due {
		size := k.pace.bulk(in)
		if g.due[0].isSession() { // its renewal is a call of its own
			size = 1
		}
		for len(g.due) > 0 && g.due[0].slot.due <= soon && len(batch) < size {
			l := heap.Pop(&g.due).(*Lease)
			if mine, _ := l.beginRenewal(); mine {
				batch = append(batch, l)
			} // otherwise the lease has ended, or another renewal is under way and will plan the next one
		}
		more = len(g.due) > 0 && g.due[0].slot.due <= soon
	}
	g.busy = more
	g.arm()
	return batch, more
}

const (
	firstBulk = 128 // leases that are renewed together while the store's pace is unknown
	leastBulk = 32
)

// A pace is the time that the store has lately taken for each lease of a bulk. If the store
// does not answer a bulk in time, its leases lose an attempt, and the store did that work for
// nothing.
type pace struct{ each time.Duration }

// bulk returns how many leases are likely to be renewed in that time.
func (p pace) bulk(in time.Duration) int {
	if p.each == 0 {
		return firstBulk
	}
	return min(max(int(in/p.each), leastBulk), batchSize)
}

// answered records how long a bulk took, or after how long it was given up.
func (k *keeper) answered(leases int, took time.Duration) {
	if leases < leastBulk {
		return // mostly the round trip
	}
	each := max(took/time.Duration(leases), 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pace.each == 0 {
		k.pace.each = each
	}
	k.pace.each = (k.pace.each + each) / 2
}

// A schedule is a heap of leases, ordered by when they are due.
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

// Progress tells the lease that its work goes on. Only a lease with MaxStall needs it, and it
// costs no command. It does not bring back a lease that has ended.
func (l *Lease) Progress() {
	now := l.client.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stallAt != 0 && l.err == nil && !l.over(now) {
		l.stallAt = now.Add(l.terms.maxStall)
	}
}

// over reports whether the lease's time has passed. Call it with l.mu held.
func (l *Lease) over(now monotonic.Moment) bool {
	return now >= l.ends().Add(knob.LateTimer) && !(knob.SessionRevived && l.isSession())
}

// ends returns when the lease ends, unless it is renewed or reports progress. Call it with l.mu
// held.
func (l *Lease) ends() monotonic.Moment {
	if l.stallAt != 0 {
		return min(l.trusted(), l.stallAt)
	}
	return l.trusted()
}

// expire runs when the deadline's timer fires. A renewal moves the deadline but not the timer,
// so expire checks the deadline and sets the timer again.
func (l *Lease) expire() {
	now := l.client.clock.Now()
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	if !l.over(now) {
		if l.keptBySession() || knob.SessionRevived && l.isSession() {
			l.timer = nil // the session's end calls expire again
		} else if l.timer != nil { // otherwise the first renewal sets it
			l.timer.Reset(l.ends().Sub(now) + knob.LateTimer)
		}
		l.mu.Unlock()
		return
	}
	cause := l.whyOver(now)
	l.mu.Unlock()
	l.end(cause)
}

// whyOver returns the cause with which a lease ends whose deadline has passed. Call it with
// l.mu held.
func (l *Lease) whyOver(now monotonic.Moment) error {
	switch {
	case l.stallAt != 0 && now >= l.stallAt && l.stallAt <= l.trusted():
		return ErrStalled
	case l.maxEnd != 0 && now >= l.maxEnd:
		return ErrMaxHold
	}
	return errNotRenewed
}
