package engine

import (
	"cmp"
	"errors"
	"log/slog"
	"math/bits"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/store"
)

// Renewals are planned here, and many are sent in one call. Holds whose TTLs lie within a factor of two form a
// group with its own schedule: a slow call for long TTLs must not delay those with short ones.
//
// Holds whose renewal failed leave the schedule until they are renewed. There are two reasons for a failure, and
// each asks for the opposite of the other.
//
// One document may be blocked, by an open transaction, and hold up every renewal that is sent with its own. So
// holds that failed together are repeated in parts, side by side, and those are divided again: the blocked one is
// soon alone. That takes three rounds for a thousand holds, and one for sixteen.
//
// Or the store does not answer at all. Then parts are only more calls. So after some calls without an answer it is
// only probed, by one hold at a time. The first answer lets all others go.
type renewals struct {
	groups [64]*group // by the length of the TTL in bits
	made   []*group   // all of them
}

// A renewal is the place of a hold in the schedule.
type renewal struct {
	renewing *Call    // under way
	slower   *Call    // another one, which began before and is slow
	wants    []*Asker // want a renewal that begins after they came

	due   moment
	in    *schedule // nil: none
	where int       // the index in that

	most     int    // how many are renewed with it at most, because a renewal failed; 0: none has
	failures int    // since it was renewed
	failedAt moment // when the last one did
}

// A group has the holds whose TTLs are about as long.
type group struct {
	least time.Duration // the shortest TTL that belongs to it

	due   schedule
	round round // of renewals
	soon  moment
	bulk  *Call // the round goes on when this is answered, or has taken too long; nil: no round is under way

	failed schedule // holds that are renewed again
	ready  schedule // those whose time has come
	again  retries  // when they are
	probe  moment   // no probe is sent before
}

type (
	round struct { // the alarm of the next round, or of the next bulk of one
		alarm
		group *group
	}
	retries struct { // the alarm of those that failed
		alarm
		group *group
	}
)

var errSlow = errors.New("no answer yet")

// repeatParts is how many renewals take the place of one that failed.
const repeatParts = 16

// group returns the group of a hold.
func (c *core) group(h *Hold) *group {
	n := bits.Len64(uint64(h.Terms.TTL)) // 55 for a TTL of a year
	g := c.groups[n]
	if g == nil {
		g = &group{least: 1 << (n - 1), due: newSchedule(sooner), failed: newSchedule(sooner), ready: newSchedule(lessSuspect)}
		g.round.of, g.round.group, g.again.of, g.again.group = &g.round, g, &g.again, g
		c.groups[n], c.made = g, append(c.made, g)
	}
	return g
}

// plan has a hold renewed at due.
func (c *core) plan(h *Hold, due moment) {
	c.unplan(h)
	h.due, h.most, h.failures = due, 0, 0
	g := c.group(h)
	g.due.add(h)
	c.arm(g)
}

// unplan takes a hold out of the schedule. The alarm stays set and may find nothing due.
func (c *core) unplan(h *Hold) {
	if h.in != nil {
		h.in.remove(h)
		h.in = nil
	}
}

// arm sets the alarms of a group to the first renewals due.
func (c *core) arm(g *group) {
	if len(g.due.items) > 0 && g.bulk == nil {
		c.setBy(&g.round.alarm, g.due.items[0].due)
	}
	if len(g.failed.items)+len(g.ready.items) > 0 {
		c.setBy(&g.again.alarm, c.repeatable(g))
	}
}

// ring begins a round, or goes on with it because a bulk has taken too long.
func (r *round) ring(c *core) {
	g := r.group
	if g.bulk != nil {
		c.goOn(g, g.soon)
		return
	}
	g.soon = c.now.Add(g.least / 6)
	c.goOn(g, c.now)
}

// goOn renews all holds of a group that are due within a sixth of the TTL, if one is due by then, so that holds which
// were granted at about the same time are renewed together. Each bulk is sent after the last one was answered or has
// taken too long: so a slow server does not spend its time on renewals that are no longer waited for.
func (c *core) goOn(g *group, due moment) {
	for bound := g.least / 10; ; due = g.soon {
		batch, more := c.take(g, due, bound/4)
		g.bulk = nil
		var bulk *Call
		if len(batch) > 0 {
			bulk = c.renew(batch)
		}
		switch {
		case !more:
			c.arm(g)
			return
		case bulk != nil:
			g.bulk = bulk
			c.set(&g.round.alarm, c.now.Add(bound))
			return
		}
	}
}

// take removes from the schedule those due soon if the first is due, as many as the store is likely to answer in time.
// While it does not answer, they join those that failed. It reports whether there are more.
func (c *core) take(g *group, due moment, in time.Duration) (batch []*Hold, more bool) {
	if !g.due.dueBy(due) {
		return nil, false
	}
	size := c.pace.bulk(in)
	for !c.answering() && g.due.dueBy(g.soon) {
		h := g.due.next()
		c.repeat(g, h, h.due, size)
	}
	for g.due.dueBy(g.soon) && len(batch) < size {
		if h := g.due.next(); h.renewing == nil && !h.term.over(c.now) { // otherwise that one plans the next, or it is about to end
			batch = append(batch, h)
		}
	}
	return batch, g.due.dueBy(g.soon)
}

