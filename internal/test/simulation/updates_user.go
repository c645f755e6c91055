package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mongolock/mongolock/doclock"
)

// An updateUser is a goroutine that changes documents at random.
type updateUser struct {
	run   *updateRun
	p     *process
	locks *doclock.Locks[counter]
	keys  []string
	name  string
	rng   *rng
	made  int
}

func (u *updateUser) ctx(patience time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(context.Background(), actorKey{}, u.name), patience)
}

func (u *updateUser) work(steps int) {
	w := u.p.world
	busy := u.rng.chance(700)
	for i := 0; i < steps && !u.p.isDead(); i++ {
		most := w.plan.ttl / 2
		if busy {
			most = min(most, 5*w.plan.maxTrip)
		}
		time.Sleep(u.rng.between(time.Microsecond, most)) // virtual: between two calls
		u.step()
	}
}

var errWithdrawn = errors.New("withdrawn")

func (u *updateUser) step() {
	ttl := u.p.world.plan.ttl
	key := u.keys[u.rng.n(len(u.keys))]
	patience := u.rng.between(ttl/4, 4*ttl)
	switch how := u.rng.n(100); {
	case how < 55:
		_ = u.update(key, patience, 0, nil)
	case how < 75: // slowly
		_ = u.update(key, patience, u.rng.between(time.Microsecond, 3*ttl/2), nil)
	case how < 80:
		_ = u.update(key, patience, 0, errWithdrawn)
	case how < 95:
		u.underLock(key, patience)
	default:
		ctx, cancel := u.ctx(patience)
		defer cancel()
		_, _ = u.locks.Break(ctx, doclock.ID(key), "the simulation", 0)
	}
}

// next names a change.
func (u *updateUser) next() string {
	u.made++
	return u.name + "." + itoa(u.made)
}

// add is the change: it takes some time, and may fail.
func (c *counter) add(name string, long time.Duration, fails error) error {
	if long > 0 {
		time.Sleep(long) // virtual: the function works
	}
	c.N++
	c.Changes = append(slices.Clip(c.Changes), name)
	return fails
}

func (u *updateUser) update(key string, patience, long time.Duration, fails error) error {
	ctx, cancel := u.ctx(patience)
	defer cancel()
	name, rounds := u.next(), 0
	err := u.locks.Update(ctx, doclock.ID(key), func(c *counter) error {
		rounds++
		return c.add(name, long, fails)
	})
	u.run.ended(key, name, rounds, err)
	return err
}

// underLock changes a document that is locked as any.
func (u *updateUser) underLock(key string, patience time.Duration) {
	ctx, cancel := u.ctx(patience)
	defer cancel()
	doc, err := u.locks.Acquire(ctx, doclock.ID(key))
	if err != nil {
		return
	}
	defer func() { _ = doc.Release() }()
	name := u.next()
	_ = doc.Value.add(name, u.rng.between(0, u.p.world.plan.ttl/2), nil)
	u.run.ended(key, name, 1, doc.SaveAndRelease(ctx))
}
