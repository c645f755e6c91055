package simulation

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/mongolock/mongolock/internal/docdb"
	"github.com/mongolock/mongolock/internal/history"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A link is one client's way to a memstore: the same weather as on the way to a
// server, and the same notes of what the store did.
type link struct {
	mem *memstore.Store
	p   *process
}

// Unwrap gives the engine the memstore's feed.
func (l *link) Unwrap() store.Store { return l.mem }

// reply is a call's answer, with what went wrong on the way.
type reply[T any] struct {
	value T
	err   error
}

// through sends a call on its way and waits for the answer.
func through[T any](ctx context.Context, l *link, name, key string, keys []string, do func() T) (none T, err error) {
	w := l.p.world
	answer, broken := make(chan T, 1), make(chan error, 1)
	w.mu.Lock()
	actor, _ := ctx.Value(actorKey{}).(string)
	op, _ := ctx.Value(opKey{}).(int)
	who := fmt.Sprintf("%d %s %s %s", l.p.id, actor, name, key)
	w.sends++
	w.sent[who]++
	r := &request{client: l.p, actor: actor, op: op, cmd: docdb.Command{Name: name}, name: fmt.Sprintf("client %s #%d", who, w.sent[who])}
	r.fate = w.fate(r, w.dice(r.name))
	r.fate.out += r.fate.stall // nothing is built before it is inserted here
	w.logf("%s: %s", r.name, r.fate)
	if until, trouble := r.trouble(); trouble {
		if deadline, ok := ctx.Deadline(); ok && r.fate.reset == 0 && r.fate.back < 0 {
			until = max(r.fate.out, time.Until(deadline))
		}
		w.noteLocked(history.Event{Kind: history.Trouble, Client: l.p.id, Key: key, Until: w.since() + until, Note: name + ": " + r.fate.String()})
	}
	if f := r.fate; f.out >= 0 && !l.p.dead && !w.closed {
		w.after(f.out, func() {
			value := noting(l, r, keys, do)
			if f.back >= 0 {
				w.after(f.back, func() {
					if !l.p.dead && !w.isCut(l.p.id) {
						answer <- value
					}
				})
			}
		})
	}
	if r.fate.reset > 0 {
		w.after(r.fate.reset, func() { broken <- errReset })
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

// noting does what the call asks for, and notes what that changed. With w.mu held.
func noting[T any](l *link, r *request, keys []string, do func() T) T {
	w := l.p.world
	before, reserved := l.holders(keys)
	value := do()
	after, _ := l.holders(keys)
	for id, h := range before {
		e := history.Event{Kind: history.Dropped, Client: l.p.id, Key: h.key, ID: id, Live: h.live, Op: r.op, Until: w.since() + h.left}
		if h.owner == l.p.id {
			e.Note = history.Ours
		}
		switch now, still := after[id]; {
		case !still:
			w.noteLocked(e)
		case now.until.Before(h.until) && r.cmd.Name != "release":
			e.Kind, e.Until = history.Shortened, w.since()+now.left
			w.noteLocked(e)
		case !now.until.Equal(h.until):
			w.noteLocked(history.Event{Kind: history.Extended, Client: l.p.id, Key: h.key, ID: id, Until: w.since() + now.left})
		}
	}
	for id, h := range after {
		if _, was := before[id]; !was {
			w.noteLocked(history.Event{Kind: history.Applied, Client: l.p.id, Key: h.key, ID: id, Op: r.op, Until: w.since() + h.left})
			if h.shared && reserved[h.key] {
				w.noteLocked(history.Event{Kind: history.Overtook, Client: l.p.id, Key: h.key, ID: id, Op: r.op})
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
}

// holders are those of some keys, and which of these a writer's word keeps from
// others.
func (l *link) holders(keys []string) (found map[string]memHolder, reserved map[string]bool) {
	all, _ := l.mem.Look(context.Background(), keys)
	found, reserved = map[string]memHolder{}, map[string]bool{}
	for _, s := range all {
		reserved[s.Key] = s.Reserved()
		for _, h := range s.Holders {
			m := memHolder{key: s.Key, until: h.ExpireAt, left: h.ExpireAt.Sub(s.Now), live: s.Live(h), shared: s.Mode != store.Exclusive}
			_, _ = fmt.Sscanf(h.Owner, "client-%d", &m.owner)
			found[h.ID] = m
		}
	}
	return found, reserved
}

func flat[T any](r reply[T], err error) (T, error) { return r.value, cmp.Or[error](err, r.err) }

func of[T any](value T, err error) reply[T] { return reply[T]{value, err} }

// Acquire is the store's.
func (l *link) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	return flat(through(ctx, l, "findAndModify", c.Key, []string{c.Key}, func() reply[store.Grant] {
		return of(l.mem.Acquire(context.WithoutCancel(ctx), c))
	}))
}

// Renew is the store's.
func (l *link) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	var keys []string
	for _, r := range batch {
		keys = append(keys, r.Key)
	}
	answers, err := through(ctx, l, "renew", keys[0], keys, func() []store.Renewed {
		return l.mem.Renew(context.WithoutCancel(ctx), batch)
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
func (l *link) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	return flat(through(ctx, l, "release", r.Key, []string{r.Key}, func() reply[bool] {
		return of(l.mem.Release(context.WithoutCancel(ctx), r, keep))
	}))
}

// Transfer is the store's.
func (l *link) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	return flat(through(ctx, l, "findAndModify", to.Key, []string{to.Key}, func() reply[store.Grant] {
		return of(l.mem.Transfer(context.WithoutCancel(ctx), from, to))
	}))
}

// Undo is the store's.
func (l *link) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	return flat(through(ctx, l, "undo", claim.Key, []string{claim.Key}, func() reply[bool] {
		return of(l.mem.Undo(context.WithoutCancel(ctx), claim, from))
	}))
}

// Break is the store's.
func (l *link) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	_, err := flat(through(ctx, l, "break", r.Key, []string{r.Key}, func() reply[bool] {
		return of(true, l.mem.Break(context.WithoutCancel(ctx), r, reason, now))
	}))
	return err
}

// Look is the store's.
func (l *link) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	return flat(through(ctx, l, "look", keys[0], nil, func() reply[[]store.Status] {
		return of(l.mem.Look(context.WithoutCancel(ctx), keys))
	}))
}

// List is the store's.
func (l *link) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return l.mem.List(ctx, prefix)
}
