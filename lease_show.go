package mongolock

import (
	"fmt"
	"log/slog"
	"time"
)

// String shows the lease's key, token and state, and never its ID.
func (l *Lease) String() string {
	err, left := l.glance()
	if err != nil {
		return fmt.Sprintf("lease of %q with token %d, ended: %v", l.key, l.token, err)
	}
	return fmt.Sprintf("lease of %q with token %d, %v left", l.key, l.token, left)
}

// GoString is String, for the verb %#v.
func (l *Lease) GoString() string { return l.String() }

// Format prints String, whatever the verb. So no verb shows the ID.
func (l *Lease) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, l.String()) }

// LogValue shows the lease's key, token and state, and never its ID.
func (l *Lease) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("key", l.key), slog.Int64("token", l.token)}
	if err, left := l.glance(); err != nil {
		attrs = append(attrs, slog.String("ended", err.Error()))
	} else {
		attrs = append(attrs, slog.Duration("remaining", left))
	}
	return slog.GroupValue(attrs...)
}

// glance is Err and Remaining without their effect: it does not end a lease that has run
// out, as that cancels contexts and calls the logger, which may be the caller.
func (l *Lease) glance() (err error, left time.Duration) { //nolint:revive,staticcheck // as they are shown
	now := l.client.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return l.err, 0
	case l.over(now):
		return l.whyOver(now), 0
	}
	return nil, max(0, l.deadline.Sub(now))
}
