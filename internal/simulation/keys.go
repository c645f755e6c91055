package simulation

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/history"
)

// The keys: two that are only ever held exclusively, one of readers and writers, and one of
// permits.
var allKeys = []string{"alpha", "beta", readers, permits}

const (
	readers     = "gamma"
	permits     = "delta"
	permitLimit = 2
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
	reader, owner := history.Mode{Shared: true}, history.Mode{Shared: true, Limit: permitLimit}
	switch {
	case key == readers && u.rng.chance(700):
		return wrongly(u.rng, reader, owner)
	case key == permits && u.rng.chance(850):
		return wrongly(u.rng, owner, reader, history.Mode{Shared: true, Limit: permitLimit + 1})
	}
	return history.Mode{}
}

func wrongly(d *rng, right history.Mode, wrong ...history.Mode) history.Mode {
	if d.chance(40) {
		return oneOf(d, wrong...)
	}
	return right
}

// A notingLocker is a user's client, as AcquireAll uses it. It notes every call and its
// answer.
type notingLocker struct {
	u     *user
	until time.Duration
	given atomic.Bool // AcquireAll has returned the leases
}

// Acquire is the client's.
func (n *notingLocker) Acquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	u := n.u
	op := u.newOp()
	call := history.Event{Kind: history.Called, Client: u.p.id, Key: key, Op: op, Until: n.until}
	u.p.world.note(call)
	l, err := u.p.client.Acquire(withOp(ctx, op), key, opts...)
	u.answered(call, l, err, n.given.Load)
	return l, err
}

// TryAcquire is not called by AcquireAll.
func (n *notingLocker) TryAcquire(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return nil, errors.ErrUnsupported
}

// acquireTwo takes two keys exclusively and holds them together. It gives them back one after
// the other. Releasing both at once would begin in one instant, and be retried in the same
// instants, in any order.
func (u *user) acquireTwo(patience time.Duration) {
	first := u.rng.n(len(u.keys))
	keys := []string{u.keys[first], u.keys[(first+1)%len(u.keys)]}
	ctx, cancel := context.WithTimeout(u.ctx(), patience)
	defer cancel()
	n := &notingLocker{u: u, until: u.p.world.since() + patience}
	all, err := mongolock.AcquireAll(ctx, n, keys)
	if err != nil {
		return
	}
	n.given.Store(true)
	over := time.NewTimer(u.rng.between(time.Microsecond, u.most(u.p.world.plan.ttl/2)))
	defer over.Stop()
	select {
	case <-over.C:
	case <-all.Context(u.ctx()).Done():
	}
	for _, l := range all {
		u.release(l)
		time.Sleep(u.rng.between(time.Microsecond, time.Millisecond))
	}
}
