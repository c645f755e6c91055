package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/errtext"
	"github.com/mongolock/mongolock/store"
)

// A key has the callers of one client that wait for a key, first come, first served, and what this client
// itself holds of it. Only the head asks the store: it stands for the client in the line of the key, and
// waits even without that while the client holds the key alone.
type key struct {
	alarm             // the head decides again
	name       string // of the key
	todo       bool   // it is decided before the step ends
	holder     *Hold  // the newest one of this client that has the key alone, until it is settled
	sharers    int    // holds of this client that share the key
	head, tail *Caller
	view       View   // the head's
	claim      *Call  // with its place, that is under way: the head's, or that of one that has left
	watched    bool   // it counts among those that need the feed
	readAt     moment // when the head reads a key that this client holds; zero: no need

	streak    streak        // of the holder
	served    store.Place   // that was granted last
	others    []store.Place // who waited when this client last released the key
	othersAt  moment        // when that was; zero: never
	stood     time.Duration // for how long its last place stood in line; negative: none did
	offeredAt moment        // when this client was last offered the key, and nobody waited yet; zero: never
	check     check
}

// A Caller is one call of Acquire, TryAcquire or Resume.
type Caller struct {
	Asker
	alarm     // its patience is over
	Key       string
	Terms     *Terms
	Once      bool       // it does not wait
	Resumes   *store.Ref // it takes over a lease that was detached
	Token     int64      // of that
	Patience  moment     // MaxWait after the call; zero: none
	Leaves    moment     // when that is over, or its context ends, as far as is known; zero: never
	Candidate bool       // it is of package leader

	queue      *key // nil unless it stands there
	prev, next *Caller
	since      moment // when it joined the queue
	call       *Call  // its claim that is under way
	gone       bool   // it left: a lease that is granted to it is given back
	waits      bool   // the Engine was told that it waits
	refused    bool   // it knows that the key is held
	tried      int    // claims that were answered, of one that does not wait
	fault      error  // of its last claim
	settling   int    // attempts at earlier claims of this client that it waits for

	outside callerOutside
}

// These are for one call, or for waiting.
const (
	maxCall    = 10 * time.Second // for one call of the store
	settleMost = 5 * time.Second  // for a TryAcquire to wait for clean-ups

	// othersFor is how long other processes are assumed to wait, after a release found them waiting.
	othersFor = 10 * time.Second
	// roomOutside is how many places of a line are left to those that find it full: a process that had its turn
	// joins again at once only if there are as many.
	roomOutside = 8
	// readHeld is about how long a head does not read a key that this client holds, where the client would not
	// learn otherwise that the key was taken away by hand.
	readHeld = 45 * time.Second
	// slowFor is for how long a client whose place was passed says so. It is given more time: a slow process
	// loses one turn, not one in each wait.
	slowFor = time.Minute
)

// want takes in a caller. It first waits for earlier claims of this client that may hold the key: they are
// undone at once, with one attempt each.
func (c *core) want(w *Caller) {
	if c.draining {
		c.answer(&w.Asker, nil, &Fault{Op: "acquire", Key: w.Key, Err: ErrClosed})
		return
	}
	w.alarm.of = w
	patience := w.Patience
	if w.Resumes == nil && c.settle(w) {
		if w.Once {
			patience = c.now.Add(settleMost)
		}
		c.set(&w.alarm, patience)
		return
	}
	c.set(&w.alarm, patience)
	c.begin(w)
}

// begin asks for the key: at once, or when it is the caller's turn.
func (c *core) begin(w *Caller) {
	if !w.Once {
		c.join(w)
		return
	}
	c.set(&w.alarm, w.Patience)
	c.try(w)
}

// ring ends a wait for the key whose time is over.
func (w *Caller) ring(c *core) {
	if w.settling > 0 && w.Once {
		c.leave(w, ErrUnsettled)
		return
	}
	c.giveUp(w, ErrPatience)
}

// giveUp lets a caller go without the key, because of why. A claim that is under way goes on, and its
// outcome will be known.
func (c *core) giveUp(w *Caller, why error) {
	if w.Done {
		return
	}
	err := error(&CallerGone{why})
	if w.call != nil {
		c.ready.Cut = append(c.ready.Cut, w.call)
		c.used(w.call.Claim.Place)
		w.call = nil
		err = fmt.Errorf("the store has not answered: %w", err)
	}
	c.leave(w, err)
}

