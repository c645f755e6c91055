package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const (
	ttl    = 30 * time.Second
	margin = time.Second
)

// at is the moment d after the first one.
func at(d time.Duration) moment { return moment(1).Add(d) }

// grantedFor is a term whose claim was sent at the first moment and granted a second later.
func grantedFor(left time.Duration) term {
	t := term{ttl: ttl, margin: margin}
	t.granted(at(0), at(time.Second), left)
	return t
}

func TestTrustCountsFromTheSendingAndEndsOneMarginEarly(t *testing.T) {
	g := grantedFor(ttl)
	assert.Equal(t, at(29*time.Second), g.trusted())
	assert.False(t, g.over(at(29*time.Second-1)))
	assert.True(t, g.over(at(29*time.Second)))
}

func TestTheStoreMayHonourATermForItsTTLAfterTheAnswer(t *testing.T) {
	g := grantedFor(ttl)
	assert.Equal(t, at(time.Second).Add(withDrift(ttl)), g.expiry)
	g.failed(at(5 * time.Second)) // it may have been applied
	assert.Equal(t, at(5*time.Second).Add(withDrift(ttl)), g.expiry)
	g.late(at(40 * time.Second))
	assert.Equal(t, at(40*time.Second).Add(withDrift(ttl)), g.expiry)
	assert.Equal(t, at(29*time.Second), g.trusted(), "neither moves the deadline")
}

func TestARenewalMovesTheDeadlineForwardAndNeverBack(t *testing.T) {
	g := grantedFor(ttl)
	g.failed(at(8 * time.Second))
	g.prolonged(at(10*time.Second), at(11*time.Second), ttl)
	assert.Equal(t, at(39*time.Second), g.trusted())
	assert.Equal(t, at(10*time.Second), g.renewed)
	assert.False(t, g.failing)
	g.prolonged(at(11*time.Second), at(12*time.Second), time.Second)
	assert.Equal(t, at(39*time.Second), g.trusted())
}

func TestOnlyTheFirstFailureInARowIsNews(t *testing.T) {
	g := grantedFor(ttl)
	assert.True(t, g.failed(at(10*time.Second)))
	assert.False(t, g.failed(at(11*time.Second)))
	g.prolonged(at(12*time.Second), at(12*time.Second), ttl)
	assert.True(t, g.failed(at(13*time.Second)))
}

func TestWhenARenewalIsDue(t *testing.T) {
	for _, c := range []struct {
		what            string
		margin, took    time.Duration
		left            time.Duration
		first, renewals time.Duration // after the sending
	}{
		{"a third of the TTL", margin, 0, ttl, 10 * time.Second, 10 * time.Second},
		{"counted from the sending", margin, 4 * time.Second, ttl, 10 * time.Second, 10 * time.Second},
		{"half of the trust, with a large margin", 15 * time.Second, 0, ttl, 7500 * time.Millisecond, 7500 * time.Millisecond},
		{"half of the trust, if the store promised little", margin, 0, 5 * time.Second, 2 * time.Second, 2 * time.Second},
		{"at once after a slow answer, and renewals not in a tight loop", margin, 12 * time.Second, ttl, 12 * time.Second, 12150 * time.Millisecond},
	} {
		g := term{ttl: ttl, margin: c.margin}
		assert.Equal(t, at(c.first), g.granted(at(0), at(c.took), c.left), c.what)
		assert.Equal(t, at(c.renewals), g.prolonged(at(0), at(c.took), c.left), c.what)
	}
}

func TestTheTimeThatARenewalMayTake(t *testing.T) {
	for _, c := range []struct {
		what    string
		left    time.Duration
		took    time.Duration // of the last renewal; zero: there was none
		failing bool
		want    time.Duration
	}{
		{"a tenth of the TTL", 20 * time.Second, 0, false, 3 * time.Second},
		{"a third of the rest near the end", 6 * time.Second, 0, false, 2 * time.Second},
		{"a third of the rest for a repeated one", 20 * time.Second, 0, true, 20 * time.Second / 3},
		{"three times as long as renewals take", 20 * time.Second, 3 * time.Second, false, 9 * time.Second},
		{"but at most two fifths of the TTL", 20 * time.Second, 9 * time.Second, false, 12 * time.Second},
		{"and never past the end", time.Second, 9 * time.Second, false, time.Second},
		{"but some time even then", -time.Second, 0, false, time.Millisecond},
		{"a fiftieth of the TTL at least, while there is time", time.Second, 0, false, 600 * time.Millisecond},
	} {
		g := term{ttl: ttl, deadline: at(time.Minute), took: c.took, failing: c.failing}
		assert.Equal(t, c.want, g.patience(at(time.Minute-c.left)), c.what)
	}
}

func TestThePauseBetweenRenewalsThatFail(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		20 * time.Second: 1500 * time.Millisecond, // a twentieth of the TTL
		3 * time.Second:  time.Second,             // a third of the rest
		0:                300 * time.Millisecond,  // a hundredth of the TTL
	} {
		g := term{ttl: ttl, deadline: at(time.Minute)}
		assert.Equal(t, want, g.pause(at(time.Minute-left)), "%v left", left)
	}
	long := term{ttl: time.Hour, deadline: at(time.Hour)}
	assert.Equal(t, 5*time.Second, long.pause(at(0)))
}

func TestMinHoldKeepsAKeyForAsLongAsTheStoresClockMayTake(t *testing.T) {
	keep := func(d time.Duration, now moment) time.Duration {
		c := core{now: now}
		return c.keep(&Hold{Terms: &Terms{MinHold: d}, granted: at(0)})
	}
	assert.Zero(t, keep(0, at(withDrift(0))))
	assert.Equal(t, time.Minute, keep(time.Minute, at(time.Minute)), "the store's clock may be slower")
	assert.Zero(t, keep(time.Minute, at(withDrift(time.Minute))))
}

func TestAnEndThatIsFurtherAwayThanADurationCountsIsFarAway(t *testing.T) {
	far := time.Until(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)) // as of a record that was written by hand
	assert.Greater(t, at(time.Hour).Add(withDrift(far)+GracePolled+slotsMost), at(100*365*24*time.Hour))
}

func TestTheFirstLimitEndsALeaseAndSaysWhy(t *testing.T) {
	const second, minute = moment(time.Second), moment(time.Minute)
	for _, c := range []struct {
		what string
		term term
		ends moment
		why  error
	}{
		{"no limit", term{deadline: minute}, minute, ErrNotRenewed},
		{"MaxHold", term{deadline: minute, maxHold: second}, second, ErrMaxHold},
		{"MaxStall", term{deadline: minute, stall: second}, second, ErrStalled},
		{"the sooner of both", term{deadline: minute, maxHold: 2 * second, stall: second}, second, ErrStalled},
		{"the sooner of both", term{deadline: minute, maxHold: second, stall: 2 * second}, second, ErrMaxHold},
		{"all at once", term{deadline: second, maxHold: second, stall: second}, second, ErrStalled},
		{"MaxHold as the trust ends", term{deadline: second, maxHold: second}, second, ErrMaxHold},
		{"trust before both", term{deadline: second, maxHold: minute, stall: minute}, second, ErrNotRenewed},
	} {
		assert.Equal(t, c.ends, c.term.ends(), c.what)
		assert.Equal(t, c.why, c.term.why(), c.what)
	}
}
