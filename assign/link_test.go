package assign_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

var errNet = errors.New("no route to the store")

// A link is one process's connection to the store. Each call takes some time, and while the link is
// down it fails: before or after the store has applied it.
type link struct {
	store.Store
	to *memstore.Store

	slow time.Duration // the most that a call takes one way

	// Controls set these before the link is used.
	claim func(context.Context, store.Claim) // runs before a claim
	seen  func(*store.Status)                // changes what a look or a list shows

	mu      sync.Mutex // protects what follows
	random  *rand.Rand
	down    bool
	calls   map[string]int
	watches map[*context.CancelFunc]bool
}

func newLink(to *memstore.Store, seed uint64) *link {
	return &link{
		Store: to, to: to, random: rand.New(rand.NewPCG(seed, 1)), slow: 3 * time.Millisecond,
		calls: make(map[string]int), watches: make(map[*context.CancelFunc]bool),
	}
}

// set takes the link down, or up again.
func (l *link) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for end := range l.watches {
		if down {
			(*end)()
		}
	}
}

// sent returns how many calls of a kind were made.
func (l *link) sent(kinds ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range kinds {
		n += l.calls[kind]
	}
	return n
}

// travel takes the time of one way. It fails if the link is down when it ends.
func (l *link) travel() error {
	l.mu.Lock()
	d := time.Duration(l.random.Int64N(int64(l.slow) + 1))
	l.mu.Unlock()
	time.Sleep(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return errNet
	}
	return nil
}

func over[T any](ctx context.Context, l *link, kind string, do func(context.Context) (T, error)) (answer T, err error) {
	l.mu.Lock()
	l.calls[kind]++
	l.mu.Unlock()
	if err := l.travel(); err != nil {
		return answer, errors.Join(err, store.ErrNotApplied)
	}
	answer, err = do(ctx)
	if lost := l.travel(); lost != nil {
		var none T
		return none, lost
	}
	return answer, err
}

func (l *link) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	return over(ctx, l, "acquire", func(ctx context.Context) (store.Grant, error) {
		if l.claim != nil {
			l.claim(ctx, c)
		}
		return l.to.Acquire(ctx, c)
	})
}

func (l *link) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	all, err := over(ctx, l, "renew", func(ctx context.Context) ([]store.Renewed, error) { return l.to.Renew(ctx, batch), nil })
	for err != nil && len(all) < len(batch) {
		all = append(all, store.Renewed{Err: err})
	}
	return all
}

func (l *link) Release(ctx context.Context, e store.Ending) (store.Ended, error) {
	return over(ctx, l, "release", func(ctx context.Context) (store.Ended, error) { return l.to.Release(ctx, e) })
}

func (l *link) Leave(ctx context.Context, key string, p store.Place, silent bool) (store.Status, error) {
	return over(ctx, l, "leave", func(ctx context.Context) (store.Status, error) { return l.to.Leave(ctx, key, p, silent) })
}

func (l *link) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	return over(ctx, l, "transfer", func(ctx context.Context) (store.Grant, error) { return l.to.Transfer(ctx, from, to) })
}

func (l *link) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	return over(ctx, l, "undo", func(ctx context.Context) (bool, error) { return l.to.Undo(ctx, claim, from) })
}

func (l *link) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	return over(ctx, l, "look", func(ctx context.Context) ([]store.Status, error) {
		all, err := l.to.Look(ctx, keys)
		for i := range all {
			if l.seen != nil {
				l.seen(&all[i])
			}
		}
		return all, err
	})
}

func (l *link) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		all, err := over(ctx, l, "list", func(ctx context.Context) (all []store.Status, err error) {
			for s, err := range l.to.List(ctx, prefix) {
				if err != nil {
					return nil, err
				}
				if l.seen != nil {
					l.seen(&s)
				}
				all = append(all, s)
			}
			return all, nil
		})
		if err != nil {
			yield(store.Status{}, err)
			return
		}
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (l *link) Notify(ctx context.Context, all ...store.Notice) error {
	_, err := over(ctx, l, "notify", func(ctx context.Context) (any, error) { return nil, l.to.Notify(ctx, all...) })
	return err
}

func (l *link) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		if err := l.travel(); err != nil {
			yield(store.Notice{}, err)
			return
		}
		ctx, end := context.WithCancel(ctx)
		defer end()
		l.mu.Lock()
		l.watches[&end] = true
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.watches, &end)
		}()
		for n, err := range l.to.Watch(ctx, of) {
			if !yield(n, err) {
				return
			}
		}
		yield(store.Notice{}, errNet)
	}
}
