package mongolock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// renew sends one renewal for all of batch, handles the answers and tells the observer. Each
// lease has been through beginRenewal. A nil error means that the lease was renewed in time.
func (k *keeper) renew(batch []*Lease) []error {
	if len(batch) == 0 {
		return nil
	}
	return k.send(batch)()
}

// send is the first half of renew. It extends every lease, or plans its next attempt. Then tell
// calls the logger and the observer, which may take their time.
func (k *keeper) send(batch []*Lease) (tell func() []error) {
	c := k.client
	key, values, terms := "", context.Background(), (*terms)(nil)
	if len(batch) == 1 {
		key, values, terms = batch[0].key, batch[0].values, batch[0].terms
	}
	values, end := c.observe(values, OpRenew, key, terms)
	sent := c.clock.Now()
	request, limit := make([]store.Renewal, len(batch)), maxCall
	for i, l := range batch {
		request[i] = l.renewal()
		limit = min(limit, l.patience(sent))
	}
	ctx, cancel := c.bound(values, sent.Add(limit))
	answers, told := c.askToRenew(ctx, batch, request)
	cancel()
	now := c.clock.Now()
	k.answered(len(batch), now.Sub(sent))

	var failed []*Lease
	for i, l := range batch {
		again, first := l.takeIn(answers[i], sent, now)
		if again {
			failed = append(failed, l)
		}
		if first {
			told = append(told, func() {
				c.logger.Warn("mongolock: renewal failed, trying again", "lease", l, "error", answers[i].Err)
			})
		}
	}
	k.retry(failed, sent, now)
	for i, l := range batch {
		if cause := verdict(answers[i].Err); cause != nil {
			if f := l.finish(cause); f != nil {
				told = append(told, f)
			}
		}
	}
	return func() []error {
		for _, f := range told {
			f()
		}
		errs, out := make([]error, len(batch)), Outcome{}
		for i, l := range batch {
			if errs[i] = l.renewalError(answers[i].Err); errs[i] == nil {
				out.Count++
			}
		}
		out.Err = errors.Join(errs...)
		end(out)
		return errs
	}
}

func (l *Lease) trustedUntil() monotonic.Moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trusted()
}

// beginRenewal makes the caller the one to renew the lease. Otherwise it returns a channel that
// closes when the renewal under way is over, or nil if the lease has ended.
func (l *Lease) beginRenewal() (mine bool, other <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return false, nil
	case l.renewing != nil:
		return false, l.renewing
	}
	l.renewing = make(chan struct{})
	l.watchDeadline(l.client.clock.Until(l.ends()))
	return true, nil
}

// ask counts the calls of Renew. While one is under way, the keeper leaves a retry to it.
func (l *Lease) ask(by int) {
	l.mu.Lock()
	l.asking += by
	l.mu.Unlock()
}

// takeIn records the answer to a renewal, without calling the observer or the logger. again
// means that the renewal failed and is to be repeated, first that the one before had not
// failed. An answer after the deadline does not move it: the holder was told that the lease is
// over, or is about to be.
func (l *Lease) takeIn(answer store.Renewed, sent, now monotonic.Moment) (again, first bool) {
	l.mu.Lock()
	close(l.renewing)
	l.renewing = nil
	l.until = now.Add(drifted(l.terms.ttl)) // the renewal may have been applied, whatever the answer
	held := l.err == nil && !l.over(now)
	if held && answer.Err == nil {
		l.took, l.renewed = now.Sub(sent), sent
		l.extend(sent.Add(answer.Left - l.margin))
		l.comeUnder(now)
	}
	under := l.under
	first = !l.failing
	l.failing = answer.Err != nil
	l.mu.Unlock()
	if answer.Wanted && l.heardWord() {
		l.client.giveUp(l)
	}
	switch {
	case !held || l.terms.noRenewal || verdict(answer.Err) != nil:
		return false, false
	case answer.Err != nil:
		l.client.keeper.remove(l)
		return true, first
	case under != nil:
		l.stayUnder(under)
		return false, false
	}
	l.renewAt(l.nextRenewal(answer.Left, sent, now))
	return false, false
}

