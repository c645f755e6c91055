package pathlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A Memory keeps trees in memory: for tests, and for trees of one process. Several trees
// with the same Memory and name behave like several processes.
type Memory struct {
	store.Feed
	clock func() time.Time

	mu    sync.Mutex // protects trees; makes each call one step
	trees map[string]*Document
}

// InMemory makes an empty storage.
func InMemory() *Memory {
	began := time.Now() // its monotonic reading is not affected when the clock is set
	return InMemoryWithClock(func() time.Time { return began.Add(time.Since(began)).Round(0).UTC() })
}

// InMemoryWithClock is InMemory with another clock, for tests. The clock is called with
// the storage locked.
func InMemoryWithClock(now func() time.Time) *Memory {
	return &Memory{Feed: memstore.New(), clock: now, trees: make(map[string]*Document)}
}

// AnswersAtOnce marks a storage whose calls never block.
func (m *Memory) AnswersAtOnce() {}

func (m *Memory) open(name string) engine { return documents{m, name} }

// View shows a tree.
func (m *Memory) View(ctx context.Context, tree string, look func(*Document, Clock)) error {
	if err := notStarted(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	look(m.tree(tree), Clock{now, now})
	return nil
}

// Update changes a tree.
func (m *Memory) Update(ctx context.Context, tree string, change func(*Document, Clock) (Edit, error)) (time.Time, error) {
	if err := notStarted(ctx); err != nil {
		return time.Time{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	doc := m.tree(tree)
	edit, err := change(doc, Clock{now, now})
	if err == nil {
		doc.Apply(edit)
	}
	return now, err
}

func (m *Memory) tree(name string) *Document {
	doc := m.trees[name]
	if doc == nil {
		doc = NewDocument()
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
