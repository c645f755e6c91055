package mongolock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/store"
)

// How long a waiter sleeps at most, and how long its word lasts at least.
const (
	lookMost  = time.Minute
	wordLeast = 3 * time.Minute
	lookAgain = 50 * time.Millisecond // after a word was left
)

// A queue is the waiters of one client for one key, in order of arrival, and this
// client's own lease on it. Only the head talks to the store, and not even it
// while the client itself holds the key. Protected by Client.mu.
type queue struct {
	key        string
	holder     *Lease // the newest lease of this client that has the key alone, until it is settled
	sharers    int    // those of its leases that share the key
	head, tail *waiter
	woken      bool          // look again; latched for the key, so that a head which leaves does not eat it
	freed      bool          // and the key may be free, somebody said; with it woken is set
	lookAt     moment        // when the head asks again without a wake-up
	again      moment        // when the key is read once more, to be sure; zero: no need
	pause      time.Duration // before that
	firm       int           // looks in a row that showed the holder our word was left with
	seen       *store.Status // what the last refusal showed
	moved      moment        // when a poll last saw it in other hands
	freeSeen   int           // refusals in a row that showed a free key
	faults     func() time.Duration
	word       moment    // until when our word stands, by our reckoning
	reserved   time.Time // the end of the writer's word that its own refusal showed
}

// A waiter is one Acquire. Its first fields do not change; the others are
// protected by Client.mu.
type waiter struct {
	ctx      context.Context
	key      string
	terms    *terms
	patience moment // MaxWait after the call; zero: none

	queue      *queue
	prev, next *waiter
	nudge      chan struct{} // of capacity 1: look again at what to do
	lease      *Lease        // handed over to it
	gone       bool          // it left; what is handed to it must be given back
	asking     bool          // a claim of its own is under way
	refused    bool          // it was told, or can tell, that the key is held
	fault      error         // the last one it rode out
}

// A move is what a waiter has to do now.
type move struct {
	lease *Lease // it has the key
	ask   bool   // send a claim
	held  bool   // it is expected to be refused: a look
	read  bool   // read the key beside it, and sleep on
	until moment // sleep; zero: until it is nudged
	now   moment // when that was decided, with ask; the claim was entered as background work then
	shut  bool   // the client is closed: leave
}

// await is Acquire: it stands in the queue until it has the key, or leaves.
func (c *Client) await(ctx context.Context, key string, t *terms) (lease *Lease, err error) {
	var endWait func(Outcome)
	defer func() {
		if endWait != nil {
			endWait(Outcome{Err: err, Count: 1})
		}
	}()
	for w, m := c.join(ctx, key, t); ; m = c.next(w) {
		switch {
		case m.shut:
			return c.leave(w, nil, &abandoned{ErrClosed})
		case m.lease != nil:
			return m.lease, nil
		case m.ask:
			lease, err := c.askForKey(w, m)
			if lease != nil && c.prompt {
				return lease, nil // w left as it was granted
			}
			if lease != nil || err != nil {
				return c.leave(w, lease, err)
			}
		case m.read:
			c.spawn(func() { c.read(key) })
		default:
			if endWait == nil {
				_, endWait = c.observe(ctx, OpWait, key)
			}
			if err := c.sleep(w, m.until); err != nil {
				return c.leave(w, nil, err)
			}
		}
	}
}