// leave answers a caller that goes without the key.
func (c *core) leave(w *Caller, err error) {
	switch q := w.queue; {
	case w.settling > 0:
		c.unsettle(w)
		if gone := (*CallerGone)(nil); errors.As(err, &gone) {
			err = gone.Err
		}
		switch {
		case errors.Is(err, ErrClosed):
			err = &Fault{Op: "acquire", Key: w.Key, Err: ErrClosed}
		case err == ErrUnsettled: //nolint:errorlint // the exact sentinel, not wrapped
			err = &Fault{Op: "acquire", Key: w.Key, Err: err, Unknown: true}
		default:
			err = &Fault{Op: "acquire", Key: w.Key, Err: fmt.Errorf("%w: %w", ErrUnsettled, err), Unknown: true}
		}
	case q != nil:
		held := &store.HeldError{Status: c.status(q)}
		held.Here = c.has(q, held.Holders)
		w.refused = w.refused || q.head.refused
		if q.holder == nil && q.view.Seen == nil && c.full() { // it waits for what this client cleans up
			w.fault = errFull
		}
		if q.head == w && q.view.In {
			held.Place = q.view.Place
		}
		err = w.refusal(held, err)
	case w.Resumes == nil && errors.As(err, new(*CallerGone)):
		err = &Fault{Op: "acquire", Key: w.Key, Err: err}
	}
	c.deliver(w, nil, err)
}

// refusal returns the error of a caller that leaves without the key. It says that the key is held only if the
// caller knows it.
func (w *Caller) refusal(held *store.HeldError, err error) error {
	if !errors.As(err, new(*CallerGone)) {
		return Failed("acquire", w.Key, err)
	}
	patience := errors.Is(err, ErrPatience)
	switch {
	case w.fault == errFull: //nolint:errorlint // the exact sentinel, not wrapped
		return &Fault{Op: "acquire", Key: w.Key, Err: fmt.Errorf("%w: %w", err, errFull)}
	case errors.Is(err, ErrClosed), !w.refused:
		return &Fault{Op: "acquire", Key: w.Key, Err: err}
	case patience && w.fault == nil:
		return fmt.Errorf("%w: %w", held, ErrPatience)
	case patience:
		return errtext.Errorf("%w: %w; last fault: %v", held, ErrPatience, w.fault) // it may be the end of a command's context, and none of the caller's has ended
	case w.fault != nil:
		return errtext.Errorf("%w: %w; last fault: %w", held, err, w.fault)
	}
	return fmt.Errorf("%w: %w", held, err)
}

// deliver answers a caller, which leaves its queue.
func (c *core) deliver(w *Caller, h *Hold, err error) {
	w.gone = true
	c.set(&w.alarm, 0)
	if q := w.queue; q != nil {
		c.unlink(w)
		if h != nil && h.Terms.shares() {
			c.look(q) // the next in the queue may share the key
		}
	}
	c.answer(&w.Asker, h, err)
}

// try sends the claim of a caller that does not wait.
func (c *core) try(w *Caller) {
	if c.full() {
		c.deliver(w, nil, Failed("acquire", w.Key, errFull))
		return
	}
	c.claim(w, Move{}, &store.Claim{})
}

// triedOnce takes in the answer. A second claim follows if the first was refused but the key was free by the
// time that the store explained the refusal.
func (c *core) triedOnce(w *Caller, h *Hold, err error) {
	switch {
	case err == nil:
		c.deliver(w, h, nil)
		return
	case w.Resumes != nil:
		c.deliver(w, nil, err)
		return
	}
	var held *store.HeldError
	if is := errors.As(err, &held); is && w.tried == 0 && open(&held.Status, &store.Claim{Ref: store.Ref{Mode: w.Terms.Mode}, Limit: w.Terms.Limit, Weight: w.Terms.Weight}) {
		w.tried++
		c.try(w)
		return
	} else if is {
		held.Here = c.isHere(w.Key, held.Holders)
	}
	c.deliver(w, nil, Failed("acquire", w.Key, err))
}

