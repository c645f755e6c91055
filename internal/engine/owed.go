package engine

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/swept"
	"github.com/mongolock/mongolock/store"
)

// Owed is what a client has to do for others, until it is done or over: claims of unknown outcome are undone,
// holds that nobody has any more are given back, places in lines are left.
type owed struct {
	owedAt dueAlarm
	due    heap[*debt]
	parked [debtKinds][]*debt // those whose time has come, while others of their kind are under way
	busy   [debtKinds]int     // attempts under way, without those that callers wait for

	undos   map[string][]*debt // by key
	unknown int                // claims of unknown outcome
	crowded bool               // heads wait for room for their claims
	failing bool               // the last release failed

	leaveFails int    // in a row: in an outage, callers that try again and again leave a place each
	leaveAt    moment // no line is left before

	gone swept.Map[store.Place, moment] // places given up, and until when a notice about one is old
}

// A debt is one of these.
type debt struct {
	kind  debtKind
	key   string
	until moment // it is over by then: a grant has run out, a place is stale
	next  moment // the next attempt
	tries int
	index int // in the heap, or one of those below

	ref      store.Ref
	from     *store.Ref // the acquisition that a handoff named; nil for other claims
	waiting  []settler  // callers that wait for an attempt
	answered bool       // an attempt found nothing, on a store where that proves nothing: others may claim

	hold *Hold

	place store.Place
	seen  bool // in its line; otherwise it is worth one call alone
}

const (
	inParked = -2 - iota
	inFlight
	inHand // of a caller
	done
)

// A debtKind says what is owed.
type debtKind int

const (
	toUndo    debtKind = iota
	toReturn           // a hold that nobody has any more
	toRelease          // the same, after an attempt of its holder that failed
	toLeave
	debtKinds
)

// A settler is a caller that waits for so many more attempts.
type settler struct {
	w     *Caller
	tries int
}

const (
	// undosMost is how many claims may be unsettled before no others are sent. Each of them costs the store a
	// call every five seconds.
	undosMost = 4096

	atOnce      = 16 // attempts of one kind under way at a time
	returnsMost = 4  // of what was lost: thousands may be, because a server is too slow, and the others have to be renewed
	returnsShut = 64 // when the client closes
	owedLeast   = 10 * time.Millisecond
	owedMost    = 5 * time.Second // between two attempts at one debt
	noticeStale = time.Second     // after which a notice about a place that was given up is news
)

// A dueAlarm is that of the first debt.
type dueAlarm struct{ alarm }

func (a *dueAlarm) ring(c *core) { c.pay() }

// none reports whether nothing is owed.
func (o *owed) none() bool {
	n := len(o.due.items)
	for kind := range debtKinds {
		n += len(o.parked[kind]) + o.busy[kind]
	}
	return n == 0
}

// full reports whether so many claims are unsettled that no others are sent.
func (o *owed) full() bool { return o.unknown >= undosMost }

// mayHold reports whether a claim that is unsettled may hold the key. Then no other claim of the key is sent.
func (o *owed) mayHold(name string) bool {
	return slices.ContainsFunc(o.undos[name], func(d *debt) bool { return !d.answered })
}

// undo begins to clean up after a claim whose grant, if it has one, has run out at until. from is what a
// handoff named; nil for other claims.
func (c *core) undo(ref store.Ref, from *store.Ref, until moment) {
	d := &debt{kind: toUndo, key: ref.Key, ref: ref, from: from, until: until, next: c.now}
	c.undos[ref.Key] = append(c.undos[ref.Key], d)
	c.unknown++
	c.put(d)
}

// owe has a hold given back at that time; zero: after a pause, because an attempt failed.
func (c *core) owe(h *Hold, at moment) {
	h.state = owing
	if at != 0 {
		h.state = kept
	}
	h.debt = &debt{kind: toReturn, key: h.Ref.Key, hold: h, next: at, until: h.term.expiry}
	if at == 0 {
		h.debt.kind, h.debt.tries = toRelease, 1
		h.debt.next = c.now.Add(h.debt.pause())
	}
	c.put(h.debt)
}

// giveUpPlace takes a place out of a line. seen says that it was seen there.
func (c *core) giveUpPlace(name string, p store.Place, seen bool) {
	until := c.now.Add(store.PlaceFor)
	c.gone.Put(p, until, func(_ store.Place, until moment) bool { return until <= c.now })
	c.put(&debt{kind: toLeave, key: name, place: p, seen: seen, until: until, next: c.now})
}

