package simulation

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/history"
)

// The keys: two that are only ever held exclusively, one of readers and writers, and one of
// permits.
var allKeys = []string{"alpha", "beta", readers, permits}

const (
	readers = "gamma"
	permits = "delta"
)

// chooseKeys chooses the keys of a run: most often some that are held exclusively, else those
// that are shared, or all.
func chooseKeys(d *rng) []string {
	switch {
	case d.chance(600):
		return allKeys[:1+d.n(2)]
	case d.chance(400):
		return allKeys
	}
	return allKeys[2:]
}

// mode chooses how u takes a key this time. Now and then it is the wrong mode.
func (u *user) mode(key string) history.Mode {
	limit := u.p.world.plan.permits
	reader, owner := history.Mode{Shared: true}, history.Mode{Shared: true, Limit: limit}
	switch {
	case key == readers && u.rng.chance(700):
		return wrongly(u.rng, reader, owner)
	case key == permits && u.rng.chance(850):
		return wrongly(u.rng, owner, reader)
	}
	return history.Mode{}
}

func wrongly(d *rng, right history.Mode, wrong ...history.Mode) history.Mode {
	if d.chance(40) {
		return oneOf(d, wrong...)
	}
	return right
}

// A notingLocker is a user's client behind a wrapper. It notes every call of AcquireAll, and its
// answer.
type notingLocker struct {
	u     *user
	until time.Duration
	tries map[string]int // the calls of TryAcquire, by their keys: they are made side by side
	given atomic.Bool    // AcquireAll has returned the leases
}

// Acquire is the client's.
func (n *notingLocker) Acquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	call := history.Event{Kind: history.Called, Client: n.u.p.id, Key: key, Op: n.u.newOp(), Until: n.until}
	return n.noting(ctx, call, n.u.p.client.Acquire, opts)
}

// TryAcquire is the client's.
func (n *notingLocker) TryAcquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	call := history.Event{Kind: history.Called, Client: n.u.p.id, Key: key, Op: n.tries[key], Note: "try"}
	return n.noting(ctx, call, n.u.p.client.TryAcquire, opts)
}

func (n *notingLocker) noting(ctx context.Context, call history.Event, take func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error), opts []mongolock.AcquireOption) (*mongolock.Lease, error) {
	n.u.p.world.note(call)
	l, err := take(withOp(ctx, call.Op), call.Key, opts...)
	call.Note = ""
	n.u.answered(call, l, err, n.given.Load)
	return l, err
}

// acquireSeveral takes some keys exclusively with the client itself, which first claims them side by
// side, and holds them together. All calls are noted when they are answered together. None of
// them has a time by which it must be: what was granted so far is given back first.
func (u *user) acquireSeveral(d *rng, patience time.Duration, opts ...mongolock.AcquireOption) {
	w := u.p.world
	keys := slices.Clone(u.keys)
	if len(keys) > 2 && d.chance(500) {
		keys = keys[:2]
	}
	if d.chance(500) {
		slices.Reverse(keys)
	}
	calls := make([]history.Event, len(keys))
	ops := make(map[string]int, len(keys))
	for i, key := range keys {
		calls[i] = history.Event{Kind: history.Called, Client: u.p.id, Key: key, Op: u.newOp()}
		ops[key] = calls[i].Op
	}
	w.mu.Lock()
	w.together[calls[0].Op] = ops
	for _, call := range calls {
		w.noteLocked(call)
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(withOp(u.ctx(), calls[0].Op), patience)
	defer cancel()
	all, err := mongolock.AcquireAll(ctx, u.p.client, keys, opts...)
	for i, call := range calls {
		var l *mongolock.Lease
		if err == nil {
			l = all[i]
		}
		u.answered(call, l, err, func() bool { return true })
	}
	if err == nil {
		u.holdAll(all, w.atOnce && d.chance(500))
	}
}

// opOf is the call that a command belongs to which was sent for one key of several.
func (w *world) opOf(op int, key string) int {
	if of, ok := w.together[op][key]; ok {
		return of
	}
	return op
}

// acquireTwo takes two keys exclusively, by calls that are noted one by one, and holds them together.
func (u *user) acquireTwo(patience time.Duration) {
	first := u.rng.n(len(u.keys))
	keys := []string{u.keys[first], u.keys[(first+1)%len(u.keys)]}
	ctx, cancel := context.WithTimeout(u.ctx(), patience)
	defer cancel()
	n := &notingLocker{u: u, until: u.p.world.since() + patience, tries: make(map[string]int, len(keys))}
	for _, key := range keys {
		n.tries[key] = u.newOp()
	}
	all, err := mongolock.AcquireAll(ctx, n, keys)
	if err != nil {
		return
	}
	n.given.Store(true)
	u.holdAll(all, false)
}

// holdAll holds some leases together. It gives them back one after the other, or together,
// with one command: what goes alone of them then begins in one instant, and is retried in the
// same instants, in any order.
func (u *user) holdAll(all mongolock.Leases, together bool) {
	over := time.NewTimer(u.rng.between(time.Microsecond, u.most(u.p.world.plan.ttl/2)))
	defer over.Stop()
	select {
	case <-over.C:
	case <-all.Context(u.ctx()).Done():
	}
	if together {
		for _, l := range all {
			u.note(history.LetGo, l, history.Released)
		}
		_ = all.Release()
		u.breathe()
	}
	for _, l := range all {
		if together {
			u.released(l, l.Release()) // its answer, once more; or another attempt
		} else {
			u.release(l)
		}
		time.Sleep(u.rng.between(time.Microsecond, time.Millisecond))
	}
}
