package mongolock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/term"
)

func TestWhichLimitEndsALease(t *testing.T) {
	const second, minute = monotonic.Moment(time.Second), monotonic.Moment(time.Minute)
	for _, c := range []struct {
		what    string
		limits  term.Limits
		trusted monotonic.Moment
		why     error
	}{
		{"no limit", term.Limits{}, minute, errNotRenewed},
		{"MaxHold", term.Limits{MaxHold: second}, minute, ErrMaxHold},
		{"MaxStall", term.Limits{Stall: second}, minute, ErrStalled},
		{"the sooner of both", term.Limits{MaxHold: 2 * second, Stall: second}, minute, ErrStalled},
		{"the sooner of both", term.Limits{MaxHold: second, Stall: 2 * second}, minute, ErrMaxHold},
		{"all at once", term.Limits{MaxHold: second, Stall: second}, second, ErrStalled},
		{"MaxHold as the trust ends", term.Limits{MaxHold: second}, second, ErrMaxHold},
		{"trust before both", term.Limits{MaxHold: minute, Stall: minute}, second, errNotRenewed},
	} {
		h := holding{limits: c.limits}
		h.term, _ = term.Granted(time.Minute, 0, 0, 0, time.Duration(c.trusted))
		assert.Equal(t, c.why, h.whyOver(), c.what)
	}
}