// join puts a waiter at the end of the key's queue, and tells what to do there.
func (c *Client) join(ctx context.Context, key string, t *terms) (*waiter, move) {
	var patience moment
	if t.maxWait > 0 {
		patience = c.now().add(t.maxWait)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q, w := c.queueOf(key), c.idle
	if w == nil {
		w = new(waiter)
	}
	c.idle = nil
	w.ctx, w.key, w.terms, w.patience, w.queue = ctx, key, t, patience, q
	c.waiting++
	if q.head == nil {
		q.head, q.tail, q.woken = w, w, true
	} else {
		w.prev, q.tail.next, q.tail = q.tail, w, w
		w.refused = !w.terms.shares() || !q.head.terms.shares() // behind others of this process
	}
	return w, c.decide(w)
}

// queueOf is the key's queue, a new one if need be. With c.mu held.
func (c *Client) queueOf(key string) *queue {
	q := c.queues[key]
	switch {
	case q == nil && c.spare == nil:
		q = &queue{key: key}
		c.queues[key] = q
	case q == nil:
		q, c.spare = c.spare, nil
		delete(c.queues, q.key)
		q.key = key
		c.queues[key] = q
	case q == c.spare:
		c.spare = nil
	}
	return q
}

// tidy drops a queue that nobody is in. The last one stays, under its key, until
// another is needed: often it is the same key that is asked for again. With c.mu held.
func (c *Client) tidy(q *queue) {
	if q.head != nil || q.holder != nil || q.sharers > 0 {
		return
	}
	if c.spare != nil && c.spare != q {
		delete(c.queues, c.spare.key)
	}
	c.spare = q
}

// next tells what w is to do now.
func (c *Client) next(w *waiter) move {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decide(w)
}

// decide is next, with c.mu held.
func (c *Client) decide(w *waiter) move {
	q := w.queue
	switch {
	case w.lease != nil:
		c.unlink(w)
		return move{lease: w.lease}
	case q.head != w:
		return w.sleepUntil(0)
	case q.holder != nil:
		w.refused = true
		return w.sleepUntil(0)
	}
	now := c.now()
	if shy, ok := c.shy[w.key]; ok && now < shy {
		w.refused = true // as good as: it is left to others
		if q.again == 0 {
			q.again = now.add(jittered(shyLook))
		}
		return q.sleepOrRead(w, now, shy)
	}
	if q.woken || now >= q.lookAt {
		held := q.seen != nil && !open(q.seen, w.terms) && (!q.freed || amongSharers(q.seen, w.terms))
		if !c.enterLocked() {
			return move{shut: true}
		}
		q.woken, q.freed, w.asking = false, false, true
		return move{ask: true, held: held, now: now}
	}
	return q.sleepOrRead(w, now, q.lookAt)
}

// sleepOrRead lets the head sleep until t, but for a look that is due before.
func (q *queue) sleepOrRead(w *waiter, now, t moment) move {
	switch {
	case q.again == 0:
	case now >= q.again:
		q.again = 0
		return move{read: true}
	default:
		t = min(t, q.again)
	}
	return w.sleepUntil(t)
}

func (w *waiter) sleepUntil(t moment) move {
	if w.nudge == nil { // most waiters are served at once and need none
		w.nudge = make(chan struct{}, 1)
	}
	return move{until: t}
}

// askForKey sends a claim for the head, and plans the next look if it is refused
// or, once w is waiting, fails.
func (c *Client) askForKey(w *waiter, m move) (*Lease, error) {
	want := max(2*w.terms.ttl, wordLeast)
	lease, err := c.send(w, want, m.held, m.now)
	if lease != nil {
		return lease, nil // and w leaves, or has left
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	w.asking = false
	q := w.queue
	var held *store.HeldError
	switch {
	case errors.As(err, &held):
		q.faults = nil
		w.refused, w.fault = true, nil
		c.refused(q, w, held.Status, want)
		return nil, nil
	case errors.As(err, new(*abandoned)), errors.Is(err, ErrClosed), store.IsVerdict(err), !w.refused:
		q.woken, q.freed = true, true // the next in line asks for himself: what woke this one may be news to him
		return nil, err
	}
	if q.faults == nil {
		q.faults = backoff(50*time.Millisecond, time.Second)
	}
	w.fault = err
	q.lookAt = c.now().add(q.faults())
	return nil, nil
}

// refused plans when to look at a held key again. With c.mu held.
func (c *Client) refused(q *queue, w *waiter, s store.Status, want time.Duration) {
	now := c.now()
	c.watch.begin(q.seen == nil)
	if !q.sees(s) {
		q.firm = 0
	}
	q.seen, q.reserved = &s, time.Time{}
	if !w.terms.shares() {
		q.reserved = w.ownWord(&s)
	}
	q.word = now.add(wordOf(&s, w.terms, want) / 2)
	q.pause = lookAgain
	c.makeSure(q, now)
	if open(&s, w.terms) {
		// Freed while the refusal was on its way: ask once more at once, and if
		// others are always faster, not in a tight loop.
		q.lookAt = now
		if q.freeSeen++; q.freeSeen > 1 {
			q.lookAt = now.add(jittered(5 * time.Millisecond))
		}
	} else {
		q.freeSeen = 0
		q.lookAt = min(now.add(drifted(opens(&s, w.terms))), q.word, now.add(jittered(lookMost*3/4)))
	}
}

// makeSure plans to read the key once more, unless two looks showed the holder that
// our word was left with, the second a moment after the first: then its release will
// see the word. Until then the word may have gone with a holder whose release was
// under way. With c.mu held.
func (c *Client) makeSure(q *queue, now moment) {
	q.again = 0
	switch {
	case q.firm > 1, !c.watch.live, knob.WordAfterLook: // in the second it polls
		return
	case q.firm == 1:
		q.pause = pollMost
	}
	q.again = now.add(jittered(q.pause))
	q.pause = min(2*q.pause, pollMost)
	q.head.poke() // it may sleep for longer
}

// sleep waits for whatever comes first; an error ends the wait.
func (c *Client) sleep(w *waiter, until moment) error {
	wake, stopWake := c.timerAt(until)
	defer stopWake()
	giveUp, stopGiveUp := c.timerAt(w.patience)
	defer stopGiveUp()
	select {
	case <-w.nudge:
	case <-wake:
	case <-giveUp:
		return &abandoned{errPatience}
	case <-w.ctx.Done():
		return &abandoned{contextError(w.ctx)}
	case <-c.draining:
		return &abandoned{ErrClosed}
	}
	return nil
}

var errPatience = errors.New("MaxWait is over")

func (c *Client) timerAt(t moment) (<-chan time.Time, func() bool) {
	if t == 0 {
		return nil, func() bool { return false }
	}
	timer := time.NewTimer(c.until(t))
	return timer.C, timer.Stop
}

// leave takes w out of the queue. A lease handed over in the last moment is not
// lost: the caller gets it.
func (c *Client) leave(w *waiter, lease *Lease, err error) (*Lease, error) {
	lease, word, err := c.leaveLine(w, lease, err)
	c.takeBack(w.key, word)
	return lease, err
}

func (c *Client) leaveLine(w *waiter, lease *Lease, err error) (_ *Lease, word time.Time, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.gone = true
	if lease == nil {
		lease = w.lease
	}
	q := w.queue
	if lease != nil {
		if lease.terms.shares() {
			q.woken, q.freed = true, true // the next in line may share it
		}
		c.unlink(w)
		return lease, word, nil
	}
	status := q.status()
	w.refused = w.refused || q.head.refused
	word = c.wordLeft(w)
	c.unlink(w)
	return nil, word, w.gaveUp(status, err)
}

// gaveUp is the error of a waiter that leaves without the key. It says that the
// key is held only if w knows.
func (w *waiter) gaveUp(status store.Status, err error) error {
	if !errors.As(err, new(*abandoned)) {
		return failed("acquire", w.key, err)
	}
	held := &HeldError{Status: status}
	patience := errors.Is(err, errPatience)
	switch {
	case errors.Is(err, ErrClosed), !w.refused:
		return &fault{op: "acquire", key: w.key, err: err}
	case patience && w.fault == nil:
		return held
	case patience:
		return fmt.Errorf("%w; last fault: %w", held, w.fault)
	case w.fault != nil:
		return fmt.Errorf("mongolock: acquire %q: %w: %w; last fault: %w", w.key, err, held, w.fault)
	}
	return fmt.Errorf("mongolock: acquire %q: %w: %w", w.key, err, held)
}

// status is what is known of who holds the key. With Client.mu held.
func (q *queue) status() store.Status {
	switch {
	case q.holder != nil:
		return q.holder.status()
	case q.seen != nil:
		return *q.seen
	}
	return store.Status{Key: q.key, Mode: store.Exclusive}
}

// status is this lease as a store would show it, reckoned from its grant.
func (l *Lease) status() store.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return store.Status{
		Key: l.key, Mode: store.Exclusive, Limit: 1, Now: l.since.Add(l.client.since(l.granted)),
		Holders: []store.Holder{{
			ID: l.id, Owner: l.client.owner, Note: l.terms.note, Since: l.since,
			ExpireAt: l.since.Add(l.deadline.sub(l.granted) + l.margin),
		}},
	}
}

// sees reports whether the holders are those that were seen last.
func (q *queue) sees(s store.Status) bool {
	return q.seen != nil && slices.EqualFunc(s.Holders, q.seen.Holders, func(a, b store.Holder) bool { return a.ID == b.ID })
}

// granted takes w out of the queue as the claim is answered that it waits for. If
// nobody else ever knew of w it is used again. With c.mu held.
func (c *Client) granted(w *waiter) {
	if w.terms.shares() {
		w.queue.woken, w.queue.freed = true, true // the next in line may share it
	}
	c.unlink(w)
	if w.nudge == nil && !w.refused {
		*w = waiter{}
		c.idle = w
	}
}

// unlink removes w, and passes the turn on if it was the head's. With c.mu held.
func (c *Client) unlink(w *waiter) {
	q := w.queue
	c.waiting--
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.tail = w.prev
	}
	w.prev, w.next = nil, nil
	if q.head == nil {
		*q = queue{key: q.key, holder: q.holder, sharers: q.sharers} // the next to wait begins anew
		c.tidy(q)
		c.watch.idle()
		return
	}
	q.head.poke()
}

