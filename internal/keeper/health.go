package keeper

import (
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
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

// A health is what the keeper knows of the store's. A store that does not answer is asked
// mostAsked + probesAtOnce times at most, and then once in probeEvery.
type health struct {
	asked int              // calls that were not answered, less those that are earned
	doubt bool             // it did not answer, and has not yet answered enough since
	last  monotonic.Moment // when the last call was answered
	paid  monotonic.Moment // the probes sent so far are within what is allowed until then
}

// answering reports whether the store is asked for all that is due.
func (h *health) answering() bool { return h.asked < mostAsked }

// answered records an answer, while so many items wait to be renewed again. It reports whether
// the store has answered again.
func (h *health) answered(now monotonic.Moment, waiting int) (again bool) {
	again = !h.answering()
	most := min(waiting, mostEarned)
	h.asked, h.last = max(min(h.asked, mostAsked)-earned, -most), now
	h.doubt = h.doubt && h.asked > -most
	return again
}

// failed records that a call was not answered.
func (h *health) failed() { h.doubt = h.doubt || !h.answering() }

// probe returns when the next probe may be sent.
func (h *health) probe() monotonic.Moment { return h.paid.Add(-(probesAtOnce - 1) * probeEvery) }

func (h *health) probed(now monotonic.Moment) { h.paid = max(h.paid, now).Add(probeEvery) }

// A pace is the time that the store has lately taken for each item of a bulk. If the store
// does not answer a bulk in time, its items lose an attempt, and the store did that work for
// nothing.
type pace struct{ each time.Duration }

// bulk returns how many items are likely to be renewed in that time.
func (p pace) bulk(in time.Duration) int {
	if p.each == 0 {
		return firstBulk
	}
	return min(max(int(in/p.each), leastBulk), mostBulk)
}

// answered records how long a bulk took, or after how long it was given up.
func (p *pace) answered(items int, took time.Duration) {
	if items < leastBulk {
		return // mostly the round trip
	}
	each := max(took/time.Duration(items), 1)
	if p.each == 0 {
		p.each = each
	}
	p.each = (p.each + each) / 2
}
