// Package term says until when this process may trust what a store has granted it, when
// that is renewed, and until when the store may still honour it. Its types are values:
// they read no clock and take no lock.
package term

import (
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// A Term is the time of one acquisition. Make one with [Granted].
type Term struct {
	ttl, margin time.Duration

	deadline monotonic.Moment // it is trusted until then
	honoured monotonic.Moment // the store may honour it until then
	renewed  monotonic.Moment // when the last renewal that was granted was sent; zero: none was
	took     time.Duration    // how long that renewal took
	failing  bool             // the last renewal failed
}

// Granted is the term of a claim that was sent at sent and granted now for left. Trust
// begins with the sending: the time that the reply took is already paid for.
func Granted(ttl, margin time.Duration, sent, now monotonic.Moment, left time.Duration) (t Term, due monotonic.Moment) {
	t = Term{
		ttl: ttl, margin: margin,
		deadline: sent.Add(left - margin), honoured: now.Add(Drifted(ttl)),
	}
	return t, max(t.due(sent, left), now)
}

// Renewed moves the deadline, forward and never back, after a renewal that was sent at sent
// and granted now for left. It returns when the next one is due.
func (t *Term) Renewed(sent, now monotonic.Moment, left time.Duration) (due monotonic.Moment) {
	t.Late(now)
	t.took, t.renewed = now.Sub(sent), sent
	t.deadline = max(t.deadline, sent.Add(left-t.margin))
	return max(t.due(sent, left), now.Add(t.ttl/200))
}

// Failed records that a renewal failed now. It may have been applied all the same. first
// reports that the one before had not failed.
func (t *Term) Failed(now monotonic.Moment) (first bool) {
	first = !t.failing
	t.Late(now)
	t.failing = true
	return first
}

// Late records an answer that came when the deadline had passed. It does not move it: the
// holder was told that the term is over, or is about to be.
func (t *Term) Late(now monotonic.Moment) {
	t.honoured, t.failing = now.Add(Drifted(t.ttl)), false
}

// due is a third of the TTL after the last renewal was sent, so that slow answers do not add
// up, or when half of the time is over for which the term may be trusted, if that is sooner.
// It is sooner with a large margin, and when the store promised little time.
func (t *Term) due(sent monotonic.Moment, left time.Duration) monotonic.Moment {
	return sent.Add(min(t.ttl/3, (left-t.margin)/2))
}

// Trusted is until when the store certainly has the holder.
func (t *Term) Trusted() monotonic.Moment { return t.deadline }

// Over reports whether the term has passed.
func (t *Term) Over(now monotonic.Moment) bool { return now >= t.deadline }

// Honoured is until when the store may honour the term.
func (t *Term) Honoured() monotonic.Moment { return t.honoured }

// LastRenewal is when the last renewal that was granted was sent; zero if none was.
func (t *Term) LastRenewal() monotonic.Moment { return t.renewed }

// Failing reports whether the last renewal failed.
func (t *Term) Failing() bool { return t.failing }

// Margin is how long before the store may grant it again the term ends for its holder.
func (t *Term) Margin() time.Duration { return t.margin }

// Patience is how long the store may take to answer a renewal that is sent now, of a term
// that ends at ends: a tenth of the TTL, so that one that hangs costs an attempt and not the
// lease. A repeated renewal has a third of the time that is left, so that the last attempts
// begin shortly before the end. If the last renewal was slow but was answered, the next one
// may take twice as long, up to a third of the TTL.
func (t *Term) Patience(now, ends monotonic.Moment) time.Duration {
	left := ends.Sub(now)
	most := max(left/3, t.ttl/50)
	if !t.failing {
		most = min(most, t.ttl/10)
	}
	most = max(most, min(2*t.took, t.ttl/3))
	return max(min(most, left), time.Millisecond)
}

// RetryPause is the time between two renewals that fail at once. It is shorter near the end.
func (t *Term) RetryPause(now, ends monotonic.Moment) time.Duration {
	return min(t.ttl/20, 5*time.Second, max(ends.Sub(now)/3, t.ttl/100))
}

// Drifted is how long d, measured by the store's clock, may last by this process's.
func Drifted(d time.Duration) time.Duration { return d + d/1000 + time.Millisecond }

// Keep is how long a key must stay taken because of a MinHold of d, if it was granted at
// granted: d, or 0 once that time is over.
func Keep(d time.Duration, granted, now monotonic.Moment) time.Duration {
	if now.Sub(granted) >= Drifted(d) {
		return 0
	}
	return d
}

// Limits end a lease although it is renewed. A zero moment is no limit.
type Limits struct {
	MaxHold monotonic.Moment
	Stall   monotonic.Moment // MaxStall after the last progress
}

// None reports whether there are no limits.
func (l Limits) None() bool { return l == Limits{} }

// Trusted is until when a lease may be trusted, of which the store says trusted.
func (l Limits) Trusted(trusted monotonic.Moment) monotonic.Moment {
	if l.MaxHold != 0 {
		return min(trusted, l.MaxHold)
	}
	return trusted
}

// Ends is when a lease ends, unless it is renewed or reports progress.
func (l Limits) Ends(trusted monotonic.Moment) monotonic.Moment {
	if l.Stall != 0 {
		return min(l.Trusted(trusted), l.Stall)
	}
	return l.Trusted(trusted)
}
