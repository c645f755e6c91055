package keeper

import (
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// Renew waits for a renewal of the item that is under way and then sends another one, so that
// the renewal comes after everything that the caller did before. ok is false if the item had
// ended.
func (k *Keeper) Renew(item Item) (answer store.Renewed, ok bool) {
	s := item.slot()
	k.ask(s, 1)
	mine, other := item.Begin()
	for !mine && other != nil {
		<-other
		mine, other = item.Begin()
	}
	if !mine {
		k.ask(s, -1)
		return store.Renewed{}, false
	}
	answers, tell := k.send([]Item{item}, 1)
	tell()
	return answers[0], true
}

func (k *Keeper) ask(s *Slot, by int) {
	k.mu.Lock()
	s.asked += by
	k.mu.Unlock()
}

// renew sends one renewal for all of batch, which have begun.
func (k *Keeper) renew(batch []Item) {
	if len(batch) > 0 {
		_, tell := k.send(batch, 0)
		tell()
	}
}

// send is renew without telling of the answers: the function that it returns tells. asked is how
// many calls of Renew it is for: until it is answered, no retry comes between.
func (k *Keeper) send(batch []Item, asked int) (answers []store.Renewed, tell func()) {
	sent, limit := k.host.Clock.Now(), MaxCall
	for _, item := range batch {
		limit = min(limit, item.Patience(sent))
	}
	done := func() {}
	if s := batch[0].slot(); s.First {
		done = k.goAhead(s.TTL)
	}
	answers, told := k.host.Send(batch, sent, limit)
	done()
	now := k.host.Clock.Now()
	last := k.answered(batch, asked, now.Sub(sent))
	var tells []func()
	var failed []Item
	for i, item := range batch {
		next := item.Answer(answers[i], sent, now)
		if next.Again {
			failed = append(failed, item)
		} else if next.Due != 0 {
			k.Plan(item, next.Due)
		}
		if next.Tell != nil {
			tells = append(tells, next.Tell)
		}
	}
	k.retry(failed, last, sent, now)
	return answers, func() {
		for _, f := range tells {
			f()
		}
		told()
	}
}

// answered ends what was planned for the items of a batch: a call of Renew may have come
// between. It learns the pace of the store. What it returns stays in charge of an item, and does
// nothing, until another call for the item is answered.
func (k *Keeper) answered(batch []Item, asked int, took time.Duration) *retry {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := &retry{keeper: k}
	for _, item := range batch {
		s := item.slot()
		s.retry, s.asked = last, s.asked-asked
		k.pull(item)
	}
	k.pace.answered(len(batch), took)
	return last
}

// retryParts is how many renewals take the place of one that failed.
const retryParts = 16

// A retry repeats the renewal of items that failed together. They stay out of the group's
// schedule until they are renewed: one document that is blocked, by an open transaction, may
// hold up every renewal that is sent with its own. Items that failed together are repeated in
// parts, side by side, so that the blocked one is soon alone: that takes three rounds for a
// thousand items, and one for sixteen.
type retry struct {
	keeper *Keeper
	items  []Item
}

// retry repeats the renewals of items that failed, which were sent at sent and answered now, unless
// last is no longer in charge: a call of Renew that waited for its turn has had it. A quick refusal
// is repeated after a pause, a call that took its time at once.
func (k *Keeper) retry(failed []Item, last *retry, sent, now monotonic.Moment) {
	if len(failed) == 0 {
		return
	}
	pause := failed[0].RetryPause(now)
	for _, item := range failed {
		pause = min(pause, item.RetryPause(now))
	}
	wait := max(sent.Add(backoff.Jitter(pause)).Sub(now), 0)
	for part := range slices.Chunk(failed, (len(failed)+retryParts-1)/retryParts) {
		r := &retry{keeper: k}
		k.mu.Lock()
		for _, item := range part {
			if s := item.slot(); s.retry == last {
				s.retry, r.items = r, append(r.items, item)
			}
		}
		k.mu.Unlock()
		time.AfterFunc(wait, r.run) // run does nothing once the tasks are closed
	}
}

func (r *retry) run() {
	k := r.keeper
	if !k.host.Tasks.Begin() {
		return
	}
	defer k.host.Tasks.Done()
	k.mu.Lock()
	mine := slices.DeleteFunc(r.items, func(item Item) bool {
		s := item.slot()
		return s.retry != r || s.asked > 0 // a call of Renew came between, or is about to
	})
	k.mu.Unlock()
	k.renew(begun(mine))
}

// An ahead is a renewal that goes ahead of everything else that a client does in the
// background.
type ahead struct {
	answered chan struct{}
	until    monotonic.Moment // waiting for it ends then
}

// goAhead begins such a renewal, and returns the function that ends it.
func (k *Keeper) goAhead(ttl time.Duration) (answered func()) {
	a := &ahead{make(chan struct{}), k.host.Clock.Now().Add(ttl / 40)}
	k.mu.Lock()
	k.ahead = a
	k.mu.Unlock()
	return func() {
		k.mu.Lock()
		if k.ahead == a {
			k.ahead = nil
		}
		k.mu.Unlock()
		close(a.answered)
	}
}

// Yield waits while an item is renewed that goes first, but for at most a fortieth of its TTL:
// a renewal that hangs does not need the server.
func (k *Keeper) Yield() {
	k.mu.Lock()
	a := k.ahead
	k.mu.Unlock()
	if a == nil {
		return
	}
	left := k.host.Clock.Until(a.until)
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-a.answered:
	case <-timer.C:
	case <-k.host.Tasks.Base().Done():
	}
}