// renew sends one renewal for all of batch. One that is slow is not cut off when the next goes beside it: the server
// would have done its work for nothing, and the next one would have to open a connection.
func (c *core) renew(batch []*Hold) *Call {
	patience := maxCall
	call := &Call{Kind: RenewAll, Batch: batch}
	for _, h := range batch {
		c.unplan(h)
		h.renewing = call
		patience = min(patience, h.term.patience(c.now))
	}
	c.asked++
	c.call(call, c.now.Add(maxCall))
	call.slow.of = call
	c.set(&call.slow, c.now.Add(patience))
	return call
}

// ring has the holds renewed again beside a renewal that is slow.
func (call *Call) ring(c *core) {
	c.health.gotNone()
	var failed []*Hold
	for _, h := range call.Batch {
		if h.renewing != call || h.err != nil || h.term.over(c.now) {
			continue
		}
		if h.slower != nil { // two are enough: each has a connection
			if !slices.Contains(c.ready.Cut, h.slower) {
				c.ready.Cut = append(c.ready.Cut, h.slower)
			}
			c.answerAll(h, h.slower.asked, errSlow)
		}
		h.slower = call
		if !h.Terms.NoRenewal {
			failed = append(failed, h)
		}
	}
	c.goOnAfter(call, failed, errSlow)
}

// renewNow renews a hold for somebody who waits for it, or because of what was read: after the renewal that is under
// way, so that it comes after everything that the asker did before.
func (c *core) renewNow(h *Hold, a *Asker) {
	if h.err != nil {
		c.answer(a, nil, h.fault("renew", h.err))
		return
	}
	if a != nil {
		h.wants = append(h.wants, a)
	}
	if h.renewing == nil {
		call := c.renew([]*Hold{h})
		call.asked, h.wants = h.wants, nil
	}
}

// renewed takes in the answers to a renewal. One after the deadline does not move that: the holder was told that the
// lease is over, or is about to be.
func (c *core) renewed(call *Call) {
	inTime := call.slow.at != 0
	c.set(&call.slow, 0)
	switch {
	case slices.ContainsFunc(call.Answers, func(a store.Renewed) bool { return a.Err == nil || store.IsVerdict(a.Err) }):
		if c.health.gotAnswer(c.now, c.failedRenewals()) {
			c.renewAgain()
			c.storeAnswers()
		}
	case inTime:
		c.health.gotNone()
	}
	var failed []*Hold
	var err error
	for i, h := range call.Batch {
		if h.slower == call {
			h.slower = nil
		}
		if again := c.renewedOne(h, call, call.Answers[i]); again && h.renewing == call {
			failed, err = append(failed, h), call.Answers[i].Err
		}
	}
	c.goOnAfter(call, failed, err)
}

// renewedOne takes in one of them, and reports whether the renewal is repeated. Another one may have gone beside it.
func (c *core) renewedOne(h *Hold, call *Call, answer store.Renewed) (again bool) {
	if len(answer.Line) > 0 {
		h.line = answer.Line
		h.heardWaiter()
	}
	held := h.err == nil && !h.term.over(c.now)
	switch {
	case answer.Err != nil, held && call.Sent < h.term.renewed:
		h.term.expiry = c.now.Add(withDrift(h.term.ttl)) // it may have been applied
	case held:
		due := h.term.prolonged(call.Sent, c.now, answer.Left)
		if !h.Terms.NoRenewal {
			c.plan(h, due)
		}
		if h.slower != nil && h.slower.Sent < call.Sent {
			c.answerAll(h, h.slower.asked, nil)
		}
	default:
		h.term.late(c.now)
		if !c.toldSlow && errors.Is(h.err, ErrNotRenewed) {
			c.toldSlow = true
			took := c.now.Sub(call.Sent)
			c.say(slog.LevelWarn, "mongolock: a renewal was granted when its lease was over: the TTL is too short for this store", "lease", h, "took", took, "ttl", h.Terms.TTL, "enough", max(4*took, 2*h.Terms.TTL).Round(time.Second))
		}
	}
	if cause := verdict(answer.Err); cause != nil {
		c.end(h, cause)
	}
	if len(call.asked) > 0 {
		c.answerAll(h, call.asked, cmp.Or(h.err, answer.Err))
	}
	return h.err == nil && held && answer.Err != nil && !h.Terms.NoRenewal
}

