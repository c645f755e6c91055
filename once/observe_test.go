package once_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/once"
)

// A watcher notes the runs that it is told of, each by its key and how it ended.
type watcher struct {
	mu   sync.Mutex
	runs []string
}

type spanKey struct{}

func (w *watcher) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	if of.Op != mongolock.OpRun {
		return ctx, func(mongolock.Outcome) {}
	}
	return context.WithValue(ctx, spanKey{}, "of the run"), func(out mongolock.Outcome) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.runs = append(w.runs, of.Package+" "+of.Key+" "+mongolock.OutcomeOf(out.Err))
		if out.Token == 0 || out.Count != 1 {
			w.runs = append(w.runs, "without token or count")
		}
	}
}

func (w *watcher) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.runs...)
}

func TestAnObserverSeesTheRunAndHowItEnded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		var o watcher
		coll := w.collection(docset.None)
		observed := once.WithObserver(&o)
		shown := ""
		do := func(name string, fn once.Func, opts ...once.Option) error {
			return once.Do(t.Context(), coll, name, fn, append(opts, observed)...)
		}
		require.NoError(t, do("done", func(ctx context.Context, _ once.Run) error {
			shown, _ = ctx.Value(spanKey{}).(string)
			return nil
		}))
		assert.Equal(t, "of the run", shown, "what the function does is within the run")
		require.NoError(t, do("done", nothing), "it does not run again")
		require.Error(t, do("broken", func(context.Context, once.Run) error { return errors.New("no disk") }))
		require.Error(t, do("too long", func(ctx context.Context, _ once.Run) error {
			<-ctx.Done()
			return ctx.Err()
		}, once.With(mongolock.MaxHold(time.Minute))))
		assert.Panics(t, func() { _ = do("panicked", func(context.Context, once.Run) error { panic("at the disk") }) })
		time.Sleep(time.Second) // the observer is told beside the call
		assert.ElementsMatch(t, []string{"once done granted", "once broken failed", "once too long lost", "once panicked failed"}, o.seen())
	})
}

func nothing(context.Context, once.Run) error { return nil }
