package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/test/history"
)

// A user is a goroutine that takes keys, holds them, and gives them back, by chance.
type user struct {
	p      *process
	name   string
	number int
	rng    *rng
	keys   []string
	pool   *ticketPool
	watch  *sync.WaitGroup
	brief  bool // holds nothing for long
	busy   bool // does not pause for long either
	ops    int
}

// ctx returns a context that tells the network who sends.
func (u *user) ctx() context.Context {
	return context.WithValue(context.Background(), actorKey{}, u.name)
}

func (u *user) work(steps int) {
	ttl := u.p.world.plan.ttl
	for i := 0; i < steps && !u.p.isDead(); i++ {
		pause := u.most(ttl / 2)
		if u.p.world.plan.asking || u.p.world.plan.dying {
			pause = ttl / 5
		}
		time.Sleep(u.rng.between(time.Microsecond, pause))
		u.step()
	}
}

// most bounds a pause of a busy user by a few trips to the server, so that its commands meet
// those of others.
func (u *user) most(d time.Duration) time.Duration {
	if u.busy {
		return min(d, 5*u.p.world.plan.maxTrip)
	}
	return d
}

// step takes, holds and gives back one key, or two.
func (u *user) step() {
	if u.mix() {
		return
	}
	ttl := u.p.world.plan.ttl
	several := u.p.world.rng("several " + u.name + " " + itoa(u.ops))
	if u.p.world.several {
		u.acquireSeveral(several, several.between(ttl/4, 4*ttl))
		return
	}
	key := u.keys[u.rng.n(len(u.keys))]
	patience := u.rng.between(ttl/4, 4*ttl)
	how := u.rng.n(12)
	if u.p.world.plan.crowd && u.rng.chance(700) { // many wait, and for long
		patience, how = u.rng.between(ttl, 2*time.Minute), 3+u.rng.n(9)
	}
	if how >= 10 {
		if t, ok := u.pool.take(); ok {
			u.resume(t, patience)
			return
		}
	}
	var opts []mongolock.AcquireOption
	switch how {
	case 5:
		if len(u.keys) > 1 && u.rng.chance(300) {
			if several.chance(500) {
				u.acquireSeveral(several, patience)
			} else {
				u.acquireTwo(patience)
			}
			return
		}
	case 6:
		opts = append(opts, mongolock.NoRenewal())
	case 7:
		opts = append(opts, mongolock.MaxHold(u.rng.between(ttl/10, 2*ttl)))
	case 8:
		opts = append(opts, mongolock.MinHold(u.rng.between(ttl/10, ttl)))
	}
	m, try := u.mode(key), how < 3 || u.p.world.plan.asking
	u.acquire(key, m, try, patience, opts...)
}

func (u *user) acquire(key string, m history.Mode, try bool, patience time.Duration, opts ...mongolock.AcquireOption) bool {
	return u.take(u.ask(key, m, try, patience, opts...))
}

// ask asks for a key, and notes that it does.
func (u *user) ask(key string, m history.Mode, try bool, patience time.Duration, opts ...mongolock.AcquireOption) (history.Event, *mongolock.Lease, error) {
	w := u.p.world
	op := u.newOp()
	ctx, cancel := context.WithTimeout(withOp(u.ctx(), op), patience)
	defer cancel()
	call := history.Event{Kind: history.Called, Client: u.p.id, Key: key, Op: op, Until: w.since() + patience, Mode: m}
	take := u.p.client.Acquire
	if try {
		call.Until, call.Note = 0, "try"
		ctx, take = withOp(u.ctx(), op), u.p.client.TryAcquire
	}
	w.note(call)
	l, err := take(ctx, key, append(opts, m.Options()...)...)
	call.Note = ""
	return call, l, err
}

func (u *user) resume(t ticket, patience time.Duration) {
	op := u.newOp()
	ctx, cancel := context.WithTimeout(withOp(u.ctx(), op), patience)
	defer cancel()
	call := history.Event{Kind: history.Called, Client: u.p.id, Key: t.key, Op: op, Note: history.Resumes}
	u.p.world.note(call)
	l, err := u.p.client.Resume(ctx, t.text)
	call.Note = history.Resumed
	u.take(call, l, err)
}

// take notes how a call was answered, and holds the lease if there is one.
func (u *user) take(call history.Event, l *mongolock.Lease, err error) bool {
	granted := u.answered(call, l, err, func() bool { return true })
	if granted {
		u.hold(l, call.Mode)
	}
	return granted
}

