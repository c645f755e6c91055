package mongobase

import (
	"errors"
	"time"

	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
)

// A Tenure is what a claim or a renewal writes: when it begins and ends, how long that is meant
// to be, its beat, the clock and epoch that it goes by, and the revision that the document then
// has, if documents have one.
type Tenure struct {
	Since, Until time.Time
	TTL          time.Duration
	Beat         int64
	By           Bearing
	Rev          int64
}

// ErrNoTrace answers a claim that was applied according to the server, whose reply does not
// show it.
var ErrNoTrace = errors.New("mongolock: the server's reply to a claim does not contain the claim")

// Tenure returns what is written now for a holder that is to last ttl.
func (b *Base) Tenure(ttl time.Duration) Tenure {
	by := b.Bearing()
	t := Tenure{TTL: ttl, Beat: b.Beat(), By: by}
	t.Since, t.Until = by.Expiry(ttl)
	return t
}

// Left returns how long after sent a holder that was written with this tenure may be trusted,
// by a server time that was drawn after it was sent. If that time is not of the tenure's clock,
// the dates in the document mean nothing: they have to be written again.
func (b *Base) Left(t Tenure, sent, drawn mongoclock.Moment, server time.Time) time.Duration {
	if !b.Believes(t.By, server, drawn, b.Clock.Now()) {
		return 0
	}
	return mongoclock.Left(t.TTL, sent, drawn, t.Until, server)
}
