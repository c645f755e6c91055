package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A Hold is one acquisition: what the store has for this client, from the claim until the store has nothing of
// it. Users have a Lease of it.
type Hold struct {
	alarm // it is over, unless it was renewed meanwhile

	Ref   store.Ref
	Terms *Terms
	Token int64
	Since time.Time // by the store's clock, for display

	term    term
	granted moment        // when this process learned of the grant
	asked   uint32        // how often others had asked for the key when the claim was sent
	line    []store.Place // who waited when it was granted, or last renewed
	awaited bool          // another process waits for the key
	queued  bool          // it was granted to a place in line, at which others may stand again
	unseen  bool          // no user has received the lease: MinHold has nothing to protect
	err     error         // why it ended; nil: it has not

	queue      *key
	listens    bool  // it counts among those that need the feed
	prev, next *Hold // in the client's list; the first has no prev

	renewal
	returning

	outside holdOutside
}

// A returning is how a hold is given back:
//
//	kept ──▶ under way ──▶ settled
//	             │ ▲
//	             ▼ │
//	            owed
//
// Any state may become settled.
type returning struct {
	state     returnState
	inDoubt   bool          // an attempt may have been applied although its reply was lost
	late      error         // once settled, or after a failed attempt: what Release returns
	askers    []*Asker      // wait for the attempt that is under way
	inline    bool          // the first of them makes it
	bound     time.Duration // that it may take
	notBefore moment        // a lost lease is not given back sooner: its holder is given until then to stop
	debt      *debt         // the next attempt is owed
}

type returnState int

const (
	kept returnState = iota
	underWay
	owing
	settled
)

const (
	releaseBound = 5 * time.Second // for a release or a notice, and for Close in addition to its margin

	// earlyNoticeValid is how long a release may take for which a notice sent beside it is enough.
	earlyNoticeValid = 250 * time.Millisecond
)

// newHold makes the hold that a claim becomes if it is granted, and fills in what the claim asks for.
func (c *core) newHold(w *Caller, claim *store.Claim) *Hold {
	t := w.Terms
	h := &Hold{Ref: store.Ref{Key: w.Key, ID: c.config.NewID(), Mode: t.Mode}, Terms: t, Token: w.Token}
	claim.Ref, claim.Limit, claim.Weight, claim.TTL, claim.Owner, claim.Note = h.Ref, t.Limit, t.Weight, t.TTL, c.config.Owner, t.Note
	if t.Yields {
		claim.Yields, h.asked = c.address(), *c.asks(w.Key)
	}
	h.queued = claim.InLine
	h.term.ttl, h.term.margin = t.TTL, c.config.Margin
	if h.term.margin < 0 {
		h.term.margin = min(maxMargin, t.TTL/10)
	}
	h.alarm.of, h.outside.engine, h.outside.values = h, w.outside.engine, w.outside.ctx
	return h
}

// grant takes in that the claim was granted, which was sent at sent. It returns when the hold is renewed first.
func (h *Hold) grant(sent, now moment, g store.Grant) (due moment) {
	due = h.term.granted(sent, now, g.Left)
	h.Since, h.line, h.awaited, h.granted = g.Since, g.Line, len(g.Line) > 0, now
	if h.Token == 0 { // otherwise the work goes on under its first token; later grants have greater tokens than both
		h.Token = g.Token
	}
	if d := h.Terms.MaxHold; d > 0 {
		h.term.maxHold = sent.Add(d)
	}
	if d := h.Terms.MaxStall; d > 0 {
		h.term.stall = now.Add(d)
	}
	return due
}

// enter takes in a hold that was granted.
func (c *core) enter(h *Hold) {
	if h.next = c.held; h.next != nil {
		h.next.prev = h
	}
	c.held = h
	h.queue = c.of(h.Ref.Key)
	if h.Terms.shares() {
		h.queue.sharers++
	} else {
		h.queue.holder = h
	}
	if h.Terms.Yields {
		c.listen(1)
		h.listens = true
		if *c.asks(h.Ref.Key) != h.asked { // while the claim was under way, for this key or another
			c.read(h.Ref.Key)
		}
	}
}

