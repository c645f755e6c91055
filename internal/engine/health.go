package engine

import (
	"cmp"
	"time"
)

const (
	firstBulk = 128 // items that are renewed together while the store's pace is unknown
	leastBulk = 32
	mostBulk  = 1000

	mostAsked    = 8 // calls in a row without an answer: from then on the store is only probed
	probesAtOnce = 8 // if none was sent for some time
	probeEvery   = time.Second / 2

	// The store may answer for some documents and not for others. So each answer lets some more
	// calls go without one, if so many items wait.
	earned     = 16
	mostEarned = 64
)

// While claims fail, the heads of all keys together send one in this time. Once one is answered the others
// follow, each after that one.
const (
	probePause   = 500 * time.Millisecond
	probeIdle    = 5 * time.Second // after which another head asks, because the one whose turn it is cannot
	recoverPause = time.Millisecond
)

// A health is what is known of the store's. A store that does not answer is asked for renewals mostAsked +
// probesAtOnce times at most, and then once in probeEvery.
type health struct {
	pace pace

	probed  string // the key whose head asks while claims fail; the others do not
	probeAt moment // not before that; zero: no claim fails

	asked int    // calls that were not answered, less those that are earned
	doubt bool   // it did not answer, and has not yet answered enough since
	since int    // what it earned since
	last  moment // when the last call was answered
	paid  moment // the probes sent so far are within what is allowed until then
}

// answering reports whether the store is asked for all renewals that are due.
func (h *health) answering() bool { return h.asked < mostAsked }

// gotAnswer records an answer, while so many items wait to be renewed again. It reports whether
// the store has answered again.
func (h *health) gotAnswer(now moment, waiting int) (again bool) {
	again = !h.answering()
	most := min(waiting, mostEarned)
	h.asked, h.last = max(min(h.asked, mostAsked)-earned, -most), now
	h.since += earned
	h.doubt = h.doubt && h.since < mostAsked+most
	return again
}

// gotNone records that a call was not answered.
func (h *health) gotNone() {
	if !h.answering() {
		h.doubt, h.since = true, 0
	}
}

// nextAllowed returns when the next probe may be sent.
func (h *health) nextAllowed() moment { return h.paid.Add(-(probesAtOnce - 1) * probeEvery) }

// A pace is the time that the store has lately taken for each item of a bulk. If the store
// does not answer a bulk in time, its items lose an attempt, and the store did that work for
// nothing.
type pace struct{ perItem time.Duration }

// bulk returns how many items are likely to be renewed in that time.
func (p pace) bulk(in time.Duration) int {
	if p.perItem == 0 {
		return firstBulk
	}
	return min(max(int(in/p.perItem), leastBulk), mostBulk)
}

// answered records how long a bulk took, or after how long it was given up.
func (p *pace) answered(items int, took time.Duration) {
	if items < leastBulk {
		return // mostly the round trip
	}
	each := max(took/time.Duration(items), 1)
	if p.perItem == 0 {
		p.perItem = each
	}
	p.perItem = (p.perItem + each) / 2
}

// storeAnswers lets all go on that waits for the store to answer again: heads whose claims have failed, renewals
// that are only probed, and what is owed.
func (c *core) storeAnswers() {
	if !c.answering() {
		c.health.gotAnswer(c.now, c.failedRenewals())
		c.renewAgain()
	}
	if c.probeAt == 0 {
		return
	}
	c.probeAt, c.probed = 0, ""
	at := c.now
	for _, name := range c.all() {
		if q := c.keys.All[name]; q.head != nil && q.view.failing && q.claim == nil {
			q.view.Recovered(at)
			c.poke(q)
			at = at.Add(recoverPause)
		}
	}
	c.payAll()
}

// claimFailed has the next of the heads ask later whose claims have failed.
func (c *core) claimFailed() {
	c.probeAt = c.now.Add(probePause)
	c.nextProbe()
}

// nextProbe has the next of the heads ask whose claims have failed, in the order of their keys.
func (c *core) nextProbe() {
	first, next := "", ""
	for name, q := range c.keys.All {
		if q.head == nil || !q.view.failing {
			continue
		}
		if first == "" || name < first {
			first = name
		}
		if name > c.probed && (next == "" || name < next) {
			next = name
		}
	}
	if c.probed = cmp.Or(next, first); c.probed != "" {
		c.poke(c.keys.All[c.probed])
	}
}

// mayProbe returns when the head of a key may ask whose last claim failed.
func (c *core) mayProbe(name string) (at moment) {
	if at = c.probeAt; c.probed != name {
		at = at.Add(probeIdle)
	}
	if at <= c.now {
		c.probed = name
	}
	return at
}
