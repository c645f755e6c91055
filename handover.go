package mongolock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// These limit what one client may keep for itself while waiters of other processes have left
// word.
const (
	streakMost  = 16                     // hand-overs in a row
	streakTime  = 100 * time.Millisecond // the time that they may take
	streakPause = time.Second            // after this long without one a new streak begins
)

// A streak counts how often a key was handed over in a row since waiters of other processes
// left word. It goes with the key from lease to lease.
type streak struct {
	count int
	since monotonic.Moment
}

// on returns the streak with one hand-over more, or false if that is too many.
func (s streak) on(now monotonic.Moment) (streak, bool) {
	if s.count == 0 {
		s.since = now
	}
	s.count++
	return s, s.count <= streakMost && now.Sub(s.since) <= streakTime
}

// successor returns the waiter of this client that the lease may be handed to, and the streak
// with that hand-over, or nil if there is no such waiter.
func (l *Lease) successor() (*waiter, streak) {
	c := l.client
	if l.terms.shares() {
		return nil, streak{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := l.queue
	if q.holder != l || q.head == nil || q.head.asking || q.head.terms.shares() {
		return nil, streak{}
	}
	now := c.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	may := (l.err == nil || l.err == ErrReleased) && !l.release.inDoubt && now < l.ends() && l.keep() == 0 //nolint:errorlint // the very cause
	var s streak
	if l.wanted && may {
		s, may = l.streak.on(now)
	}
	if !may {
		return nil, streak{}
	}
	return q.head, s
}

// handOver puts w's claim in the place of this lease, in one step. done means that this lease
// is settled. Unless the hand-over was handled, nothing was changed, and the lease is released
// as usual.
func (l *Lease) handOver(w *waiter, s streak, until monotonic.Moment) (done, handled bool, err error) {
	c := l.client
	values, end := c.observe(w.ctx, OpTransfer, l.key, w.terms)
	claim := w.terms.claim(w.key, c.newID(), c.owner)
	sent, next := c.clock.Now(), c.newLease(w, claim.ID)
	next.streak = s
	ctx, cancel := c.bound(values, min(until, sent.Add(claim.TTL)))
	from := l.ref()
	grant, err := c.store.Transfer(ctx, from, claim)
	cancel()
	next, err = c.settle(next, w, &from, sent, grant, err)
	end(Outcome{Err: err, Token: grant.Token, Count: 1})
	if knob.DoneAfterTransfer && (err == nil || errors.As(err, new(*unwanted))) {
		l.end(ErrReleased)
	}
	switch {
	case err == nil:
		c.deliver(w, next) // before the rest of the work for this lease
		l.settle(nil)
		return true, true, nil
	case errors.As(err, new(*unwanted)):
		l.settle(nil)
		return true, true, nil
	case store.IsCertain(err):
		return false, false, nil
	}
	l.doubt()
	return false, true, failed("release", l.key, err)
}

// timeToStop returns how long the holder of a lost lease has before the lease is given back. It
// is zero for an idle lease.
func (l *Lease) timeToStop() time.Duration {
	if knob.GiveBackAtDeadline || l.idle {
		return 0
	}
	return l.margin
}

// keep returns how long the key must still stay taken, because of MinHold; 0 once that time is
// over.
func (l *Lease) keep() time.Duration {
	if l.terms.minHold == 0 || l.unseen.Load() || l.client.clock.Since(l.granted) >= drifted(l.terms.minHold) {
		return 0
	}
	return l.terms.minHold
}

// isPlain reports whether the lease can be released without reading the record: it is
// exclusive, no waiter is known, it was not lost, and nothing of it stays.
func (l *Lease) isPlain() bool {
	keep := l.keep()
	l.mu.Lock()
	defer l.mu.Unlock()
	return keep == 0 && !l.terms.shares() && !l.wanted && l.release.loss == nil
}

// ticketMark begins every ticket. Its digit is the version of the format.
const ticketMark = "mongolock1."

// A ticket is the text that Detach returns, as JSON encoded in base64.
type ticket struct {
	Key   string        `json:"k"`
	ID    string        `json:"i"`
	Token int64         `json:"t"`
	TTL   time.Duration `json:"d"`
	Note  string        `json:"n,omitempty"`
}

func (l *Lease) ticket() string {
	text, err := json.Marshal(ticket{Key: l.key, ID: l.id, Token: l.token, TTL: l.terms.ttl, Note: l.terms.note})
	if err != nil {
		panic(err) // cannot happen: strings and numbers
	}
	return ticketMark + base64.RawURLEncoding.EncodeToString(text)
}

func parseTicket(s string) (ticket, error) {
	var t ticket
	body, ok := strings.CutPrefix(s, ticketMark)
	if !ok {
		return t, errors.New("mongolock: resume: not a ticket from Detach, or from a newer version of this library")
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err == nil {
		err = errors.Join(checkText("key", t.Key, 1, maxKey), checkText("ID", t.ID, 1, maxKey), checkText("note", t.Note, 0, maxNote))
	}
	if err == nil && (t.TTL < minTTL || t.TTL > maxTTL) {
		err = fmt.Errorf("TTL of %v", t.TTL)
	}
	if err != nil {
		return t, fmt.Errorf("mongolock: resume: broken ticket: %w", err)
	}
	return t, nil
}

// Detach renews the lease once and ends it here without freeing the key. With the ticket any
// process can Resume it within the TTL: keep the ticket as safe as the lease itself. After an
// error the lease goes on as before, unless Err says otherwise. A lease that shares its key, or
// that belongs to a scheduled run, cannot be detached (errors.ErrUnsupported).
func (l *Lease) Detach(ctx context.Context) (ticket string, err error) {
	if l.terms.shares() {
		return "", &fault{op: "detach", key: l.key, err: fmt.Errorf("%w: the lease is %s, and only one that has its key alone can be resumed", errors.ErrUnsupported, l.terms.mode)}
	}
	if why, is := l.values.Value(inside.Unresumable{}).(error); is {
		return "", &fault{op: "detach", key: l.key, err: why}
	}
	if err := l.Renew(ctx); err != nil {
		return "", fmt.Errorf("mongolock: detach: %w", err)
	}
	if l.goAlone() { // from now on its own deadline counts
		if err := l.Renew(ctx); err != nil {
			return "", fmt.Errorf("mongolock: detach: %w", err)
		}
	}
	if !l.end(ErrDetached) {
		return "", &fault{op: "detach", key: l.key, err: l.Err()}
	}
	l.settle(ErrDetached)
	return l.ticket(), nil
}

// Resume takes over a lease that was ended by Detach, in any process. The new lease has the
// same key and token, and an ID of its own. If two calls resume one ticket, one succeeds. The
// other gets ErrLost, as does a call that comes after the TTL. The TTL is that of the old lease
// unless an option sets it; the client's other defaults apply. If the outcome is unknown the
// ticket may be tried again.
func (c *Client) Resume(ctx context.Context, text string, opts ...Option) (*Lease, error) {
	ticket, err := parseTicket(text)
	if err != nil {
		return nil, err
	}
	base := c.terms
	base.ttl, base.note, base.minHold = ticket.TTL, ticket.Note, 0
	each := make([]AcquireOption, len(opts))
	for i, o := range opts {
		if o == nil {
			return nil, errors.New("mongolock: resume: a nil Option")
		}
		each[i] = o
	}
	t, err := c.apply(base, each)
	if err != nil {
		return nil, err
	}
	if err := c.ready(ctx, "resume", ticket.Key); err != nil {
		return nil, err
	}
	ctx, end := c.observe(ctx, OpTransfer, ticket.Key, t)
	w := &waiter{ctx: ctx, key: ticket.Key, terms: t}
	if !c.enter() {
		return nil, &fault{op: "resume", key: ticket.Key, err: ErrClosed}
	}
	sent := c.clock.Now()
	bounded, cancel := c.bound(ctx, sent.Add(min(t.ttl, maxCall)))
	lease, err := c.claimDetached(w, cancel, func() (*Lease, error) { return c.resume(bounded, w, ticket, sent) })
	if errors.Is(err, store.ErrGone) || errors.As(err, new(*store.BrokenError)) {
		err = &fault{op: "resume", key: ticket.Key, err: fmt.Errorf("%w: %w", ErrLost, err)}
	} else if err != nil {
		err = failed("resume", ticket.Key, err)
	}
	end(Outcome{Err: err, Token: ticket.Token, Count: 1})
	return lease, err
}

func (c *Client) resume(ctx context.Context, w *waiter, t ticket, sent monotonic.Moment) (*Lease, error) {
	claim := w.terms.claim(w.key, c.newID(), c.owner)
	l := c.newLease(w, claim.ID)
	grant, err := c.store.Transfer(ctx, store.Ref{Key: t.Key, ID: t.ID, Mode: store.Exclusive}, claim)
	grant.Token = t.Token // the work goes on under its first token; later grants have greater tokens than both
	return c.settle(l, w, nil, sent, grant, err)
}

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
	return nil, max(0, l.ends().Sub(now))
}
