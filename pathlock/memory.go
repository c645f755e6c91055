package pathlock

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/inside/above"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A memory keeps trees in memory.
type memory struct {
	store.Feed
	clock func() time.Time
	fails func() error // the answer of every call, for package pathlocktest; nil if calls succeed

	mu    *sync.Mutex // protects trees; makes each call one step
	trees map[string]*document
}

// InMemory makes an empty storage in memory: for tests, and for trees of one process. Several trees
// with the same storage and name behave like several processes.
func InMemory() Storage { return newMemory() }

func newMemory() *memory {
	began := time.Now() // its monotonic reading is not affected when the clock is set
	return &memory{
		Feed: memstore.New(), mu: new(sync.Mutex), trees: make(map[string]*document),
		clock: func() time.Time { return began.Add(time.Since(began)).Round(0).UTC() },
		fails: func() error { return nil },
	}
}

func init() {
	above.FailingPaths = func(failure func() error) (failing, intact any) {
		m := newMemory()
		f := *m // its feed does not fail, because notices are hints
		f.fails = failure
		return &f, m
	}
}

func (m *memory) open(name string, _ *slog.Logger) treeStore {
	return documents{kept: m, name: name, atOnce: true}
}

// View shows a tree.
func (m *memory) View(ctx context.Context, tree string, look func(*document, interval)) error {
	_, err := m.Update(ctx, tree, look)
	return err
}

// Update changes a tree.
func (m *memory) Update(ctx context.Context, tree string, change func(*document, interval)) (time.Time, error) {
	if err := notStarted(ctx); err != nil {
		return time.Time{}, err
	}
	if err := m.fails(); err != nil {
		return time.Time{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	doc := m.trees[tree]
	if doc == nil {
		doc = newDocument()
		m.trees[tree] = doc
	}
	now := m.clock()
	change(doc, interval{now, now})
	return now, nil
}

// notStarted refuses a call whose context has ended.
func notStarted(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("pathlock: %w (%w)", context.Cause(ctx), store.ErrNotApplied)
	}
	return nil
}
