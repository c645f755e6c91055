package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/history"
)

// A process is one client of the library with its users, as one process has it.
type process struct {
	world  *world
	id     int
	dead   bool // protected by world.mu: nothing it sends arrives any more, and nothing reaches it
	client *mongolock.Client
	coll   *mongo.Collection // of fenced registers; nil without a database
}

const (
	lockDB   = "sim"
	lockColl = "locks"
	regColl  = "registers"
)

// A user is a goroutine that takes keys, holds them, and gives them back, as its
// dice fall.
type user struct {
	p      *process
	name   string
	number int
	dice   *dice
	keys   []string
	stash  *stash
	watch  *sync.WaitGroup
	brief  bool // holds nothing for long
	busy   bool // nor waits long between
	ops    int
}

// A stash is where tickets wait for somebody to take them up.
type stash struct {
	mu      sync.Mutex
	tickets []string
}

func (s *stash) put(t string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickets = append(s.tickets, t)
}

func (s *stash) take() (t string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tickets) == 0 {
		return "", false
	}
	t, s.tickets = s.tickets[0], s.tickets[1:]
	return t, true
}

func (p *process) options(margin time.Duration) []mongolock.ClientOption {
	opts := []mongolock.ClientOption{
		mongolock.TTL(p.world.weather.ttl),
		mongolock.WithOwner(fmt.Sprint("client-", p.id)),
		mongolock.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if margin >= 0 {
		opts = append(opts, mongolock.WithMargin(margin))
	}
	if p.world.dice("feed "+itoa(p.id)).chance(200) && !p.world.weather.calm {
		opts = append(opts, mongolock.WithoutFeed())
	}
	return opts
}

// isDead reports whether the process was killed.
func (p *process) isDead() bool {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return p.dead
}

// ctx is one that tells the network who sends.
func (u *user) ctx() context.Context {
	return context.WithValue(context.Background(), actorKey{}, u.name)
}

func (u *user) work(steps int) {
	ttl := u.p.world.weather.ttl
	for i := 0; i < steps && !u.p.isDead(); i++ {
		time.Sleep(u.dice.between(time.Microsecond, u.most(ttl/2)))
		u.step()
	}
}

// most bounds what a busy user does by some trips to the server, so that it meets
// others in the middle of theirs.
func (u *user) most(d time.Duration) time.Duration {
	if u.busy {
		return min(d, 5*u.p.world.weather.trip)
	}
	return d
}

// step is one visit to one key.
func (u *user) step() {
	ttl := u.p.world.weather.ttl
	key := u.keys[u.dice.n(len(u.keys))]
	patience := u.dice.between(ttl/4, 4*ttl)
	how := u.dice.n(12)
	if how >= 10 {
		if t, ok := u.stash.take(); ok {
			u.resume(t, patience)
			return
		}
	}
	var opts []mongolock.AcquireOption
	switch how {
	case 5:
		if len(u.keys) > 1 && u.dice.chance(300) {
			u.acquireTwo(patience)
			return
		}
	case 6:
		opts = append(opts, mongolock.NoRenewal())
	case 7:
		opts = append(opts, mongolock.MaxHold(u.dice.between(ttl/10, 2*ttl)))
	case 8:
		opts = append(opts, mongolock.MinHold(u.dice.between(ttl/10, ttl)))
	}
	u.acquire(key, u.way(key), how < 3, patience, opts...)
}

func (u *user) acquire(key string, as way, try bool, patience time.Duration, opts ...mongolock.AcquireOption) bool {
	w := u.p.world
	op := u.newOp()
	ctx, cancel := context.WithTimeout(withOp(u.ctx(), op), patience)
	defer cancel()
	call := history.Event{Kind: history.Called, Client: u.p.id, Key: key, Op: op, Until: w.since() + patience, Shared: as.shared, Limit: as.limit}
	take := u.p.client.Acquire
	if try {
		call.Until, call.Note = 0, "try"
		ctx, take = withOp(u.ctx(), op), u.p.client.TryAcquire
	}
	w.note(call)
	l, err := take(ctx, key, append(opts, as.options()...)...)
	return u.take(op, key, as, l, err, "")
}

func (u *user) resume(ticket string, patience time.Duration) {
	w := u.p.world
	op := u.newOp()
	ctx, cancel := context.WithTimeout(withOp(u.ctx(), op), patience)
	defer cancel()
	key := keyOf(ticket)
	w.note(history.Event{Kind: history.Called, Client: u.p.id, Key: key, Op: op, Note: "resume"})
	l, err := u.p.client.Resume(ctx, ticket)
	u.take(op, key, way{}, l, err, history.Resumed)
}

// take notes what a call came to, and holds what it got.
func (u *user) take(op int, key string, as way, l *mongolock.Lease, err error, note string) bool {
	granted := u.answered(op, key, as, l, err, note, func() bool { return true })
	if granted {
		u.hold(l, as)
	}
	return granted
}

// answered notes what a call came to, and when the lease that it got has ended. A lease
// that was not given to u yet when it was lost is let go by then: AcquireAll frees its
// key at once, as nobody has to stop first.
func (u *user) answered(op int, key string, as way, l *mongolock.Lease, err error, note string, given func() bool) bool {
	w := u.p.world
	if err != nil || l == nil {
		w.note(history.Event{Kind: history.Failed, Client: u.p.id, Key: key, Op: op, Note: sort(err)})
		return false
	}
	w.note(history.Event{Kind: history.Granted, Client: u.p.id, Key: key, Op: op, ID: l.ID(), Token: l.Token(), Note: note, Shared: as.shared, Limit: as.limit})
	u.watch.Go(func() {
		<-l.Done()
		if errors.Is(l.Err(), mongolock.ErrReleased) || !given() { // by AcquireAll, if not by its holder
			u.note(history.LetGo, l, history.Released)
		}
		u.note(history.Told, l, "")
	})
	return true
}

// sort is a failure in one word.
func sort(err error) string {
	switch {
	case err == nil:
		return "nothing at all"
	case errors.Is(err, mongolock.ErrOutcomeUnknown):
		return history.Unknown
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return history.Gaveup
	case errors.Is(err, mongolock.ErrHeld), errors.Is(err, mongolock.ErrModeMismatch):
		return history.Held
	}
	return history.Sure
}

func (u *user) hold(l *mongolock.Lease, as way) {
	ttl := u.p.world.weather.ttl
	u.write(l, as)
	most := u.most(ttl / 10)
	if !u.brief && u.dice.chance(350) {
		most = u.most(3 * ttl)
	}
	over := time.NewTimer(u.dice.between(time.Microsecond, most))
	defer over.Stop()
	select {
	case <-over.C:
	case <-l.Done(): // it takes a while to stop
		time.Sleep(u.dice.between(time.Microsecond, 2*u.p.world.weather.margin))
	}
	if u.dice.chance(300) {
		u.write(l, as)
	}
	ctx, cancel := context.WithTimeout(u.ctx(), ttl)
	defer cancel()
	switch {
	case u.dice.chance(100):
		_ = l.Renew(ctx)
	case !u.brief && !as.shared && u.dice.chance(150):
		if t, ok := u.detach(ctx, l); ok {
			u.stash.put(t)
			return
		}
	}
	u.release(l)
}

// detach ends the lease when it succeeds, so its holder lets go when it asks.
func (u *user) detach(ctx context.Context, l *mongolock.Lease) (string, bool) {
	t, err := l.Detach(ctx)
	if err != nil {
		return "", false
	}
	u.note(history.LetGo, l, history.Detached)
	return t, true
}

func (u *user) release(l *mongolock.Lease) {
	u.note(history.LetGo, l, history.Released)
	err := l.Release()
	note := ""
	if err != nil {
		note = sort(err)
	}
	u.note(history.Freed, l, note)
}

func (u *user) note(kind history.Kind, l *mongolock.Lease, note string) {
	u.p.world.note(history.Event{Kind: kind, Client: u.p.id, Key: l.Key(), ID: l.ID(), Note: note})
}

// write writes to the key's register, under the lease's token. Those who share a key
// have no order of their own.
func (u *user) write(l *mongolock.Lease, as way) {
	if u.p.coll == nil || as.shared {
		return
	}
	w := u.p.world
	op := u.newOp()
	ctx, cancel := context.WithTimeout(l.Context(u.ctx()), w.weather.ttl)
	defer cancel()
	e := history.Event{Kind: history.Writes, Client: u.p.id, Key: l.Key(), Op: op, ID: l.ID(), Token: l.Token()}
	w.note(e)
	_, err := fence.UpdateByID(ctx, u.p.coll, l.Token(), l.Key(), bson.D{{Key: "$set", Value: bson.D{{Key: "op", Value: op}}}})
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

// newOp numbers calls, whatever the order in which others make theirs.
func (u *user) newOp() int {
	u.ops++
	return 1000*u.number + u.ops
}

type opKey struct{}

func withOp(ctx context.Context, op int) context.Context { return context.WithValue(ctx, opKey{}, op) }
