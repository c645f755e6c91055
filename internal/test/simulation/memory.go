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

// Unwrap gives the engine what else the memstore can do.
func (r *remote) Unwrap() store.Store { return r.mem }

// Notify is the memstore's: notices come at once, but none of a client that is dead.
func (r *remote) Notify(ctx context.Context, all ...store.Notice) error {
	if r.p.isDead() {
		return errReset
	}
	return r.mem.Notify(ctx, all...)
}

// Watch is the memstore's.
func (r *remote) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return r.mem.Watch(ctx, of)
}

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
	r := &request{began: w.since(), client: to.p, actor: actor, op: op, cmd: docdb.Command{Name: name}, name: fmt.Sprintf("client %s #%d", who, w.sent[who])}
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
	before, lines := at.holders(keys)
	value := do()
	after, linesAfter := at.holders(keys)
	event := func(kind history.Kind, h memHolder, id string) history.Event {
		return history.Event{
			Kind: kind, At: w.since(), Began: r.began, Client: at.p.id, Key: h.key, ID: id, Op: w.opOf(r.op, h.key),
			Live: h.live, Until: w.since() + h.left, Note: h.note,
		}
	}
	for id, h := range before {
		switch now, still := after[id]; {
		case !still:
			h.note = ""
			if h.owner == at.p.id {
				h.note = history.Ours
			}
			w.noteLocked(event(history.Dropped, h, id))
		case now.until.Before(h.until) && r.cmd.Name != "release":
			w.noteLocked(event(history.Shortened, now, id))
		case !now.until.Equal(h.until):
			w.noteLocked(history.Event{Kind: history.Extended, Client: at.p.id, Key: h.key, ID: id, Until: w.since() + now.left})
		}
	}
	for id, h := range after {
		if _, was := before[id]; !was {
			h.live = false
			e := event(history.Applied, h, id)
			e.Mode = w.modeOf(string(h.mode), h.weight, e.Op)
			e.Place = claimed(lines[h.key], linesAfter[h.key], at.p.id)
			w.noteLocked(e)
		}
	}
	for _, key := range keys {
		for _, e := range lineEvents(lines[key], linesAfter[key], event("", memHolder{key: key}, "")) {
			w.noteLocked(e)
		}
	}
	return value
}

type memHolder struct {
	key   string
	owner int
	until time.Time
	left  time.Duration
	live  bool
	mode  store.Mode
	note  string

	weight int
}

// holders returns the holders of some keys, by ID, and the lines of the keys.
func (r *remote) holders(keys []string) (found map[string]memHolder, lines map[string][]place) {
	all, _ := r.mem.Look(context.Background(), keys)
	found, lines = map[string]memHolder{}, map[string][]place{}
	for _, s := range all {
		for _, w := range s.Line {
			lines[s.Key] = append(lines[s.Key], place{
				name: string(w.Place), client: clientOf(w.Owner), seen: w.Seen,
				since: r.p.world.since() + w.Since.Sub(s.Now), until: r.p.world.since() + w.Seen.Add(store.PlaceFor).Sub(s.Now),
			})
		}
		for _, h := range s.Holders {
			m := memHolder{key: s.Key, owner: clientOf(h.Owner), until: h.ExpireAt, left: h.ExpireAt.Sub(s.Now), live: s.Live(h) && !h.Released, mode: s.Mode, weight: h.Weight}
			found[h.ID] = m
		}
	}
	return found, lines
}

func flat[T any](r reply[T], err error) (T, error) { return r.value, cmp.Or[error](err, r.err) }

func of[T any](value T, err error) reply[T] { return reply[T]{value, err} }

// Acquire is the store's.
func (r *remote) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	return flat(call(ctx, r, "findAndModify", c.Key, []string{c.Key}, func() reply[store.Grant] {
		return of(r.mem.Acquire(context.WithoutCancel(ctx), c))
	}))
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
func (r *remote) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	return flat(call(ctx, r, "release", e.Key, []string{e.Key}, func() reply[store.ReleaseResult] {
		return of(r.mem.Release(context.WithoutCancel(ctx), e))
	}))
}

// Leave is the store's.
func (r *remote) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	return flat(call(ctx, r, "leave", key, []string{key}, func() reply[store.Status] {
		return of(r.mem.Leave(context.WithoutCancel(ctx), key, p))
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