// of returns the key of that name, and makes one if there is none.
func (c *core) of(name string) *key {
	if q := c.keys.All[name]; q != nil {
		return q
	}
	q := &key{name: name, stood: -1}
	q.alarm.of, q.check.alarm.of, q.check.key = q, &q.check, q
	c.keys.Put(name, q, func(_ string, q *key) bool {
		return q.head == nil && q.holder == nil && q.sharers == 0 && q.check.at == 0 && !q.todo
	})
	return q
}

// poke has the head decide before the step ends.
func (c *core) poke(q *key) {
	if !q.todo {
		q.todo = true
		c.undone = append(c.undone, q)
	}
}

func (q *key) ring(c *core) { c.poke(q) }

// look makes the head ask for the key. One that wants alone what this client shares only decides again: the key cannot
// be free for it, but it may have a place to keep.
func (c *core) look(q *key) {
	if q.head == nil {
		return
	}
	q.view.look = q.view.look || q.sharers == 0 || q.head.Terms.shares()
	c.poke(q)
}

// join puts a caller at the end of the key's queue.
func (c *core) join(w *Caller) {
	q := c.of(w.Key)
	w.queue, w.since = q, c.now
	c.waiting++
	if w.Candidate {
		c.candidates++
	}
	if q.head == nil {
		q.head, q.tail = w, w
		c.stand(q)
		c.poke(q)
	} else {
		w.prev, q.tail.next, q.tail = q.tail, w, w
		w.refused = !w.Terms.shares() || !q.head.Terms.shares() // it waits behind others of this process
		c.sleeps(w)
	}
	if q.holder != nil {
		q.holder.tellWanted()
	}
}

// sleeps says, the first time, that a caller waits.
func (c *core) sleeps(w *Caller) {
	if !w.waits {
		w.waits = true
		c.ready.Waits = append(c.ready.Waits, w)
	}
}

// stand begins the view of a new head, with a place for it.
func (c *core) stand(q *key) {
	t := q.head.Terms
	q.claim = nil
	q.view = View{Mode: t.Mode, Limit: t.Limit, Place: c.placeFor(t), Seen: q.view.Seen}
	q.view.look = true
	q.view.told = q.offeredAt // the release that it tells of may be under way
	if n := len(q.others); n >= store.LineMost-roomOutside && q.othersWait(c.now) {
		q.view.Outside(n, q.stood, q.othersAt, q.head.Leaves, c.now)
	}
}

// placeFor returns a place for a head on these terms, that never stood in a line. Most heads are granted the
// key at once, and the next one has the same place: so it is made once.
func (c *core) placeFor(t *Terms) store.Place {
	if t.shares() {
		return store.NewPlace(t.Mode, t.Limit, t.Weight, c.address())
	}
	if c.place == "" {
		c.place = store.NewPlace(t.Mode, t.Limit, 1, c.address())
	}
	return c.place
}

// used takes in that a place may stand in a line.
func (c *core) used(p store.Place) {
	if p == c.place {
		c.place = ""
	}
}

// unlink removes a caller, and passes the turn on if it was the head. The next head takes over the place of
// the head in the line, if it asks in the same mode. Otherwise the place is given up.
func (c *core) unlink(w *Caller) {
	q := w.queue
	led := q.head == w
	w.queue = nil
	c.waiting--
	if w.Candidate {
		c.candidates--
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
		w.next.refused = w.next.refused || led && w.refused // it has waited behind one that knew
	} else {
		q.tail = w.prev
	}
	w.prev, w.next = nil, nil
	if !led {
		return
	}
	if q.head == nil || !q.view.Serves(q.head.Terms.Mode, q.head.Terms.Limit, q.head.Terms.Weight) {
		if q.view.Joined {
			c.giveUpPlace(q.name, q.view.Place, q.view.In)
		}
		if q.head != nil {
			c.stand(q)
		} else {
			q.view, q.claim, q.readAt = View{}, nil, 0
			c.set(&q.alarm, 0)
			if q.watched {
				q.watched = false
				c.listen(-1)
			}
		}
	}
	if q.head != nil {
		c.poke(q)
	}
	if c.probed == q.name && !q.view.failing {
		c.nextProbe()
	}
}

