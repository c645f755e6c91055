package simulation

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/history"
)

// The keys: two that are only ever held alone, one for readers and writers, and one
// of permits.
var allKeys = []string{"alpha", "beta", readers, permits}

const (
	readers = "gamma"
	permits = "delta"
	permit  = 2 // of them
)

// cast are the keys that a run is about: most often some that are held alone, else
// those that are shared, or all.
func cast(d *dice) []string {
	switch {
	case d.chance(600):
		return allKeys[:1+d.n(2)]
	case d.chance(400):
		return allKeys
	}
	return allKeys[2:]
}

// A way is how somebody takes a key: alone, as a reader, or with one of some permits.
type way struct {
	shared bool
	limit  int
}

// way is how u takes a key this time. Now and then it is the wrong one.
func (u *user) way(key string) way {
	reader, owner := way{shared: true}, way{shared: true, limit: permit}
	switch {
	case key == readers && u.dice.chance(700):
		return wrongly(u.dice, reader, owner)
	case key == permits && u.dice.chance(850):
		return wrongly(u.dice, owner, reader, way{shared: true, limit: permit + 1})
	}
	return way{}
}

func wrongly(d *dice, right way, wrong ...way) way {
	if d.chance(40) {
		return oneOf(d, wrong...)
	}
	return right
}

func (a way) options() []mongolock.AcquireOption {
	switch {
	case a.limit > 0:
		return []mongolock.AcquireOption{mongolock.OneOf(a.limit)}
	case a.shared:
		return []mongolock.AcquireOption{mongolock.Shared()}
	}
	return nil
}

// A noter is u's client, as AcquireAll uses it: it notes every call and its answer.
type noter struct {
	u     *user
	until time.Duration
	given atomic.Bool // AcquireAll gave u what it got
}

// Acquire is the client's.
func (n *noter) Acquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	u := n.u
	op := u.newOp()
	u.p.world.note(history.Event{Kind: history.Called, Client: u.p.id, Key: key, Op: op, Until: n.until})
	l, err := u.p.client.Acquire(withOp(ctx, op), key, opts...)
	u.answered(op, key, way{}, l, err, "", n.given.Load)
	return l, err
}

// TryAcquire is not what AcquireAll calls.
func (n *noter) TryAcquire(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return nil, errors.ErrUnsupported
}

// acquireTwo takes two of u's keys alone and holds them together. It gives them back
// one after the other: what Release does with both begins in one instant, and would
// be repeated in the same ones, in any order.
func (u *user) acquireTwo(patience time.Duration) {
	first := u.dice.n(len(u.keys))
	keys := []string{u.keys[first], u.keys[(first+1)%len(u.keys)]}
	ctx, cancel := context.WithTimeout(u.ctx(), patience)
	defer cancel()
	n := &noter{u: u, until: u.p.world.since() + patience}
	all, err := mongolock.AcquireAll(ctx, n, keys)
	if err != nil {
		return
	}
	n.given.Store(true)
	over := time.NewTimer(u.dice.between(time.Microsecond, u.most(u.p.world.weather.ttl/2)))
	defer over.Stop()
	select {
	case <-over.C:
	case <-all.Context(u.ctx()).Done():
	}
	for _, l := range all {
		u.release(l)
		time.Sleep(u.dice.between(time.Microsecond, time.Millisecond))
	}
}
