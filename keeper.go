package mongolock

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

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

// renew sends one renewal for all of batch and takes in the answers, after beginRenewal
// for each of them. A nil error is a renewal in time. Every lease is extended or planned
// before the logger or the observer is called, which may take their time.
func (k *keeper) renew(batch []*Lease) []error {
	if len(batch) == 0 {
		return nil
	}
	c := k.client
	key, values := "", context.Background()
	if len(batch) == 1 {
		key, values = batch[0].key, batch[0].values
	}
	values, end := c.observe(values, OpRenew, key)
	sent := c.clock.Now()
	request, limit := make([]store.Renewal, len(batch)), maxCall
	for i, l := range batch {
		request[i] = store.Renewal{Ref: l.ref(), TTL: l.terms.ttl}
		limit = min(limit, l.patience(sent))
	}
	ctx, cancel := c.bound(values, sent.Add(limit))
	answers := c.store.Renew(ctx, request)
	cancel()
	now := c.clock.Now()

	var failed []*Lease
	var tell []func()
	for i, l := range batch {
		again, first := l.takeIn(answers[i], sent, now)
		if again {
			failed = append(failed, l)
		}
		if first {
			tell = append(tell, func() {
				c.logger.Warn("mongolock: renewal failed, trying again", "lease", l, "error", answers[i].Err)
			})
		}
	}
	k.retry(failed, sent, now)
	for i, l := range batch {
		if cause := verdict(answers[i].Err); cause != nil {
			if f := l.finish(cause); f != nil {
				tell = append(tell, f)
			}
		}
	}
	for _, f := range tell {
		f()
	}
	errs, out := make([]error, len(batch)), Outcome{}
	for i, l := range batch {
		if errs[i] = l.renewalError(answers[i].Err); errs[i] == nil {
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

// takeIn takes in the answer to a renewal, without calling anybody. It reports whether
// the renewal failed and is to be repeated, and whether the one before had not failed. An
// answer after the deadline moves nothing: the holder was told that the lease is over, or
// is about to be.
func (l *Lease) takeIn(answer store.Renewed, sent, now monotonic.Moment) (again, first bool) {
	l.mu.Lock()
	close(l.renewing)
	l.renewing = nil
	l.until = now.Add(drifted(l.terms.ttl)) // the renewal may have been applied, whatever the answer
	held := l.err == nil && !l.over(now)
	if held && answer.Err == nil {
		l.took = now.Sub(sent)
		l.extend(sent.Add(answer.Left - l.margin))
	}
	first = !l.failing
	l.failing = answer.Err != nil
	l.mu.Unlock()
	switch {
	case !held || l.terms.noRenewal || verdict(answer.Err) != nil:
		return false, false
	case answer.Err != nil:
		l.client.keeper.remove(l)
		return true, first
	}
	l.renewAt(l.nextRenewal(answer.Left, sent, now))
	return false, false
}

// extend moves the deadline forward, and never back. With l.mu held.
func (l *Lease) extend(deadline monotonic.Moment) {
	if l.maxEnd != 0 {
		deadline = min(deadline, l.maxEnd)
	}
	l.deadline = max(l.deadline, deadline)
}

// verdict is why a lease ends whose renewal was answered with err; nil if it goes on.
func verdict(err error) error {
	var broken *store.BrokenError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &broken):
		return fmt.Errorf("%w: %s", ErrBroken, broken.Reason)
	case errors.Is(err, store.ErrGone):
		return errGone
	case store.IsVerdict(err):
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// renewalError is what a renewal that was answered with err came to.
func (l *Lease) renewalError(err error) error {
	if ended := l.Err(); ended != nil {
		err = ended
	}
	if err == nil {
		return nil
	}
	return &fault{op: "renew", key: l.key, err: err}
}

// nextRenewal is a third of the TTL after the last renewal was sent, so that slow
// answers do not add up, or when half of the time is over for which the lease may be
// trusted. The latter is sooner under a large margin, and if the store promised little.
func (l *Lease) nextRenewal(left time.Duration, sent, now monotonic.Moment) monotonic.Moment {
	return max(l.renewalDue(sent, left), now.Add(l.terms.ttl/200))
}

func (l *Lease) renewalDue(sent monotonic.Moment, left time.Duration) monotonic.Moment {
	return sent.Add(min(l.terms.ttl/3, (left-l.margin)/2))
}

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
