package mongolock

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
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

// renew sends one renewal for all of batch and takes in the answers, after beginRenewal
// for each of them. A nil error is a renewal in time.
func (k *keeper) renew(batch []*Lease) []error {
	if len(batch) == 0 {
		return nil
	}
	c := k.client
	request := make([]store.Renewal, len(batch))
	bound, last := batch[0].terms.ttl, monotonic.Moment(0)
	for i, l := range batch {
		request[i] = store.Renewal{Ref: l.ref(), TTL: l.terms.ttl}
		bound = min(bound, l.terms.ttl)
		last = max(last, l.trustedUntil())
	}
	key, values := "", context.Background()
	if len(batch) == 1 {
		key, values = batch[0].key, batch[0].values
	}
	values, end := c.observe(values, OpRenew, key)
	sent := c.clock.Now()
	ctx, cancel := c.bound(values, sent.Add(min(bound/3, maxCall, max(last.Sub(sent), time.Millisecond))))
	answers := c.store.Renew(ctx, request)
	cancel()

	errs := make([]error, len(batch))
	out := Outcome{}
	for i, l := range batch {
		if errs[i] = l.renewed(sent, answers[i]); errs[i] == nil {
			out.Count++
		}
	}
	out.Err = errors.Join(errs...)
	end(out)
	return errs
}

func (l *Lease) trustedUntil() monotonic.Moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// beginRenewal makes the caller the one to renew the lease. Otherwise it returns a
// channel that closes when the renewal under way is over, or nil if the lease has ended.
func (l *Lease) beginRenewal() (mine bool, other <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return false, nil
	case l.renewing != nil:
		return false, l.renewing
	}
	l.renewing = make(chan struct{})
	l.watchDeadline(l.client.clock.Until(l.deadline))
	return true, nil
}

// renewed takes in the answer to a renewal sent at sent. An answer after the deadline
// moves nothing: the holder was told that the lease is over, or is about to be.
func (l *Lease) renewed(sent monotonic.Moment, answer store.Renewed) error {
	now := l.client.clock.Now()
	l.mu.Lock()
	close(l.renewing)
	l.renewing = nil
	l.until = now.Add(drifted(l.terms.ttl)) // the renewal may have been applied, whatever the answer
	over := l.err == nil && l.over(now)
	if l.err == nil && !over && answer.Err == nil {
		l.extend(sent.Add(answer.Left - l.margin))
	}
	first := answer.Err != nil && !l.failing
	l.failing = answer.Err != nil
	l.mu.Unlock()
	if over {
		l.expire()
	}
	if err := l.Err(); err != nil {
		return &fault{op: "renew", key: l.key, err: err}
	}
	return l.heed(answer, first, sent, now)
}

// extend moves the deadline forward, and never back. With l.mu held.
func (l *Lease) extend(deadline monotonic.Moment) {
	if l.maxEnd != 0 {
		deadline = min(deadline, l.maxEnd)
	}
	l.deadline = max(l.deadline, deadline)
}

// heed ends the lease if the answer says so. Otherwise it plans the next renewal.
func (l *Lease) heed(answer store.Renewed, first bool, sent, now monotonic.Moment) error {
	var broken *store.BrokenError
	switch {
	case answer.Err == nil:
		l.renewAt(l.nextRenewal(answer.Left, sent, now))
		return nil
	case errors.As(answer.Err, &broken):
		l.end(fmt.Errorf("%w: %s", ErrBroken, broken.Reason))
	case errors.Is(answer.Err, store.ErrGone):
		l.end(errGone)
	case store.IsVerdict(answer.Err):
		l.end(fmt.Errorf("%w: %w", errGone, answer.Err))
	default:
		if first {
			l.client.logger.Warn("mongolock: renewal failed, trying again", "lease", l, "error", answer.Err)
		}
		l.renewAt(now.Add(backoff.Jitter(l.retryPause())))
		return &fault{op: "renew", key: l.key, err: answer.Err}
	}
	return &fault{op: "renew", key: l.key, err: l.Err()}
}

// nextRenewal is a third of the TTL after the last renewal was sent, so that slow
// answers do not add up. It is sooner if the store promised less than half of the TTL.
func (l *Lease) nextRenewal(left time.Duration, sent, now monotonic.Moment) monotonic.Moment {
	if left < l.terms.ttl/2 {
		pause, trusted := l.retryPause(), sent.Add(left-l.margin).Sub(now)
		return now.Add(min(pause, max(pause/10, trusted/4)))
	}
	return sent.Add(l.terms.ttl / 3)
}

func (l *Lease) retryPause() time.Duration { return min(l.terms.ttl/20, 5*time.Second) }

// renewAt plans the next renewal, unless the lease has ended or NoRenewal is set.
func (l *Lease) renewAt(due monotonic.Moment) {
	if l.terms.noRenewal {
		return
	}
	l.client.keeper.remove(l) // a call of Renew came between: plan from here
	l.client.keeper.add(l, due)
	if l.Err() != nil {
		l.client.keeper.remove(l)
	}
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
