package simulation

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A remote is a memstore as one client reaches it: with the same faults on the way as to a
// server, and with the same notes of what the store did.
type remote struct {
	mem *memstore.Store
	p   *process
}

// Unwrap gives the engine the memstore's feed.
func (r *remote) Unwrap() store.Store { return r.mem }

// A reply is what a store answers a call.
type reply[T any] struct {
	value T
	err   error
}

// call sends a call on its way and waits for the answer.
func call[T any](ctx context.Context, to *remote, name, key string, keys []string, do func() T) (none T, err error) {
	w := to.p.world
	answer, broken := make(chan T, 1), make(chan error, 1)
	w.mu.Lock()
	actor, _ := ctx.Value(actorKey{}).(string)
	op, _ := ctx.Value(opKey{}).(int)
	who := fmt.Sprintf("%d %s %s %s", to.p.id, actor, name, key)
	w.sends++
	w.sent[who]++
	r := &request{client: to.p, actor: actor, op: op, cmd: docdb.Command{Name: name}, name: fmt.Sprintf("client %s #%d", who, w.sent[who])}
	r.delivery = w.deliver(r, w.rng(r.name))
	r.delivery.out += r.delivery.stall // a memstore has no time between building and inserting
	w.logf("%s: %s", r.name, r.delivery)
	if until, trouble := r.trouble(); trouble {
		if deadline, ok := ctx.Deadline(); ok && r.delivery.reset == 0 && r.delivery.back < 0 {
			until = max(r.delivery.out, time.Until(deadline))
		}
		w.noteLocked(history.Event{Kind: history.Trouble, Client: to.p.id, Key: key, Until: w.since() + until, Note: name + ": " + r.delivery.String()})
	}
	if f := r.delivery; f.out >= 0 && !to.p.dead && !w.closed {
		w.after(f.out, func() {
			value := noting(to, r, keys, do)
			if f.back >= 0 {
				w.after(f.back, func() {
					if !to.p.dead && !w.isCutOff(to.p.id) {
						answer <- value
					}
				})
			}
		})
	}
	if r.delivery.reset > 0 {
		w.after(r.delivery.reset, func() { broken <- errReset })
	}
	w.mu.Unlock()
	select {
	case value := <-answer:
		return value, nil
	case err := <-broken:
		return none, err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// noting does what the call asks for, and notes what it changed. With w.mu held.
func noting[T any](at *remote, r *request, keys []string, do func() T) T {
	w := at.p.world
	before, reserved := at.holders(keys)
	value := do()
	after, _ := at.holders(keys)
	for id, h := range before {
		e := history.Event{Kind: history.Dropped, Client: at.p.id, Key: h.key, ID: id, Live: h.live, Op: w.opOf(r.op, h.key), Until: w.since() + h.left}
		if h.owner == at.p.id {
			e.Note = history.Ours
		}
		switch now, still := after[id]; {
		case !still:
			w.noteLocked(e)
		case now.until.Before(h.until) && r.cmd.Name != "release":
			e.Kind, e.Until = history.Shortened, w.since()+now.left
			w.noteLocked(e)
		case !now.until.Equal(h.until):
			w.noteLocked(history.Event{Kind: history.Extended, Client: at.p.id, Key: h.key, ID: id, Until: w.since() + now.left})
		}
	}
	for id, h := range after {
		if _, was := before[id]; !was {
			w.noteLocked(history.Event{Kind: history.Applied, Client: at.p.id, Key: h.key, ID: id, Op: w.opOf(r.op, h.key), Until: w.since() + h.left, Note: h.note})
			if h.shared && reserved[h.key] {
				w.noteLocked(history.Event{Kind: history.Overtook, Client: at.p.id, Key: h.key, ID: id, Op: w.opOf(r.op, h.key)})
			}
		}
	}
	return value
}

type memHolder struct {
	key    string
	owner  int
	until  time.Time
	left   time.Duration
	live   bool
	shared bool
	note   string
}

// holders returns the holders of some keys, by ID, and which keys a writer's word reserves.
func (r *remote) holders(keys []string) (found map[string]memHolder, reserved map[string]bool) {
	all, _ := r.mem.Look(context.Background(), keys)
	found, reserved = map[string]memHolder{}, map[string]bool{}
	for _, s := range all {
		reserved[s.Key] = s.Reserved()
		for _, h := range s.Holders {
			m := memHolder{key: s.Key, until: h.ExpireAt, left: h.ExpireAt.Sub(s.Now), live: s.Live(h), shared: s.Mode != store.Exclusive}
			if h.Lingers {
				m.note = history.Lingers
			}
			_, _ = fmt.Sscanf(h.Owner, "client-%d", &m.owner)
			found[h.ID] = m
		}
	}
	return found, reserved
}

func flat[T any](r reply[T], err error) (T, error) { return r.value, cmp.Or[error](err, r.err) }

func of[T any](value T, err error) reply[T] { return reply[T]{value, err} }

// Acquire is the store's.
func (r *remote) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	return flat(call(ctx, r, "findAndModify", c.Key, []string{c.Key}, func() reply[store.Grant] {
		return of(r.mem.Acquire(context.WithoutCancel(ctx), c))
	}))
}

// AcquireMany is the store's, as one call.
func (r *remote) AcquireMany(ctx context.Context, batch []store.Claim) []store.Claimed {
	var keys []string
	for _, c := range batch {
		keys = append(keys, c.Key)
	}
	answers, err := call(ctx, r, "findAndModify", keys[0], keys, func() []store.Claimed {
		return r.mem.AcquireMany(context.WithoutCancel(ctx), batch)
	})
	if err != nil {
		answers = make([]store.Claimed, len(batch))
		for i := range answers {
			answers[i].Err = err
		}
	}
	return answers
}

// Renew is the store's.
func (r *remote) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	var keys []string
	for _, renewal := range batch {
		keys = append(keys, renewal.Key)
	}
	answers, err := call(ctx, r, "renew", keys[0], keys, func() []store.Renewed {
		return r.mem.Renew(context.WithoutCancel(ctx), batch)
	})
	if err != nil {
		answers = make([]store.Renewed, len(batch))
		for i := range answers {
			answers[i].Err = err
		}
	}
	return answers
}