// settled takes out a hold of which the store has nothing, and never will have. err is what Release returns
// from now on.
func (c *core) settled(h *Hold, err error) {
	h.state, h.late = settled, err
	if h.debt != nil {
		c.drop(h.debt)
		h.debt = nil
	}
	c.answerAskers(h)
	listed := h.prev != nil || c.held == h
	if h.prev != nil {
		h.prev.next = h.next
	} else if c.held == h {
		c.held = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.prev, h.next = nil, nil
	if !listed {
		return
	}
	if h.listens {
		c.listen(-1)
	}
	switch q := h.queue; {
	case q.holder == h:
		q.holder, q.streak = nil, streak{}
		c.look(q)
	case h.Terms.shares():
		q.sharers--
		c.look(q)
	}
}

func (c *core) answerAskers(h *Hold) {
	for _, a := range h.askers {
		c.answer(a, nil, h.late)
	}
	h.askers = nil
}

// ring ends a hold that is over. A renewal moves the end but not the alarm.
func (h *Hold) ring(c *core) {
	switch {
	case h.err != nil:
	case h.term.over(c.now):
		c.end(h, h.term.why())
	default:
		c.set(&h.alarm, h.term.ends())
	}
}

// end ends a hold. The first cause stays. What was lost is given back no sooner than one margin from now.
func (c *core) end(h *Hold, cause error) bool {
	if h.err != nil {
		return false
	}
	h.err = cause
	c.set(&h.alarm, 0)
	c.unplan(h)
	for _, call := range []*Call{h.renewing, h.slower} {
		if call != nil && len(call.asked) > 0 { // those who asked need not wait for it
			c.answerAll(h, call.asked, cause)
		}
	}
	if len(h.wants) > 0 {
		c.answerAll(h, h.wants, cause)
		h.wants = nil
	}
	if h.outside.done != nil {
		close(h.outside.done)
	}
	c.ready.End = append(c.ready.End, h)
	switch {
	case !IsLoss(cause):
	case errors.Is(cause, ErrGone):
		c.settled(h, h.fault("release", cause))
	case h.state != settled:
		h.notBefore = c.now.Add(h.term.margin)
		c.owe(h, h.notBefore)
	}
	return true
}

func (h *Hold) fault(op string, err error) error { return &Fault{Op: op, Key: h.Ref.Key, Err: err} }

// detach ends a hold that goes on elsewhere. The asker gets the cause of an earlier end.
func (c *core) detach(h *Hold, a *Asker) {
	if !c.end(h, ErrDetached) {
		c.answer(a, nil, h.err)
		return
	}
	c.settled(h, ErrDetached)
	c.answer(a, nil, nil)
}

// discard ends a lease that no user has received, and frees the key at once, whatever its MinHold: a caller that
// was refused the key leaves nothing behind.
func (c *core) discard(h *Hold, cause error) {
	h.unseen = true
	c.end(h, cause)
	if h.state == kept {
		c.owe(h, c.now)
	}
}

// release ends a hold and gives it back.
func (c *core) release(h *Hold, a *Asker, bound time.Duration) {
	c.end(h, ErrReleased)
	switch {
	case h.state == settled, h.err == ErrDetached: //nolint:errorlint // the exact sentinel, not wrapped
		c.answer(a, nil, h.late)
		return
	case h.state == underWay:
		h.askers = append(h.askers, a)
		return
	}
	h.askers = append(h.askers, a)
	c.giveBack(h, true, cmp.Or(bound, releaseBound))
}

// giveBack makes one attempt to remove a hold from the store.
func (c *core) giveBack(h *Hold, inline bool, bound time.Duration) {
	first := h.state == kept
	h.state, h.inline, h.bound = underWay, inline, bound
	if h.debt != nil {
		c.begun(h.debt)
	}
	until := c.now.Add(bound)
	if w, s := c.successor(h); w != nil {
		c.handOff(h, w, s, until)
		return
	}
	c.sendRelease(h, first, until)
}

// sendRelease asks the store to release a hold.
func (c *core) sendRelease(h *Hold, first bool, until moment) {
	call := &Call{Kind: ReleaseOne, hold: h, inline: h.inline}
	awaited := h.queued || len(h.line) > 0 || len(h.queue.others) > 0 // if not, the store sends one command more, and tells so
	call.Release = store.ReleaseRequest{Ref: h.Ref, Keep: c.keep(h), Line: awaited, Used: c.now.Sub(h.granted)}
	if first && h.notBefore == 0 {
		call.told, call.toldAt = c.announceEarly(h), c.now
	}
	c.call(call, until)
}

// released handles the store's answer to a release.
func (c *core) released(call *Call) {
	h, e, err := call.hold, call.Released, call.Err
	if err != nil && !store.IsVerdict(err) {
		unknown := !store.IsCertain(err)
		h.inDoubt = h.inDoubt || unknown
		err = Failed("release", h.Ref.Key, err)
		if IsLoss(h.err) {
			err = h.fault("release", fmt.Errorf("%w; and: %w", h.err, err))
		}
		c.owes(h, err)
		if unknown {
			c.freed(h.Ref.Key)
		}
		return
	}
	if q := h.queue; len(e.Line) > 0 || q.others != nil {
		q.others, q.othersAt = e.Line, c.now
	}
	inDoubt, told := h.inDoubt, call.told
	c.failing = false
	c.settled(h, h.settles(err))
	switch {
	case inDoubt: // this attempt, or one before it, may have been applied: it is not known who waits now
		c.freed(h.Ref.Key)
	case c.now.Sub(call.toldAt) > earlyNoticeValid: // the waiters that were told may ask no more
		c.tell(c.nowOffered(h, e))
	default:
		c.tell(unsent(c.nowOffered(h, e), told))
	}
}

// settles returns what Release returns once the store has answered err and has nothing of the hold left: nil, or
// why it had ended before.
func (h *Hold) settles(err error) error {
	switch {
	case err != nil && !errors.Is(err, store.ErrGone):
		return h.fault("release", err)
	case IsLoss(h.err):
		return h.fault("release", h.err)
	case err != nil && !h.inDoubt: // otherwise our own attempt removed it, and its reply was lost
		if err == store.ErrGone { //nolint:errorlint // without a word more
			return h.fault("release", ErrGone)
		}
		return h.fault("release", fmt.Errorf("%w (%w)", ErrGone, err))
	}
	return nil
}

// owes takes in that an attempt failed: others follow.
func (c *core) owes(h *Hold, err error) {
	h.state, h.late, c.failing = owing, err, true
	c.answerAskers(h)
	if h.debt == nil {
		c.owe(h, 0)
	} else {
		c.failedAgain(h.debt, h.term.expiry)
	}
}

// successor returns the caller of this client that the hold may be handed to, and the streak with that handoff,
// or nil if there is no such caller.
func (c *core) successor(h *Hold) (*Caller, streak) {
	q := h.queue
	if h.Terms.shares() || q.holder != h || q.head == nil || q.claim != nil || q.head.Terms.shares() || c.draining {
		return nil, streak{}
	}
	if h.err != ErrReleased || h.inDoubt || c.now >= h.term.ends() || c.keep(h) > 0 { //nolint:errorlint // the exact sentinel, not wrapped
		return nil, streak{}
	}
	var s streak
	if len(h.line) > 0 {
		var may bool
		if s, may = q.streak.on(c.now); !may {
			return nil, streak{}
		}
	}
	return q.head, s
}

// handOff puts a caller's claim in the place of a hold, in one step.
func (c *core) handOff(h *Hold, w *Caller, s streak, until moment) {
	call := &Call{Kind: Transfer, Ref: h.Ref, from: h, by: w, streak: s, inline: h.inline}
	call.hold = c.newHold(w, &call.Claim)
	c.call(call, min(until, c.now.Add(call.Claim.TTL)))
}

// transferred takes in the answer to a handoff, or to a claim that resumes a lease. Unless the handoff was
// applied, or may have been, nothing was changed, and the hold is released as usual.
func (c *core) transferred(call *Call) {
	h, w := call.from, call.by
	if h == nil {
		c.claimed(call)
		return
	}
	err := c.begins(call)
	switch {
	case err == nil, errors.As(err, new(*undelivered)):
		h.queue.streak = call.streak
		switch {
		case err != nil:
		case w.gone || w.queue == nil || w.queue.claim != nil:
			c.discard(call.hold, ErrReleased)
		default:
			c.deliver(w, call.hold, nil)
		}
		c.settled(h, nil)
	case store.IsCertain(err):
		call.goesOn = true
		c.sendRelease(h, false, call.Sent.Add(h.bound))
	default:
		h.inDoubt = true
		c.owes(h, Failed("release", h.Ref.Key, err))
	}
}

// keep returns how long the key must still stay taken, because of MinHold; 0 once that time is over.
func (c *core) keep(h *Hold) time.Duration {
	if h.unseen || c.now.Sub(h.granted) >= withDrift(h.Terms.MinHold) {
		return 0
	}
	return h.Terms.MinHold
}

// seldomRenewed reports whether a waiter reads the key now and then, to learn whether the store still has the
// hold: an operator may have removed it by hand. One that is renewed more often than once a minute learns of
// that by itself.
func (h *Hold) seldomRenewed() bool { return h.Terms.NoRenewal || h.Terms.TTL/3 > time.Minute }

// isAmong reports whether h is one of the holders that the store shows.
func (h *Hold) isAmong(holders []store.Holder) bool {
	return slices.ContainsFunc(holders, func(in store.Holder) bool { return in.ID == h.Ref.ID })
}

// heardWaiter records that another process waits.
func (h *Hold) heardWaiter() {
	h.awaited = true
	h.tellWanted()
}

// statusOf describes a hold as a store would, by calculation from its grant.
func (c *core) statusOf(h *Hold) store.Status {
	return store.Status{
		Key: h.Ref.Key, Mode: h.Terms.Mode, Now: h.Since.Add(c.now.Sub(h.granted)),
		Holders: []store.Holder{{
			ID: h.Ref.ID, Owner: c.config.Owner, Note: h.Terms.Note, Since: h.Since,
			ExpireAt: h.Since.Add(h.term.trusted().Sub(h.granted) + h.term.margin),
		}},
	}
}