// decide says what the head does next.
func (c *core) decide(q *key) {
	w := q.head
	if w == nil || q.claim != nil || c.draining {
		return
	}
	v := &q.view
	switch {
	case q.holder != nil:
		v.Away()
		w.refused = true
		c.sleep(q, c.readLater(q))
		return
	case c.mayHold(q.name): // our own claim may hold the key: when it is undone, that wakes us
		v.Away()
		c.sleep(q, 0)
		return
	case c.full(): // when there is room, that wakes us
		w.fault, c.crowded = errFull, true
		c.sleep(q, 0)
		return
	}
	if v.failing {
		if at := c.mayProbe(q.name); at > c.now {
			c.sleep(q, at)
			return
		}
	}
	held := v.Held() || q.othersWait(c.now) // before Next, which takes our turn for done
	m := v.Next(c.now)
	if !m.Ask {
		c.sleep(q, m.Until)
		return
	}
	c.set(&q.alarm, 0)
	if w.fault == errFull { //nolint:errorlint // the exact sentinel, not wrapped
		w.fault = nil
	}
	q.claim = c.claim(w, m, &store.Claim{
		Place: v.Place, Unseen: m.Unseen, Since: m.Since, Slow: c.now < c.slowUntil,
		Offered: m.Offered, InLine: v.In, Held: held, Full: v.Full,
	})
}

// sleep has the head decide again then, or when it is poked.
func (c *core) sleep(q *key, until moment) {
	c.set(&q.alarm, until)
	c.sleeps(q.head)
}

// readLater reads now and then a key that this client holds, where it would not learn otherwise that an
// operator has removed the holder by hand. It returns when to read next; zero: no need.
func (c *core) readLater(q *key) moment {
	if !q.holder.seldomRenewed() {
		return 0
	}
	if q.readAt != 0 && c.now >= q.readAt {
		q.readAt = 0
		c.read(q.name)
	}
	if q.readAt == 0 {
		q.readAt = c.now.Add(backoff.Jitter(readHeld))
	}
	return q.readAt
}

// claim sends a claim, under an ID of its own. ask has the place in the line, and hints.
func (c *core) claim(w *Caller, m Move, ask *store.Claim) *Call {
	call := &Call{Kind: Claim, Claim: *ask, by: w, move: m}
	call.hold = c.newHold(w, &call.Claim)
	if w.Resumes != nil {
		call.Kind, call.Ref = Transfer, *w.Resumes
	}
	w.call = call
	c.call(call, c.now.Add(min(w.Terms.TTL, maxCall)))
	return call
}

// claimed takes in the answer to a claim. It begins the lease that was granted, or makes sure that the claim
// leaves nothing behind.
func (c *core) claimed(call *Call) {
	w, h := call.by, call.hold
	err := c.begins(call)
	if call.Err == nil || store.IsVerdict(call.Err) {
		c.storeAnswers()
	}
	w.call = nil
	q := w.queue
	if !w.Once {
		q = c.of(w.Key)
	}
	stands := q != nil && q.claim == call // and the place is in use, by this caller or the next one
	if stands {
		q.claim = nil
	}
	switch {
	case w.Once && !w.gone:
		c.triedOnce(w, h, err)
	case w.gone && err == nil:
		c.discard(h, ErrReleased)
	case w.Once:
	case !stands:
		c.notGranted(w, call.Claim.Place, err)
	case err == nil:
		c.grantedTo(w, call)
	default:
		c.refusedTo(q.head, call, err)
	}
}

// begins makes the lease that a claim or a handoff was granted. An error says that there is none.
func (c *core) begins(call *Call) (err error) {
	defer func() { call.result = err }()
	h := call.hold
	if call.Err != nil {
		if !store.IsCertain(call.Err) {
			c.undo(h.Ref, call.handed(), c.now.Add(withDrift(h.Terms.TTL)))
		}
		return call.Err
	}
	due := h.grant(call.Sent, c.now, call.Grant)
	late, closed := c.now >= h.term.ends(), c.draining
	c.enter(h)
	switch {
	case late:
		c.discard(h, ErrReleased)
		return &undelivered{errLate}
	case closed:
		c.discard(h, ErrClosed)
		return &undelivered{ErrClosed}
	}
	c.set(&h.alarm, h.term.ends())
	if !h.Terms.NoRenewal {
		c.plan(h, due)
	}
	return nil
}

// handed returns what a handoff named; nil for other claims.
func (call *Call) handed() *store.Ref {
	if call.from == nil {
		return nil
	}
	return &call.from.Ref
}