// Release is the store's.
func (r *remote) Release(ctx context.Context, ref store.Ref, keep time.Duration) (bool, error) {
	return flat(call(ctx, r, "release", ref.Key, []string{ref.Key}, func() reply[bool] {
		return of(r.mem.Release(context.WithoutCancel(ctx), ref, keep))
	}))
}

// Transfer is the store's.
func (r *remote) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	return flat(call(ctx, r, "findAndModify", to.Key, []string{to.Key}, func() reply[store.Grant] {
		return of(r.mem.Transfer(context.WithoutCancel(ctx), from, to))
	}))
}

// Undo is the store's.
func (r *remote) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	return flat(call(ctx, r, "undo", claim.Key, []string{claim.Key}, func() reply[bool] {
		return of(r.mem.Undo(context.WithoutCancel(ctx), claim, from))
	}))
}

// Break is the store's.
func (r *remote) Break(ctx context.Context, ref store.Ref, reason string, now bool) error {
	_, err := flat(call(ctx, r, "break", ref.Key, []string{ref.Key}, func() reply[bool] {
		return of(true, r.mem.Break(context.WithoutCancel(ctx), ref, reason, now))
	}))
	return err
}

// Look is the store's.
func (r *remote) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	return flat(call(ctx, r, "look", keys[0], nil, func() reply[[]store.Status] {
		return of(r.mem.Look(context.WithoutCancel(ctx), keys))
	}))
}

// List is the store's.
func (r *remote) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return r.mem.List(ctx, prefix)
}
