package mongolock

import (
	"errors"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// A step is the next action of a waiter.
type step int

const (
	toSleep step = iota
	toTake       // the lease that it was handed
	toAsk        // for the key
	toRead       // the key, while it sleeps
)

// A move is a step with its arguments.
type move struct {
	step  step
	until monotonic.Moment // toSleep: until then; zero: until it is nudged
	lease *Lease           // toTake
	claim store.Claim      // toAsk: the place in the line, and hints
	now   monotonic.Moment // toAsk: when this was decided; trust in the grant begins here
	told  bool             // toAsk: by a notice, that it is our turn
}

// next decides the next move of w, which has made the one before.
func (qs *queues) next(w *waiter) move {
	now := qs.clock.Now()
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w.asking = false
	return qs.decide(w, now)
}

// decide is next with the time given. A time read before mu was waited for is a little
// early, which only makes trust in a grant begin a little earlier.
func (qs *queues) decide(w *waiter, now monotonic.Moment) move {
	q := w.queue
	switch {
	case w.lease != nil:
		w.gaveUp = qs.unlink(w)
		return move{step: toTake, lease: w.lease}
	case q.head != w:
		return w.sleepUntil(0)
	case q.holder != nil:
		q.view.Away()
		w.refused = true
		if !q.holder.seldomRenewed() { // otherwise it learns by itself if an operator removes it by hand
			return w.sleepUntil(0)
		}
		if q.readAt == 0 {
			q.readAt = now.Add(backoff.Jitter(readHeld))
		}
		if now < q.readAt {
			return w.sleepUntil(q.readAt)
		}
		q.readAt = 0
		return move{step: toRead}
	case qs.cleaner.May(w.key): // our own claim may hold the key: when it is cleaned up, that wakes us
		q.view.Away()
		return w.sleepUntil(0)
	}
	v := &q.view
	if v.Failing() {
		if at := qs.mayProbe(w.key, now); at > now {
			return w.sleepUntil(at)
		}
	}
	held := v.Held() || q.othersWait(now) // before Next, which takes our turn for done
	switch m := v.Next(now); {
	case m.Ask:
		w.asking = true
		return move{step: toAsk, now: now, told: m.Told, claim: store.Claim{
			Place: v.Place, Unseen: m.Unseen, Since: m.Since, Slow: now < qs.slowUntil,
			Offered: m.Offered, InLine: v.In, Held: held, Full: v.Full,
		}}
	default:
		return w.sleepUntil(m.Until)
	}
}

// readHeld is about how long a head does not read a key that this client holds, where the client
// would not learn otherwise that the key was taken away by hand.
const readHeld = 45 * time.Second

func (w *waiter) sleepUntil(t monotonic.Moment) move {
	if w.nudge == nil { // most waiters are served at once and need no channel
		w.nudge = make(chan struct{}, 1)
	}
	return move{step: toSleep, until: t}
}

// untold reports whether those behind may share the key with a new holder, and nobody told them: as
// nobody told this one, as another permit has run out since, or as the next one allows more permits
// than this one did, which came before it.
func (qs *queues) untold(w *waiter, m move, h *holding) bool {
	behind := h.waiting()
	if !w.terms.shares() || len(behind) == 0 {
		return false
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w.terms.mode != store.Permits || !m.told {
		return !m.told
	}
	now := h.since.Add(qs.clock.Since(h.granted)) // by the store's clock
	seen := w.queue.view.Seen
	mode, limit := line.Behind(seen, behind, now).Mode()
	return mode == store.Permits && limit > w.terms.limit || line.RanOut(seen, now)
}

// slowFor is for how long a client whose place was passed says so. It is given more time: a slow process
// loses one turn, not one in each wait.
const slowFor = time.Minute

// answered takes in the answer to a claim of the head, and returns whom to tell of it.
func (qs *queues) answered(w *waiter, m move, lease *Lease, err error) (_ *Lease, tell []store.Notice, _ error) {
	now := qs.clock.Now()
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q, place := w.queue, m.claim.Place
	w.asking = false
	if err == nil || store.IsVerdict(err) {
		qs.recovered(now)
	}
	if lease != nil {
		if !m.claim.Unseen.IsZero() {
			tell = wake.Notices(store.KindMoved, w.key, q.view.Passed(m.claim.Unseen)) // those who live join again
		}
		q.served, q.view = place, line.View{Seen: q.view.Seen}
		return lease, tell, nil
	}
	if place == qs.place {
		qs.place = "" // it may stand in this line
	}
	var held *store.HeldError
	switch {
	case errors.As(err, &held):
		w.refused, w.fault = true, nil
		qs.watchFor(q)
		q.view.Refused(&held.Status, m.now, now)
		if q.view.Slow && !m.claim.Slow {
			qs.slowUntil = now.Add(slowFor)
		}
		return nil, wake.Wanted(&held.Status), nil
	case errors.As(err, new(*abandoned)), errors.Is(err, ErrClosed), errors.Is(err, ErrDisconnected), store.IsVerdict(err), !w.refused:
		// A claim that was not applied may have joined the line. One that goes on is seen to later: notGranted.
		q.view.Joined = q.view.Joined || !store.IsVerdict(err) && !errors.As(err, new(*abandoned))
		q.view.Look() // for the next in the queue: the news that this claim consumed may have been meant for it
		return nil, nil, err
	}
	w.fault = err
	q.view.Failed(now)
	qs.probeAt = now.Add(probePause)
	qs.nextProbe()
	return nil, nil, nil
}

// wait waits for news until then, without limit if that is zero. An error ends the wait for the key.
func (qs *queues) wait(w *waiter, news <-chan struct{}, until monotonic.Moment) error {
	select {
	case <-news:
	case <-qs.clock.After(until):
	case <-qs.clock.After(w.patience):
		return &abandoned{errPatience}
	case <-w.ctx.Done():
		return &abandoned{contextError(w.ctx)}
	case <-qs.draining:
		return &abandoned{ErrClosed}
	}
	if w.patience != 0 && qs.clock.Now() >= w.patience { // news of that very moment come too late
		return &abandoned{errPatience}
	}
	return nil
}

var errPatience = errors.New("MaxWait is over")
