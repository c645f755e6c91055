package once_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/once"
)

const (
	name = "add-index"
	ttl  = 10 * time.Second
)

// A world is a replica set in virtual time, and what the function of these tests did.
type world struct {
	*docset.Set
	t *testing.T

	mu      sync.Mutex // protects what follows
	runs    []string   // by whom, as they began
	inside  int        // runs at this moment
	overlap bool       // there were two
	tokens  []int64
}

func inVirtualTime(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { test(t, &world{Set: docset.New(0), t: t}) })
}

// collection is the one of the records, through a client of its own.
func (w *world) collection(trouble docset.Trouble) *mongo.Collection {
	w.t.Helper()
	return w.Client(w.t, trouble).Database("app").Collection("once")
}

func (w *world) calm() *mongo.Collection { return w.collection(docset.None) }

// work is a function that notes who runs it, and then does the rest.
func (w *world) work(who string, rest once.Func) once.Func {
	return func(ctx context.Context, run once.Run) error {
		w.mu.Lock()
		w.runs, w.tokens = append(w.runs, who), append(w.tokens, run.Token())
		w.inside++
		w.overlap = w.overlap || w.inside > 1
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.inside--
		}()
		return rest(ctx, run)
	}
}

// takes is work that takes so long, unless its context ends.
func takes(d time.Duration) once.Func {
	return func(ctx context.Context, _ once.Run) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// quiet are the options of a process.
func quiet(who string) []once.Option {
	return []once.Option{once.With(mongolock.TTL(ttl)), once.WithOwner(who), once.WithLogger(slog.New(slog.DiscardHandler))}
}

// do is a process that calls Do.
func (w *world) do(ctx context.Context, who string, trouble docset.Trouble, rest once.Func, opts ...once.Option) error {
	return once.Do(ctx, w.collection(trouble), name, w.work(who, rest), append(opts, quiet(who)...)...)
}

var errElsewhere = errors.New("it runs elsewhere")

// tryDo is one that calls TryDo.
func (w *world) tryDo(ctx context.Context, who string, trouble docset.Trouble, rest once.Func, opts ...once.Option) error {
	done, err := once.TryDo(ctx, w.collection(trouble), name, w.work(who, rest), append(opts, quiet(who)...)...)
	if err == nil && !done {
		return errElsewhere
	}
	return err
}

// record is what the record shows, without times and tokens.
func (w *world) record() (all []string) {
	w.t.Helper()
	r, err := once.Look(w.t.Context(), w.calm(), name)
	require.NoError(w.t, err)
	for _, e := range r.Past {
		text := fmt.Sprintf("%d %s %s", e.Number, e.Owner, e.Outcome)
		if e.Error != "" {
			text += ": " + e.Error
		}
		all = append(all, text)
	}
	last := len(r.Past) - 1
	assert.Equal(w.t, r.Done, last >= 0 && r.Past[last].Outcome == once.Succeeded)
	return all
}

func (w *world) ranApart() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.False(w.t, w.overlap, "two runs at a time, of %v", w.runs)
	assert.IsIncreasing(w.t, append([]int64{0}, w.tokens...), "tokens")
}
