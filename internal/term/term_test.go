package term_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/term"
)

const (
	ttl    = 30 * time.Second
	margin = time.Second
)

// at is the moment d after the first one.
func at(d time.Duration) monotonic.Moment { return monotonic.Moment(1).Add(d) }

func granted(left time.Duration) term.Term {
	t, _ := term.Granted(ttl, margin, at(0), at(time.Second), left)
	return t
}

func TestTrustCountsFromTheSendingAndEndsOneMarginEarly(t *testing.T) {
	g := granted(ttl)
	assert.Equal(t, at(29*time.Second), g.Trusted())
	assert.False(t, g.Over(at(29*time.Second-1)))
	assert.True(t, g.Over(at(29*time.Second)))
}

func TestTheStoreMayHonourATermForItsTTLAfterTheAnswer(t *testing.T) {
	g := granted(ttl)
	assert.Equal(t, at(time.Second).Add(term.Drifted(ttl)), g.Honoured())
	g.Failed(at(5 * time.Second)) // it may have been applied
	assert.Equal(t, at(5*time.Second).Add(term.Drifted(ttl)), g.Honoured())
	g.Late(at(40 * time.Second))
	assert.Equal(t, at(40*time.Second).Add(term.Drifted(ttl)), g.Honoured())
	assert.Equal(t, at(29*time.Second), g.Trusted(), "neither moves the deadline")
}

func TestARenewalMovesTheDeadlineForwardAndNeverBack(t *testing.T) {
	g := granted(ttl)
	g.Failed(at(8 * time.Second))
	g.Renewed(at(10*time.Second), at(11*time.Second), ttl)
	assert.Equal(t, at(39*time.Second), g.Trusted())
	assert.Equal(t, at(10*time.Second), g.LastRenewal())
	assert.False(t, g.Failing())
	g.Renewed(at(11*time.Second), at(12*time.Second), time.Second)
	assert.Equal(t, at(39*time.Second), g.Trusted())
}

func TestOnlyTheFirstFailureInARowIsNews(t *testing.T) {
	g := granted(ttl)
	assert.True(t, g.Failed(at(10*time.Second)))
	assert.False(t, g.Failed(at(11*time.Second)))
	g.Renewed(at(12*time.Second), at(12*time.Second), ttl)
	assert.True(t, g.Failed(at(13*time.Second)))
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
		g, first := term.Granted(ttl, c.margin, at(0), at(c.took), c.left)
		assert.Equal(t, at(c.first), first, c.what)
		assert.Equal(t, at(c.renewals), g.Renewed(at(0), at(c.took), c.left), c.what)
	}
}

func TestPatience(t *testing.T) {
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
		{"twice as long as the last one took", 20 * time.Second, 4 * time.Second, false, 8 * time.Second},
		{"but at most a third of the TTL", 20 * time.Second, 9 * time.Second, false, 10 * time.Second},
		{"and never past the end", time.Second, 9 * time.Second, false, time.Second},
		{"but some time even then", -time.Second, 0, false, time.Millisecond},
		{"a fiftieth of the TTL at least, while there is time", time.Second, 0, false, 600 * time.Millisecond},
	} {
		g := granted(ttl)
		if c.took > 0 {
			g.Renewed(at(0), at(c.took), ttl)
		}
		if c.failing {
			g.Failed(at(time.Second))
		}
		assert.Equal(t, c.want, g.Patience(at(time.Minute), at(time.Minute+c.left)), c.what)
	}
}

func TestRetryPause(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		20 * time.Second: 1500 * time.Millisecond, // a twentieth of the TTL
		3 * time.Second:  time.Second,             // a third of the rest
		0:                300 * time.Millisecond,  // a hundredth of the TTL
	} {
		g := granted(ttl)
		assert.Equal(t, want, g.RetryPause(at(time.Minute), at(time.Minute+left)), "%v left", left)
	}
	long, _ := term.Granted(time.Hour, margin, at(0), at(0), time.Hour)
	assert.Equal(t, 5*time.Second, long.RetryPause(at(0), at(time.Hour)))
}

func TestAKeyIsKeptForMinHoldByTheSlowerClock(t *testing.T) {
	assert.Zero(t, term.Keep(0, at(0), at(0)))
	assert.Equal(t, time.Minute, term.Keep(time.Minute, at(0), at(time.Minute)), "the store's clock may be slower")
	assert.Zero(t, term.Keep(time.Minute, at(0), at(term.Drifted(time.Minute))))
}

func TestTheFirstLimitEndsALease(t *testing.T) {
	for _, c := range []struct {
		what    string
		limits  term.Limits
		trusted time.Duration
		ends    time.Duration
	}{
		{"no limit", term.Limits{}, time.Minute, time.Minute},
		{"MaxHold", term.Limits{MaxHold: at(time.Second)}, time.Minute, time.Second},
		{"MaxStall", term.Limits{Stall: at(time.Second)}, time.Minute, time.Second},
		{"the sooner of both", term.Limits{MaxHold: at(2 * time.Second), Stall: at(time.Second)}, time.Minute, time.Second},
		{"the sooner of both", term.Limits{MaxHold: at(time.Second), Stall: at(2 * time.Second)}, time.Minute, time.Second},
		{"all at once", term.Limits{MaxHold: at(time.Second), Stall: at(time.Second)}, time.Second, time.Second},
		{"MaxHold as the trust ends", term.Limits{MaxHold: at(time.Second)}, time.Second, time.Second},
		{"trust before both", term.Limits{MaxHold: at(time.Minute), Stall: at(time.Minute)}, time.Second, time.Second},
	} {
		assert.Equal(t, at(c.ends), c.limits.Ends(at(c.trusted)), c.what)
		assert.Equal(t, c.limits == term.Limits{}, c.limits.None(), c.what)
	}
}
