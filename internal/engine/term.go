package engine

import (
	"math"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// A moment is read on the client's own clock, which goes on while the machine sleeps.
type moment = monotonic.Moment

// A term says until when this process may trust what a store has granted it, when that is renewed, and
// until when the store may still honour it.
type term struct {
	ttl, margin time.Duration

	deadline moment        // it is trusted until then
	expiry   moment        // the store may honour it until then
	renewed  moment        // when the last renewal that was granted was sent; zero: none was
	took     time.Duration // how long renewals take, or else the claim
	failing  bool          // the last renewal failed

	maxHold moment // ends the lease although it is renewed; zero: nothing does
	stall   moment // MaxStall after the last progress; zero: none is asked for
}

// granted begins the term of a claim that was sent at sent and granted now for left. Trust begins
// with the sending: the time that the reply took is already paid for.
func (t *term) granted(sent, now moment, left time.Duration) (due moment) {
	t.deadline, t.expiry, t.took = sent.Add(left-t.margin), now.Add(withDrift(t.ttl)), now.Sub(sent)
	return max(t.due(sent, left), now)
}

// prolonged moves the deadline, forward and never back, after a renewal that was sent at sent and
// granted now for left. It returns when the next one is due.
func (t *term) prolonged(sent, now moment, left time.Duration) (due moment) {
	t.late(now)
	t.took, t.renewed = max(now.Sub(sent), t.took-t.took/4), sent
	t.deadline = max(t.deadline, sent.Add(left-t.margin))
	return max(t.due(sent, left), now.Add(t.ttl/200))
}

// failed records that a renewal failed now. It may have been applied all the same. first reports that the
// one before had not failed.
func (t *term) failed(now moment) (first bool) {
	first = !t.failing
	t.late(now)
	t.failing = true
	return first
}

// late records an answer that came when the deadline had passed. It does not move it: the holder was told
// that the term is over, or is about to be.
func (t *term) late(now moment) { t.expiry, t.failing = now.Add(withDrift(t.ttl)), false }

// due is a third of the TTL after the last renewal was sent, so that slow answers do not add up, or when
// half of the time is over for which the term may be trusted, if that is sooner. It is sooner with a large
// margin, and when the store promised little time.
func (t *term) due(sent moment, left time.Duration) moment {
	return sent.Add(min(t.ttl/3, (left-t.margin)/2))
}

// trusted returns until when the store certainly has the holder, with regard to MaxHold.
func (t *term) trusted() moment {
	if t.maxHold != 0 {
		return min(t.deadline, t.maxHold)
	}
	return t.deadline
}

// ends returns when the lease ends, unless it is renewed or its work reports progress.
func (t *term) ends() moment {
	if t.stall != 0 {
		return min(t.trusted(), t.stall)
	}
	return t.trusted()
}

// over reports whether that time has passed.
func (t *term) over(now moment) bool { return now >= t.ends() }

// why returns the cause with which a lease ends that is over.
func (t *term) why() error {
	switch t.ends() {
	case t.stall:
		return ErrStalled
	case t.maxHold:
		return ErrMaxHold
	}
	return ErrNotRenewed
}

// patience is how long the store may take to answer a renewal that is sent now, before another one goes beside it: a
// tenth of the TTL, so that one that hangs costs an attempt and not the lease. For a repeated renewal it is a third of
// the time that is left, so that the last attempts begin shortly before the end. Where they take longer but are answered,
// it is three times that, up to two fifths of the TTL.
func (t *term) patience(now moment) time.Duration {
	left := t.deadline.Sub(now)
	most := max(left/3, t.ttl/50)
	if !t.failing {
		most = min(most, t.ttl/10)
	}
	most = max(most, min(3*t.took, t.ttl*2/5))
	return max(min(most, left), time.Millisecond)
}

// pause is the time between two renewals that fail at once. It is shorter near the end.
func (t *term) pause(now moment) time.Duration {
	return min(t.ttl/20, 5*time.Second, max(t.trusted().Sub(now)/3, t.ttl/100))
}

// withDrift is how long d, measured by the store's clock, may last by this process's. A record that was written by hand
// may have an end that is further away than a Duration counts.
func withDrift(d time.Duration) time.Duration {
	d = min(d, math.MaxInt64/2)
	return d + d/1000 + time.Millisecond
}
