package record_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/record"
)

// A table stands for one of a database: each of its methods is a statement.
type table struct {
	mu       sync.Mutex // protects what follows
	rows     map[string]row
	sequence int64
}

type row struct {
	version int64 // moves with every write
	text    string
}

// get is "select version, text, now() from locks where key = ?".
func (t *table) get(key string) (r row, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[key], time.Now()
}

// swap is "update locks set version = ?, text = ? where key = ? and version = ?", or the insert or
// delete that corresponds to it. It reports whether the row still had that version.
func (t *table) swap(key string, version int64, text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.rows[key].version != version:
		return false
	case text == "":
		delete(t.rows, key)
	default:
		t.sequence++
		t.rows[key] = row{t.sequence, text}
	}
	return true
}

// next is "select nextval('tokens')".
func (t *table) next() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sequence++
	return t.sequence
}

// keys is "select key from locks order by key".
func (t *table) keys() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.rows))
}

// A lockTable is a store.Store on a table.
type lockTable struct{ *table }

// content is what a row has. The mark tells our rows from others (duty 10).
type content struct {
	Mark int `json:"mongolock"`
	record.Key
}

// read returns the content of a row. A key without a row has an empty one.
func (s lockTable) read(key string) (c content, version int64, now time.Time, err error) {
	r, now := s.get(key)
	if r.version == 0 {
		return content{Mark: 1}, 0, now, nil
	}
	if json.Unmarshal([]byte(r.text), &c) != nil || c.Mark != 1 || c.Verify() != nil {
		return content{}, 0, now, fmt.Errorf("%w: the row of %q", store.ErrForeign, key)
	}
	return c, r.version, now, nil
}

// ended reports a context that has ended, as a fault that left no trace.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w (%w)", err, store.ErrNotApplied)
	}
	return nil
}

// change makes one step of a key (duty 1): it reads the row, lets the rules change the key, and
// swaps the row. If another step came in between, it begins again. A refusal is kept too: its claim
// may have joined the line.
func change[T any](ctx context.Context, s lockTable, r store.Ref, do func(k *record.Key, now time.Time) (T, error)) (none T, err error) {
	if err := record.Check(r.Mode); err != nil {
		return none, err
	}
	for {
		if err := ended(ctx); err != nil {
			return none, err
		}
		c, version, now, err := s.read(r.Key)
		if err != nil {
			return none, err
		}
		answer, err := do(&c.Key, now)
		if errors.Is(err, store.ErrNotApplied) {
			return none, err
		}
		text := ""
		if !c.Empty() {
			bytes, failed := json.Marshal(c)
			if failed != nil {
				return none, fmt.Errorf("%w (%w)", failed, store.ErrNotApplied)
			}
			text = string(bytes)
		}
		if s.swap(r.Key, version, text) {
			return answer, err
		}
	}
}

// grant gives a grant its token (duty 5). If the swap fails a number is skipped.
func (s lockTable) grant(ctx context.Context, c store.Claim, do func(k *record.Key, now time.Time) (store.Grant, error)) (store.Grant, error) {
	return change(ctx, s, c.Ref, func(k *record.Key, now time.Time) (store.Grant, error) {
		g, err := do(k, now)
		if err == nil {
			g.Token = s.next()
		}
		return g, err
	})
}

func (s lockTable) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	return s.grant(ctx, c, func(k *record.Key, now time.Time) (store.Grant, error) { return k.Claim(now, &c) })
}

func (s lockTable) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	return s.grant(ctx, to, func(k *record.Key, now time.Time) (store.Grant, error) { return k.Transfer(now, from, &to) })
}

func (s lockTable) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	answers := make([]store.Renewed, len(batch))
	for i, r := range batch {
		answers[i], answers[i].Err = change(ctx, s, r.Ref, func(k *record.Key, now time.Time) (store.Renewed, error) {
			return k.Renew(now, r)
		})
	}
	return answers
}

func (s lockTable) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	return change(ctx, s, e.Ref, func(k *record.Key, now time.Time) (store.ReleaseResult, error) { return k.Release(now, e) })
}

func (s lockTable) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	return change(ctx, s, store.Ref{Key: key, Mode: store.Exclusive}, func(k *record.Key, now time.Time) (store.Status, error) {
		return k.Leave(now, key, p), nil
	})
}

// Undo is settled at once: a call on this table that has returned changes nothing any more.
func (s lockTable) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	return change(ctx, s, claim, func(k *record.Key, now time.Time) (bool, error) {
		k.Undo(now, claim, from)
		return true, nil
	})
}

func (s lockTable) Break(ctx context.Context, r store.Ref, reason string, atOnce bool) error {
	_, err := change(ctx, s, r, func(k *record.Key, now time.Time) (bool, error) {
		return true, k.Break(now, r.ID, reason, atOnce)
	})
	return err
}

func (s lockTable) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, foreign := make([]store.Status, len(keys)), make([]error, len(keys))
	for i, key := range keys {
		c, _, now, err := s.read(key)
		all[i], foreign[i] = c.Status(key, now), err
	}
	if err := ended(ctx); err != nil {
		return nil, err
	}
	return all, errors.Join(foreign...)
}

func (s lockTable) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		for _, key := range s.keys() {
			c, _, now, err := s.read(key)
			if err != nil || c.Empty() || !strings.HasPrefix(key, prefix) {
				continue // foreign, removed meanwhile, or not asked for
			}
			if !yield(c.Status(key, now), ended(ctx)) || ctx.Err() != nil {
				return
			}
		}
	}
}

// A store on a table of a database that can compare and swap: the rules of a key are those of this
// package, the store reads, swaps, draws tokens, and tells the database's time.
func Example() {
	ctx := context.Background()
	client, err := mongolock.NewWithStore(lockTable{&table{rows: make(map[string]row)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	lease, err := client.TryAcquire(ctx, "nightly-report")
	fmt.Println("one has token", lease.Token(), err)
	_, err = client.TryAcquire(ctx, "nightly-report")
	fmt.Println("another is refused:", errors.Is(err, mongolock.ErrHeld))
	// Output:
	// one has token 1 <nil>
	// another is refused: true
}