// goOnAfter goes on when a renewal was answered, or is slow: some have failed because of err.
func (c *core) goOnAfter(call *Call, failed []*Hold, err error) {
	c.pace.answered(len(call.Batch), c.now.Sub(call.Sent))
	var first []*Hold
	for _, h := range failed {
		if h.term.failed(c.now) {
			first = append(first, h)
		}
	}
	if len(first) > 0 {
		c.say(slog.LevelWarn, "mongolock: renewal failed, trying again", "lease", first[0], "leases", len(first), "error", err)
	}
	for _, h := range call.Batch {
		if h.renewing != call {
			continue
		}
		h.renewing = nil
		if len(h.wants) > 0 {
			c.renewNow(h, nil) // there is no repetition before
		}
	}
	if len(failed) > 0 {
		c.repeatAll(failed, call)
	}
	for _, g := range c.made {
		if g.bulk == call {
			c.goOn(g, g.soon)
		}
	}
}

// answerAll answers those who wait for a renewal of a hold.
func (c *core) answerAll(h *Hold, all []*Asker, err error) {
	if err != nil {
		err = h.fault("renew", err)
	}
	for _, a := range all {
		c.answer(a, nil, err)
	}
}

// failedRenewals returns how many holds are to be renewed again.
func (c *core) failedRenewals() (n int) {
	for _, g := range c.made {
		n += len(g.failed.items) + len(g.ready.items)
	}
	return n
}

// renewAgain sets the alarms of those anew.
func (c *core) renewAgain() {
	for _, g := range c.made {
		c.set(&g.again.alarm, 0)
		c.arm(g)
	}
}

// repeatAll plans the renewals of holds that failed in a call. A quick refusal is repeated after a pause, a call that
// took its time at once.
func (c *core) repeatAll(failed []*Hold, call *Call) {
	due := max(call.Sent.Add(backoff.Jitter(c.pauseOf(failed))), c.now)
	for _, h := range failed {
		most := h.most
		if most == 0 || c.answering() || c.health.last >= h.failedAt {
			most = (len(call.Batch) + repeatParts - 1) / repeatParts
		}
		h.failures++
		g := c.group(h)
		c.repeat(g, h, due, most)
		c.arm(g)
	}
}

// repeat has a hold renewed again, with at most so many in one call.
func (c *core) repeat(g *group, h *Hold, due moment, most int) {
	if h.in != nil || h.renewing != nil {
		return
	}
	h.due, h.most, h.failedAt = due, most, c.now
	g.failed.add(h)
}

// repeatable returns when the next holds are renewed again.
func (c *core) repeatable(g *group) moment {
	var due moment
	if len(g.ready.items) == 0 {
		due = g.failed.items[0].due
	}
	if c.answering() {
		return max(due, c.now)
	}
	return max(due, g.probe, c.health.nextAllowed(), c.now)
}

// ring renews the holds that failed and are due again, in parts, as far as the store answers.
func (a *retries) ring(c *core) {
	g := a.group
	for g.failed.dueBy(c.now) {
		if h := g.failed.next(); !h.term.over(c.now) { // otherwise it is about to end
			g.ready.add(h)
		}
	}
	for len(g.ready.items) > 0 && c.repeatable(g) <= c.now {
		c.renew(c.part(g))
	}
	c.arm(g)
}

// part returns the holds that one call renews again.
func (c *core) part(g *group) (part []*Hold) {
	most := c.pace.bulk(g.least / 40)
	if c.doubt || !c.answering() {
		most = 1
	}
	if !c.answering() {
		c.health.paid = max(c.health.paid, c.now).Add(probeEvery)
		pause := min(c.pauseOf(g.ready.items), c.pauseOf(g.failed.items))
		g.probe = c.now.Add(max(pause, min(2*pause, probeEvery))) // a short TTL has probes until its end
	}
	for len(g.ready.items) > 0 && len(part) < min(most, g.ready.items[0].most) {
		part = append(part, g.ready.next())
	}
	return part
}

// pauseOf is the time between two renewals of some holds that fail at once: it goes by the one that ends first.
func (c *core) pauseOf(holds []*Hold) time.Duration {
	least := maxCall
	for _, h := range holds {
		least = min(least, h.term.pause(c.now))
	}
	return least
}

// A schedule has holds in an order.
type schedule struct{ heap[*Hold] }

func newSchedule(before func(a, b *Hold) bool) schedule {
	return schedule{heap[*Hold]{before: before, index: func(h *Hold) *int { return &h.where }}}
}

func sooner(a, b *Hold) bool { return a.due < b.due }

// lessSuspect puts those first that have failed less often, and then in larger company.
func lessSuspect(a, b *Hold) bool {
	return cmp.Or(cmp.Compare(a.failures, b.failures), cmp.Compare(b.most, a.most), cmp.Compare(a.due, b.due)) < 0
}

func (s *schedule) add(h *Hold) {
	h.in = s
	s.push(h)
}

// next takes out the first hold.
func (s *schedule) next() *Hold {
	h := s.take()
	h.in = nil
	return h
}

// dueBy reports whether the first hold, of those in order of time, is due by then.
func (s *schedule) dueBy(t moment) bool { return len(s.items) > 0 && s.items[0].due <= t }