// unusedOffer gives up a place that was offered the key, and with which nobody waits. A process that leaves a line tells
// its first place. If each such notice took that out once more, and told the next once more, there would be
// more notices with every waiter that leaves.
func (c *core) unusedOffer(name string, p store.Place) {
	if c.now >= c.gone.All[p] {
		c.giveUpPlace(name, p, true)
	}
}

// put plans the next attempt at a debt.
func (c *core) put(d *debt) {
	c.due.push(d)
	c.pay()
}

// pay begins the attempts that are due, as far as there is room.
func (c *core) pay() {
	if c.cut {
		return
	}
	for len(c.due.items) > 0 && c.due.items[0].next <= c.now {
		d := c.due.take()
		d.index = inParked
		c.parked[d.kind] = append(c.parked[d.kind], d)
	}
	for kind := range debtKinds {
		for len(c.parked[kind]) > 0 && c.busy[kind] < c.room(kind) && (kind != toLeave || c.now >= c.leaveAt) {
			d := c.parked[kind][0]
			c.parked[kind] = c.parked[kind][1:]
			c.busy[kind]++
			d.index = inFlight
			c.attempt(d)
		}
	}
	c.set(&c.owedAt.alarm, 0)
	if len(c.due.items) > 0 {
		c.set(&c.owedAt.alarm, c.due.items[0].next)
	}
	if len(c.parked[toLeave]) > 0 && c.busy[toLeave] == 0 {
		c.setBy(&c.owedAt.alarm, c.leaveAt)
	}
}

// payAll begins all attempts, as far as there is room, because the store answers again.
func (c *core) payAll() {
	for _, d := range slices.Clone(c.due.items) {
		if d.tries > 0 && d.next > c.now {
			d.next = c.now
			c.due.fix(d)
		}
	}
	c.pay()
}

// room returns how many attempts of a kind may be under way.
func (c *core) room(kind debtKind) int {
	switch {
	case kind == toLeave && c.leaveFails > 0:
		return 1
	case kind != toReturn:
		return atOnce
	case c.shut:
		return returnsShut
	}
	return returnsMost
}

// attempt makes one attempt.
func (c *core) attempt(d *debt) {
	switch d.kind {
	case toUndo:
		c.call(&Call{Kind: Undo, Ref: d.ref, From: d.from, debt: d}, c.now.Add(min(maxCall, max(d.until.Sub(c.now), time.Second))))
	case toLeave:
		c.call(&Call{Kind: Leave, Ref: store.Ref{Key: d.key}, Place: d.place, debt: d}, c.now.Add(releaseBound))
	default:
		h := d.hold
		if d.tries == 0 && !c.failing || c.now < h.term.expiry {
			c.giveBack(h, false, c.bound(d))
			return
		}
		c.say(slog.LevelInfo, "mongolock: could not give a lease back before it ran out", "key", d.key, "token", h.Token)
		c.settled(h, h.settles(nil))
		c.freed(d.key)
	}
}

// bound returns how long an attempt to give a hold back may take: less for the first, if many are given back as the
// client closes.
func (c *core) bound(d *debt) time.Duration {
	if c.shutMany && d.tries == 0 {
		return releaseBound * 2 / 5
	}
	return releaseBound
}

// begun takes in that a caller makes the next attempt at a debt.
func (c *core) begun(d *debt) {
	switch d.index {
	case inFlight, inHand:
		return
	case inParked:
		all := c.parked[d.kind]
		c.parked[d.kind] = slices.Delete(all, slices.Index(all, d), slices.Index(all, d)+1)
	default:
		c.due.remove(d)
	}
	d.index = inHand
}

// over ends an attempt.
func (c *core) over(d *debt) {
	if d.index == inFlight {
		c.busy[d.kind]--
	}
	d.tries++
	d.index = done
}

// drop takes out a debt that is settled.
func (c *core) drop(d *debt) {
	if d.index != done {
		c.begun(d)
		c.over(d)
	}
	c.pay()
}

// failedAgain plans the next attempt at a debt, which is over by until.
func (c *core) failedAgain(d *debt, until moment) {
	c.over(d)
	d.until = until
	d.next = c.now.Add(min(d.pause(), max(d.until.Sub(c.now), time.Millisecond)))
	c.put(d)
}

