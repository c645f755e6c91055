package mongolock

import (
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/monotonic"
)

// retryParts is how many renewals take the place of one that failed.
const retryParts = 16

// A retry is a renewal that is repeated, for leases that failed together. They stay out
// of the group's schedule until they are renewed: one document that is blocked, by
// somebody's open transaction, may hold up every renewal that is sent with its own. What
// failed together is repeated in parts, side by side, so that whatever blocks is soon
// alone: a thousand leases take three rounds, sixteen take one.
type retry struct {
	client *Client
	leases []*Lease
}

// retry repeats the renewals of leases that failed, sent at sent and answered now. A
// quick refusal is repeated after a pause, a call that took its time at once.
func (k *keeper) retry(failed []*Lease, sent, now monotonic.Moment) {
	if len(failed) == 0 {
		return
	}
	pause := failed[0].retryPause(now)
	for _, l := range failed {
		pause = min(pause, l.retryPause(now))
	}
	wait := max(sent.Add(backoff.Jitter(pause)).Sub(now), 0)
	for part := range slices.Chunk(failed, (len(failed)+retryParts-1)/retryParts) {
		r := &retry{k.client, part}
		for _, l := range part {
			l.mu.Lock()
			l.retry = r
			l.mu.Unlock()
		}
		time.AfterFunc(wait, r.run) // does nothing once the client is closed
	}
}

func (r *retry) run() {
	if !r.client.enter() {
		return
	}
	defer r.client.background.Done()
	var due []*Lease
	for _, l := range r.leases {
		l.mu.Lock()
		mine := l.retry == r && l.failing // else a call of Renew came between
		l.mu.Unlock()
		if mine {
			if mine, _ = l.beginRenewal(); mine {
				due = append(due, l)
			}
		}
	}
	r.client.keeper.renew(due)
}

// patience is how long the store may take to answer a renewal of the lease that is sent
// now: a tenth of the TTL, so that one that hangs costs an attempt and not the lease. A
// repeated one has a third of the time that is left, so that the last of them begin
// shortly before the deadline. Where the last renewal was slow and was answered, the next
// may take twice as long, up to a third of the TTL.
func (l *Lease) patience(now monotonic.Moment) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	ttl, left := l.terms.ttl, l.deadline.Sub(now)
	most := max(left/3, ttl/50)
	if !l.failing {
		most = min(most, ttl/10)
	}
	most = max(most, min(2*l.took, ttl/3))
	return max(min(most, left), time.Millisecond)
}

// retryPause is the time between two renewals that fail at once. It is shorter where the
// deadline is near.
func (l *Lease) retryPause(now monotonic.Moment) time.Duration {
	ttl, left := l.terms.ttl, l.trustedUntil().Sub(now)
	return min(ttl/20, 5*time.Second, max(left/3, ttl/100))
}
