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
	pace    pace
	stopped bool
}

type group struct {
	keeper *keeper
	least  time.Duration // the shortest TTL that belongs to the group
	due    schedule
	timer  *time.Timer
	armed  monotonic.Moment // when the timer fires; zero if it does not
	busy   bool             // a round goes on, which arms the timer in the end
}

// A slot is the place of a lease in its group's schedule.
type slot struct {
	due   monotonic.Moment
	index int
}

const unscheduled = -1

// groupOf is 55 for a year. A session has a group of its own: it must not wait behind the
// leases that are still to come under it.
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

// remove forgets l, and tells when it was due. The timer stays as it is and may find nothing due.
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

// round renews all that is due within a sixth of the TTL, so that leases which were
// granted at about the same time are renewed together. One bulk is sent after the other, when
// the last is answered or has been given up: a slow server does not spend its time on
// renewals that nobody waits for any more.
func (g *group) round() {
	c := g.keeper.client
	if !c.enter() {
		return
	}
	defer c.background.Done()
	now := c.clock.Now()
	soon, bound := now.Add(g.least/6), g.least/10
	for due := now; ; due = soon {
		if g != g.keeper.groups[0] { // that of the session
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

// take removes from the schedule what one bulk renews: if the first is due, what is due soon,
// as much as is likely to be answered in time. It reports whether there is more of it.
func (g *group) take(due, soon monotonic.Moment, in time.Duration) (batch []*Lease, more bool) {
	k := g.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	g.armed = 0
	if len(g.due) > 0 && g.due[0].slot.due <= due {
		size := k.pace.bulk(in)
		if g.due[0].isSession() { // whose renewal is a call of its own
			size = 1
		}
		for len(g.due) > 0 && g.due[0].slot.due <= soon && len(batch) < size {
			l := heap.Pop(&g.due).(*Lease)
			if mine, _ := l.beginRenewal(); mine {
				batch = append(batch, l)
			} // else it has ended, or another renewal is under way and will plan the next one
		}
		more = len(g.due) > 0 && g.due[0].slot.due <= soon
	}
	g.busy = more
	g.arm()
	return batch, more
}

const (
	firstBulk = 128 // leases that are renewed together while nothing is known of the store
	leastBulk = 32
)

// A pace is how much time the store takes lately for each lease that it renews in a bulk.
// A bulk that it does not answer in time costs its leases an attempt, and the store work that
// nobody waits for any more.
type pace struct{ each time.Duration }

// bulk is how many leases are likely to be renewed in that time.
func (p pace) bulk(in time.Duration) int {
	if p.each == 0 {
		return firstBulk
	}
	return min(max(int(in/p.each), leastBulk), batchSize)
}

// answered takes in that a bulk took so long, or was given up by then.
func (k *keeper) answered(leases int, took time.Duration) {
	if leases < leastBulk {
		return // mostly the trip
	}
	each := max(took/time.Duration(leases), 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pace.each == 0 {
		k.pace.each = each
	}
	k.pace.each = (k.pace.each + each) / 2
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
	return now >= l.ends().Add(knob.LateTimer) && !(knob.SessionRevived && l.isSession())
}

// ends is when the lease ends, unless it is renewed or its work goes on. With l.mu held.
func (l *Lease) ends() monotonic.Moment {
	if l.stallAt != 0 {
		return min(l.trusted(), l.stallAt)
	}
	return l.trusted()
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
		if l.keptBySession() || knob.SessionRevived && l.isSession() {
			l.timer = nil // the session's end comes here again
		} else if l.timer != nil { // else the first renewal sets it
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
	case l.stallAt != 0 && now >= l.stallAt && l.stallAt <= l.trusted():
		return ErrStalled
	case l.maxEnd != 0 && now >= l.maxEnd:
		return ErrMaxHold
	}
	return errNotRenewed
}