// pause returns the time before the next attempt: it doubles with each.
func (d *debt) pause() time.Duration { return pause(d.tries) }

func pause(tries int) time.Duration {
	return backoff.Jitter(min(owedLeast<<min(max(tries-1, 0), 20), owedMost))
}

// undoTried takes in the end of an attempt to undo a claim.
func (c *core) undoTried(call *Call) {
	d := call.debt
	over := c.now >= d.until
	settled := call.Settled || store.IsVerdict(call.Err)
	if !settled && over {
		c.say(slog.LevelInfo, "mongolock: gave up cleaning up a claim, which has run out", "key", d.key, "error", call.Err)
	}
	first := call.Err == nil && !d.answered
	d.answered = d.answered || call.Err == nil
	again := false
	waiting := d.waiting
	d.waiting = nil
	if settled || over {
		c.forget(d)
	} else {
		c.failedAgain(d, d.until)
	}
	if settled || over || first {
		c.freed(d.key)
	}
	for _, s := range waiting {
		switch {
		case s.w.settling == 0: // it left, or another attempt failed
		case settled || over || d.answered:
			if s.w.settling--; s.w.settling == 0 {
				c.begin(s.w)
			}
		case s.tries > 1: // that attempt had begun before the caller came
			d.waiting = append(d.waiting, settler{s.w, s.tries - 1})
			again = true
		default:
			c.leave(s.w, ErrUnsettled)
		}
	}
	if again {
		c.atOnce(d)
	}
}

// forget takes out a claim that is settled, or has run out.
func (c *core) forget(d *debt) {
	others := slices.DeleteFunc(c.undos[d.key], func(other *debt) bool { return other == d })
	if c.undos[d.key] = others; len(others) == 0 {
		delete(c.undos, d.key)
	}
	c.unknown--
	if c.crowded && !c.full() {
		c.crowded = false
		for _, name := range c.all() {
			if q := c.keys.All[name]; q.head != nil && q.head.fault == errFull { //nolint:errorlint // the exact sentinel, not wrapped
				c.poke(q)
			}
		}
	}
	c.drop(d)
}

// settle has a caller wait for claims of this client that may hold its key: for one attempt at each, which begins at
// once. It reports whether there are any.
func (c *core) settle(w *Caller) bool {
	for _, d := range c.undos[w.Key] {
		if d.answered {
			continue
		}
		w.settling++
		tries := 1
		if d.index == inFlight || d.index == inHand {
			tries = 2
		}
		d.waiting = append(d.waiting, settler{w, tries})
		c.atOnce(d)
	}
	return w.settling > 0
}

// atOnce makes an attempt that a caller waits for, whatever else is under way.
func (c *core) atOnce(d *debt) {
	if d.index != inFlight && d.index != inHand {
		c.begun(d)
		c.attempt(d)
	}
}

// unsettle takes a caller out of those that wait for attempts.
func (c *core) unsettle(w *Caller) {
	w.settling = 0
	for _, d := range c.undos[w.Key] {
		d.waiting = slices.DeleteFunc(d.waiting, func(s settler) bool { return s.w == w })
	}
}

// leftLine takes in the end of an attempt to leave a line.
func (c *core) leftLine(d *debt, err error) {
	if err == nil || store.IsVerdict(err) {
		c.gone.All[d.place] = c.now.Add(noticeStale)
		c.leaveFails, c.leaveAt = 0, 0
		c.drop(d)
		return
	}
	c.say(slog.LevelDebug, "mongolock: a waiter's place was not given up yet", "key", d.key, "error", err)
	c.leaveFails++
	c.leaveAt = c.now.Add(pause(c.leaveFails))
	if d.seen && c.now < d.until {
		c.failedAgain(d, d.until)
		return
	}
	delete(c.gone.All, d.place)
	c.drop(d)
}

// debts have those whose next attempt is planned. The order is a fixed one, so that a simulation can be repeated.
func debts() heap[*debt] {
	return heap[*debt]{
		before: func(a, b *debt) bool {
			return cmp.Or(cmp.Compare(a.next, b.next), cmp.Compare(a.kind, b.kind), cmp.Compare(a.key, b.key), cmp.Compare(a.ref.ID, b.ref.ID), cmp.Compare(a.place, b.place)) < 0
		},
		index: func(d *debt) *int { return &d.index },
	}
}