// poke makes w look again at what to do. With Client.mu held.
func (w *waiter) poke() {
	if w.nudge == nil {
		return // it did not sleep yet, and looks before it does
	}
	select {
	case w.nudge <- struct{}{}:
	default:
	}
}

// deliver gives a lease to the waiter that it was claimed for.
func (c *Client) deliver(w *waiter, lease *Lease) {
	c.mu.Lock()
	if !w.gone && !w.asking {
		w.lease = lease
		w.poke()
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	lease.giveBackUnseen(ErrReleased)
}

// wake makes the head ask for a key that may be free. With c.mu held.
func (c *Client) wake(key string) {
	if q := c.queues[key]; q != nil {
		q.wake()
	}
}

// wake is Client.wake, with Client.mu held.
func (q *queue) wake() {
	if q.head != nil && (q.sharers == 0 || q.head.terms.shares()) { // else it cannot be
		q.freed = true
		q.look()
	}
}

// look makes the head look at the key again. With Client.mu held.
func (q *queue) look() {
	if q.head != nil {
		q.woken = true
		q.head.poke()
	}
}

// leaveToOthers keeps the waiters of this process from a key that others left
// word for: being a round trip closer, they would win every time.
func (c *Client) leaveToOthers(key string) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.shy) >= 64 { // swept as it grows, so that it does not
		for k, until := range c.shy {
			if until < now {
				delete(c.shy, k)
			}
		}
	}
	c.shy[key] = now.add(shyTime)
}

// freed tells those who wait that the key may be free: here, and in other
// processes by the feed.
func (c *Client) freed(key string) {
	c.mu.Lock()
	c.wake(key)
	feed := c.feed
	c.mu.Unlock()
	if feed == nil {
		return
	}
	c.spawn(func() { c.announce(feed, key) })
}

// announce tells other processes that the key may be free. It does so also where
// this one does not listen: others may.
func (c *Client) announce(feed store.Feed, key string) {
	ctx := c.within(context.Background(), releaseBound)
	defer ctx.end()
	err := feed.Notify(ctx, store.Notice{Topic: store.TopicLocks, Key: key, Kind: store.KindFreed})
	if err == nil {
		return
	}
	c.logger.Debug("mongolock: a wake-up was not sent; waiters find out by themselves", "key", key, "error", err)
	if errors.Is(err, errors.ErrUnsupported) {
		c.mu.Lock()
		c.feed = nil
		c.mu.Unlock()
	}
}

// jitter draws from crypto/rand, which a test can seed.
func jitter() float64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return float64(binary.LittleEndian.Uint64(b[:])>>11) / (1 << 53)
}
