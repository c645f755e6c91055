package pathlock

import (
	"context"
	"fmt"
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

	mu    sync.Mutex // protects trees; makes each call one step
	trees map[string]*document
}

// InMemory makes an empty storage in memory: for tests, and for trees of one process. Several trees
// with the same storage and name behave like several processes.
func InMemory() Storage { return kept{newMemory()} }

func newMemory() *memory {
	began := time.Now() // its monotonic reading is not affected when the clock is set
	return &memory{
		Feed: memstore.New(), trees: make(map[string]*document),
		clock: func() time.Time { return began.Add(time.Since(began)).Round(0).UTC() },
	}
}

// AnswersAtOnce marks a storage whose calls never block.
func (m *memory) AnswersAtOnce() {}

// View shows a tree.
func (m *memory) View(ctx context.Context, tree string, look func(*document, interval)) error {
	if err := notStarted(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	look(m.tree(tree), interval{now, now})
	return nil
}

// Update changes a tree.
func (m *memory) Update(ctx context.Context, tree string, change func(*document, interval) (edit, error)) (time.Time, error) {
	if err := notStarted(ctx); err != nil {
		return time.Time{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	doc := m.tree(tree)
	edit, err := change(doc, interval{now, now})
	if err == nil {
		doc.apply(edit)
	}
	return now, err
}

func (m *memory) tree(name string) *document {
	doc := m.trees[name]
	if doc == nil {
		doc = newDocument()
		m.trees[name] = doc
	}
	return doc
}

// notStarted refuses a call whose context has ended.
func notStarted(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("pathlock: %w (%w)", context.Cause(ctx), store.ErrNotApplied)
	}
	return nil
}

func init() {
	above.FailingPaths = func(failure func() error) (failing, intact any) {
		m := newMemory()
		return kept{failingMemory{m, failure}}, kept{m}
	}
}

// A failingMemory is what package pathlocktest makes unreachable. Its feed does not fail, because
// notices are hints.
type failingMemory struct {
	*memory
	failure func() error // the answer of every call; nil if calls succeed
}

func (f failingMemory) View(ctx context.Context, tree string, look func(*document, interval)) error {
	if err := f.failure(); err != nil {
		return err
	}
	return f.memory.View(ctx, tree, look)
}

func (f failingMemory) Update(ctx context.Context, tree string, change func(*document, interval) (edit, error)) (time.Time, error) {
	if err := f.failure(); err != nil {
		return time.Time{}, err
	}
	return f.memory.Update(ctx, tree, change)
}