// extend moves the deadline forward, and never back. With l.mu held.
func (l *Lease) extend(deadline monotonic.Moment) {
	if knob.SessionOverstayed && l.isSession() {
		deadline = deadline.Add(l.terms.ttl)
	}
	l.deadline = max(l.deadline, deadline)
	if l.trust != nil {
		l.trust.until.Store(int64(l.deadline))
	}
}

// verdict returns why a lease ends whose renewal was answered with err, or nil if it goes on.
func verdict(err error) error {
	var broken *store.BrokenError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &broken):
		return fmt.Errorf("%w: %s", ErrBroken, broken.Reason)
	case errors.Is(err, store.ErrGone):
		return errGone
	case store.IsVerdict(err):
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// renewalError returns the error of a renewal that was answered with err.
func (l *Lease) renewalError(err error) error {
	if ended := l.Err(); ended != nil {
		err = ended
	}
	if err == nil {
		return nil
	}
	return &fault{op: "renew", key: l.key, err: err}
}

// nextRenewal is due a third of the TTL after the last renewal was sent, so that slow answers
// do not add up, or when half of the time is over for which the lease may be trusted, if that
// is sooner. It is sooner with a large margin, and when the store promised little time.
func (l *Lease) nextRenewal(left time.Duration, sent, now monotonic.Moment) monotonic.Moment {
	return max(l.renewalDue(sent, left), now.Add(l.terms.ttl/200))
}

// renewalDue returns when a lease that was renewed at sent is due. A session is due a moment
// before the leases that wait for it.
func (l *Lease) renewalDue(sent monotonic.Moment, left time.Duration) monotonic.Moment {
	after := min(l.terms.ttl/3, (left-l.margin)/2)
	if l.isSession() {
		after -= after / 500
	}
	return sent.Add(after)
}

// renewAt plans the next renewal, unless the lease has ended or NoRenewal is set.
func (l *Lease) renewAt(due monotonic.Moment) {
	if l.terms.noRenewal {
		return
	}
	l.client.keeper.remove(l) // a call of Renew came between: plan from here
	l.client.keeper.add(l, due)
	if l.Err() != nil {
		l.client.keeper.remove(l)
	}
}

// retryParts is how many renewals take the place of one that failed.
const retryParts = 16

// A retry repeats the renewal of leases that failed together. They stay out of the group's
// schedule until they are renewed: one document that is blocked, by an open transaction, may
// hold up every renewal that is sent with its own. Leases that failed together are repeated in
// parts, side by side, so that the blocked one is soon alone: that takes three rounds for a
// thousand leases, and one for sixteen.
type retry struct {
	client *Client
	leases []*Lease
}

// retry repeats the renewals of leases that failed, which were sent at sent and answered now. A
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
		time.AfterFunc(wait, r.run) // run does nothing once the client is closed
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
		mine := l.retry == r && l.failing && l.asking == 0 // otherwise a call of Renew came between, or is about to
		l.mu.Unlock()
		if mine {
			if mine, _ = l.beginRenewal(); mine {
				due = append(due, l)
			}
		}
	}
	r.client.keeper.renew(due)
}

// patience returns how long the store may take to answer a renewal that is sent now: a tenth of
// the TTL, so that one that hangs costs an attempt and not the lease. A repeated renewal has a
// third of the time that is left, so that the last attempts begin shortly before the deadline.
// If the last renewal was slow but was answered, the next one may take twice as long, up to a
// third of the TTL.
func (l *Lease) patience(now monotonic.Moment) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	ttl, left := l.terms.ttl, l.trusted().Sub(now)
	most := max(left/3, ttl/50)
	if !l.failing {
		most = min(most, ttl/10)
	}
	most = max(most, min(2*l.took, ttl/3))
	return max(min(most, left), time.Millisecond)
}

// retryPause returns the time between two renewals that fail at once. It is shorter near the
// deadline.
func (l *Lease) retryPause(now monotonic.Moment) time.Duration {
	ttl, left := l.terms.ttl, l.trustedUntil().Sub(now)
	return min(ttl/20, 5*time.Second, max(left/3, ttl/100))
}
