package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/pathlock"
)

// A pathUser is a goroutine that locks, refreshes and releases paths at random.
type pathUser struct {
	run  *pathRun
	p    *pathProcess
	name string
	rng  *rng
}

func (u *pathUser) ctx(patience time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(context.Background(), actorKey{}, u.name), patience)
}

func (u *pathUser) work(steps int) {
	ttl := u.p.world.plan.ttl
	busy := u.rng.chance(700)
	for i := 0; i < steps && !u.p.isDead(); i++ {
		most := ttl / 2
		if busy {
			most = min(most, 5*u.p.world.plan.maxTrip)
		}
		time.Sleep(u.rng.between(time.Microsecond, most))
		u.step(most)
	}
}

func (u *pathUser) step(most time.Duration) {
	w := u.p.world
	ttl := w.plan.ttl
	r := pathlock.Request{
		Path: oneOf(u.rng, simPaths...), Mode: oneOf(u.rng, pathlock.Exclusive, pathlock.Exclusive, pathlock.Shared),
		Depth: oneOf(u.rng, pathlock.Zero, pathlock.Infinity), Timeouts: []time.Duration{oneOf(u.rng, ttl, ttl, ttl/2, 30*time.Second, longest)},
	}
	ctx, cancel := u.ctx(u.rng.between(ttl/4, 3*ttl))
	defer cancel()
	lock := u.p.tree.Lock
	if u.rng.chance(400) {
		lock = u.p.tree.LockWait
	}
	sent := w.since()
	l, err := lock(ctx, r)
	u.run.ended("lock", err)
	if err != nil {
		return
	}
	u.run.granted(u.p.id, l, sent)
	u.run.told(history.Granted, u.p.id, l.Token, sent+l.Left)
	for range u.rng.n(3) {
		pause := u.rng.between(time.Microsecond, max(most, oneOf(u.rng, most, ttl/2)))
		if end := sent + l.Left - w.since(); l.Timeout <= ttl && u.rng.chance(400) { // shortly before its end, or after
			near := max(ttl/20, 4*w.plan.maxTrip)
			pause = max(time.Microsecond, end-near+u.rng.between(time.Microsecond, 2*near))
		}
		time.Sleep(pause)
		sent = u.refresh(&l)
	}
	time.Sleep(u.rng.between(time.Microsecond, max(most, oneOf(u.rng, most, ttl))))
	if l.Timeout == longest || !u.rng.chance(200) { // otherwise it runs out
		u.release(l)
	}
}

// refresh returns when it was sent.
func (u *pathUser) refresh(l *pathlock.Lock) (sent time.Duration) {
	w := u.p.world
	ctx, cancel := u.ctx(w.plan.ttl)
	defer cancel()
	var timeouts []time.Duration
	if u.rng.chance(700) {
		timeouts = []time.Duration{oneOf(u.rng, w.plan.ttl, 30*time.Second, l.Timeout)}
	}
	sent = w.since()
	u.run.refreshes(*l, timeouts)
	fresh, err := u.p.tree.Refresh(ctx, l.Token, timeouts...)
	u.run.ended("refresh", err)
	if err == nil {
		*l = fresh
		u.run.refreshed(fresh, sent)
		u.run.told(history.Granted, u.p.id, l.Token, sent+fresh.Left)
	} else {
		u.run.told(history.Failed, u.p.id, l.Token, 0)
	}
	return sent
}

func (u *pathUser) release(l pathlock.Lock) {
	u.run.releases(l.Token)
	for {
		ctx, cancel := u.ctx(u.p.world.plan.ttl)
		err := u.p.tree.Release(ctx, l.Token)
		cancel()
		u.run.ended("release", err)
		switch {
		case err == nil, errors.Is(err, pathlock.ErrUnknownToken):
			return
		case u.p.isDead():
			return
		case l.Timeout != longest && u.rng.chance(500):
			return
		}
		time.Sleep(u.rng.between(time.Microsecond, 50*time.Millisecond))
	}
}