// answered notes how a call was answered, and when the lease that it got has ended. If the
// lease is lost before the user was given it, it is let go at once: AcquireAll frees its key
// then, as no work has to stop first.
func (u *user) answered(call history.Event, l *mongolock.Lease, err error, given func() bool) bool {
	w := u.p.world
	if err != nil || l == nil {
		w.note(call.Failure(err))
		return false
	}
	grant := call.Grant(l)
	w.note(grant)
	u.watch.Go(func() {
		<-l.Done()
		if errors.Is(l.Err(), mongolock.ErrReleased) || !given() {
			u.note(history.LetGo, l, history.Released)
		}
		u.note(history.Told, l, "")
	})
	return true
}

func (u *user) hold(l *mongolock.Lease, m history.Mode) {
	ttl := u.p.world.plan.ttl
	u.write(l, m)
	most := u.most(ttl / 10)
	if !u.brief && (u.p.world.plan.asking || u.rng.chance(350)) {
		most = u.most(3 * ttl)
	}
	over := time.NewTimer(u.rng.between(time.Microsecond, most))
	defer over.Stop()
	select {
	case <-over.C:
	case <-l.Done(): // work takes a while to stop
		time.Sleep(u.rng.between(time.Microsecond, 2*u.p.world.plan.margin))
	}
	if u.rng.chance(300) {
		u.write(l, m)
	}
	ctx, cancel := context.WithTimeout(u.ctx(), ttl)
	defer cancel()
	switch {
	case u.rng.chance(100):
		_ = l.Renew(ctx)
		u.breathe()
	case !u.brief && !m.Shared && u.rng.chance(150):
		if u.detach(ctx, l) {
			return
		}
		u.breathe()
	}
	u.release(l)
}

// breathe lets an instant pass. When a renewal of the user's fails, the engine repeats it in the same
// instant; which of the two would come first is left open.
func (u *user) breathe() { time.Sleep(time.Microsecond + time.Duration(u.number)*time.Nanosecond) }

// detach leaves the lease in a ticket. The holder lets go only if that succeeds.
func (u *user) detach(ctx context.Context, l *mongolock.Lease) bool {
	text, err := l.Detach(ctx)
	if err != nil {
		return false
	}
	u.note(history.LetGo, l, history.Detached)
	u.pool.put(ticket{l.Key(), text})
	return true
}

func (u *user) release(l *mongolock.Lease) {
	u.note(history.LetGo, l, history.Released)
	u.released(l, l.Release())
}

// released notes what a release answered.
func (u *user) released(l *mongolock.Lease, err error) {
	note := ""
	if err != nil {
		note = history.Failure(err)
	}
	u.note(history.Freed, l, note)
}

func (u *user) note(kind history.Kind, l *mongolock.Lease, note string) {
	u.p.world.note(history.Event{Kind: kind, Client: u.p.id, Key: l.Key(), ID: l.ID(), Note: note})
}

// write writes to the key's register, under the lease's token. Holders that share a key have
// no order among themselves, so they do not write.
func (u *user) write(l *mongolock.Lease, m history.Mode) {
	if u.p.coll == nil || m.Shared {
		return
	}
	w := u.p.world
	op := u.newOp()
	ctx, cancel := context.WithTimeout(l.Context(u.ctx()), w.plan.ttl)
	defer cancel()
	e := history.Event{Kind: history.Writes, Client: u.p.id, Key: l.Key(), Op: op, ID: l.ID(), Token: l.Token()}
	w.note(e)
	change := bson.D{{Key: "op", Value: op}}
	var err error
	if w.unfenced {
		change = append(change, bson.E{Key: "_fence", Value: l.Token()})
		_, err = u.p.coll.UpdateByID(ctx, l.Key(), bson.D{{Key: "$set", Value: change}})
	} else {
		_, err = fence.UpdateByID(ctx, u.p.coll, l.Token(), l.Key(), bson.D{{Key: "$set", Value: change}})
	}
	switch {
	case err == nil:
		e.Kind = history.Wrote
	case errors.Is(err, fence.ErrFenced):
		e.Kind = history.Fenced
	default:
		return
	}
	w.note(e)
}

// newOp numbers this user's calls. Other users do not change its numbers.
func (u *user) newOp() int {
	u.ops++
	return 1000*u.number + u.ops
}

type opKey struct{}

func withOp(ctx context.Context, op int) context.Context { return context.WithValue(ctx, opKey{}, op) }