// grantedTo gives the head the key that it has claimed, and tells others of it.
func (c *core) grantedTo(w *Caller, call *Call) {
	q, h := w.queue, call.hold
	if !call.Claim.Unseen.IsZero() {
		c.tell(notices(store.KindMoved, q.name, q.view.Passed(call.Claim.Unseen))) // those who live join again
	}
	untold := c.untold(q, call)
	if v := &q.view; v.inAt != 0 {
		q.stood = c.now.Sub(v.inAt)
	}
	q.served, q.view = call.Claim.Place, View{Seen: q.view.Seen}
	c.deliver(w, h, nil)
	if untold {
		c.freed(q.name)
	}
}

// refusedTo takes in that the head was refused, or that its claim failed, or that of the one before it, which has left.
func (c *core) refusedTo(w *Caller, call *Call, err error) {
	q, v, gone := w.queue, &w.queue.view, call.by != w
	c.used(call.Claim.Place)
	var held *store.HeldError
	switch {
	case errors.As(err, &held):
		w.refused, w.fault = true, nil
		c.watch(q)
		v.Refused(&held.Status, call.Sent, c.now)
		if v.Slow && !call.Claim.Slow {
			c.slowUntil = c.now.Add(slowFor)
		}
		c.tell(Wanted(&held.Status))
	case gone: // its claim may have been cut off for that, and the news that it consumed was meant for the next
		v.Joined = v.Joined || mayStand(err)
		v.look = true
	case errors.Is(err, ErrClosed), errors.Is(err, store.ErrDisconnected), store.IsVerdict(err), !w.refused:
		v.Joined = v.Joined || mayStand(err)
		v.look = true // for the next in the queue: the news that this claim consumed may have been meant for it
		c.leave(w, err)
		return
	default:
		w.fault = err
		v.Failed(c.now, mayStand(err))
		c.claimFailed()
	}
	c.poke(q)
}

// mayStand reports whether the place of a claim that failed may be in the line.
func mayStand(err error) bool {
	return !errors.Is(err, ErrClosed) && !errors.Is(err, store.ErrDisconnected) && (!store.IsCertain(err) || errors.Is(err, store.ErrPlaceUnknown))
}

// notGranted gives up the place of a claim that was answered when its caller had left. After a fault it may
// be in line, too: the store may have applied what it did not answer.
func (c *core) notGranted(w *Caller, p store.Place, err error) {
	refused := errors.Is(err, store.ErrHeld)
	if p == "" || !refused && !mayStand(err) {
		return
	}
	q := c.of(w.Key)
	if q.head != nil && q.view.Place == p {
		q.view.Joined = true
		return
	}
	c.giveUpPlace(w.Key, p, refused)
}

// untold reports whether those behind may share the key with a new holder, and nobody told them: as nobody
// told this one, as another permit has run out since, or as the next one allows more permits than this one
// did, which came before it.
func (c *core) untold(q *key, call *Call) bool {
	h, t := call.hold, call.hold.Terms
	if !t.shares() || len(h.line) == 0 {
		return false
	}
	if t.Mode != store.Permits || !call.move.Told {
		return !call.move.Told
	}
	now := h.Since.Add(c.now.Sub(h.granted)) // by the store's clock
	mode, limit := behind(q.view.Seen, h.line, now).Mode()
	return mode == store.Permits && limit > t.Limit || ranOut(q.view.Seen, now)
}

// othersWait reports whether other processes probably wait, because the last release found them waiting.
func (q *key) othersWait(now moment) bool {
	return len(q.others) > 0 && now.Sub(q.othersAt) <= othersFor
}

// status returns what is known of the key's holders.
func (c *core) status(q *key) store.Status {
	switch {
	case q.holder != nil:
		return c.statusOf(q.holder)
	case q.view.Seen != nil:
		return *q.view.Seen
	}
	return store.Status{Key: q.name, Mode: store.Exclusive}
}

// isHere reports whether one of the holders is a lease that this client has.
func (c *core) isHere(name string, holders []store.Holder) bool {
	q := c.keys.All[name]
	return q != nil && c.has(q, holders)
}

func (c *core) has(q *key, holders []store.Holder) bool {
	is := func(h *Hold) bool { return h.queue == q && h.err == nil && h.isAmong(holders) }
	if q.sharers == 0 {
		return q.holder != nil && is(q.holder)
	}
	for h := c.held; h != nil; h = h.next {
		if is(h) {
			return true
		}
	}
	return false
}
