package keeper

import (
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// Items whose renewal failed leave the schedule until they are renewed. There are two reasons for
// a failure, and each asks for the opposite of the other.
//
// One document may be blocked, by an open transaction, and hold up every renewal that is sent with
// its own. So items that failed together are repeated in parts, side by side, and those are divided
// again: the blocked one is soon alone. That takes three rounds for a thousand items, and one for
// sixteen.
//
// Or the store does not answer at all. Then parts are only more calls. So after some calls without
// an answer it is only probed, by one item at a time. The first answer lets all others go.

// repeatParts is how many renewals take the place of one that failed.
const repeatParts = 16

// answered ends what was planned for the items of a batch: a call of Renew may have come between.
// It learns how the store is, and returns the number of the call.
func (k *Keeper) answered(batch []Item, answers []store.Renewed, asked int32, sent, now monotonic.Moment) (call uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	for _, item := range batch {
		s := item.slot()
		s.call, s.asked = k.calls, s.asked-asked
		k.pull(item)
	}
	k.pace.answered(len(batch), now.Sub(sent))
	if !slices.ContainsFunc(answers, func(a store.Renewed) bool { return a.Err == nil || store.IsVerdict(a.Err) }) {
		k.store.failed()
		return k.calls
	}
	waiting := 0
	for _, g := range k.made {
		waiting += g.failed.Len() + g.ready.Len()
	}
	if k.store.answered(now, waiting) {
		for _, g := range k.made {
			g.again.at = 0
			g.arm()
		}
	}
	return k.calls
}

// repeat plans the renewals of items that failed in a call for that many, which was sent at sent
// and answered now, unless a call of Renew that waited for its turn has had it and is answered. A
// quick refusal is repeated after a pause, a call that took its time at once.
func (k *Keeper) repeat(failed []Item, call uint32, of int, sent, now monotonic.Moment) {
	if len(failed) == 0 {
		return
	}
	due := max(sent.Add(backoff.Jitter(pause(failed, now))), now)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, item := range failed {
		s := item.slot()
		if s.call != call {
			continue
		}
		most := s.most
		if most == 0 || k.store.answering() || k.store.last >= s.failed {
			most = int32(of+repeatParts-1) / repeatParts
		}
		s.failures++
		g := k.group(s)
		g.wait(item, due, most, now)
		g.arm()
	}
}

// wait has an item renewed again, with at most so many in one call.
func (g *group) wait(item Item, due monotonic.Moment, most int32, now monotonic.Moment) {
	s := item.slot()
	if g.keeper.stopped || s.gone || s.in != nil {
		return
	}
	s.due, s.most, s.failed = due, most, now
	g.failed.add(item)
}

// repeatable returns when the next items are renewed again.
func (g *group) repeatable() monotonic.Moment {
	var due monotonic.Moment
	if g.ready.Len() == 0 {
		due = g.failed.first().due
	}
	if g.keeper.store.answering() {
		return due
	}
	return max(due, g.probe, g.keeper.store.probe())
}

// repeat renews the items that failed and are due again, in parts, as far as the store answers.
func (g *group) repeat() {
	k := g.keeper
	if !k.host.Tasks.Begin() {
		return
	}
	defer k.host.Tasks.Done()
	for more := true; more; {
		var part []Item
		part, more = g.part()
		mine := k.begun(part)
		if len(mine) > 0 {
			k.host.Tasks.Run(func() { k.renew(mine) })
		}
	}
}

// part returns the items that one call renews again, and whether there may be more.
func (g *group) part() (part []Item, more bool) {
	k := g.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	g.again.at = 0
	now := k.host.Clock.Now()
	for g.failed.dueBy(now) {
		g.ready.add(g.failed.take())
	}
	if g.ready.Len() == 0 || g.repeatable() > now {
		g.arm()
		return nil, false
	}
	most := k.pace.bulk(g.least / 40)
	if k.store.doubt || !k.store.answering() {
		most = 1
	}
	if !k.store.answering() {
		k.store.probed(now)
		pause := min(pause(g.ready.items, now), pause(g.failed.items, now))
		g.probe = now.Add(max(pause, min(2*pause, probeEvery))) // a short TTL has probes until its end
	}
	for g.ready.Len() > 0 && len(part) < min(most, int(g.ready.first().most)) {
		item := g.ready.take()
		if item.slot().asked == 0 { // otherwise a call of Renew is about to renew it
			part = append(part, item)
		}
	}
	return part, true
}

// pause is the time between two renewals of some items that fail at once: it goes by the one that
// ends first.
func pause(items []Item, now monotonic.Moment) time.Duration {
	least := MaxCall
	for _, item := range items {
		_, pause := item.Limits(now)
		least = min(least, pause)
	}
	return least
}
