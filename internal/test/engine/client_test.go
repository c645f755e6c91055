package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

var everyVerb = []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"}

// mustNotShow fails if any verb shows one of the IDs.
func mustNotShow(t *testing.T, ids []string, what ...any) {
	t.Helper()
	for _, verb := range everyVerb {
		for _, w := range what {
			text := fmt.Sprintf(verb, w)
			for _, id := range ids {
				assert.NotContains(t, text, id, "%s of a %T", verb, w)
				assert.NotContains(t, text, fmt.Sprintf("%x", id), "%s of a %T", verb, w)
			}
		}
	}
}

// An eventLog keeps what an observer is told.
type eventLog struct {
	mu     sync.Mutex // protects events
	events []any
}

func (e *eventLog) add(event any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event)
}

func (e *eventLog) Begin(ctx context.Context, op mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	e.add(op)
	return ctx, func(out mongolock.Outcome) { e.add(out) }
}

// An ID lets its reader end the lease, so no ID gets into a log by accident: of leases,
// held and ended; of claims of unknown outcome, which the client cleans up; of others.
func TestFormattingAClientOrAnEventShowsNoID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := lab.New(memstore.New()), new(eventLog)
		var ids []string
		b.On(lab.Acquire, func(_ context.Context, call *lab.Call) error {
			ids = append(ids, call.Claim.ID)
			err := call.Do()
			if call.Key == "unknown" {
				err = errNet
			}
			return err
		})
		b.On(lab.Undo, lab.Fail(errNet))
		c := newClient(t, b, mongolock.WithObserver(log))
		held, ended := acquire(t, c, "held"), acquire(t, c, "ended")
		release(t, ended)
		_, err := c.TryAcquire(t.Context(), "unknown")
		require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		other := newClient(t, b, mongolock.WithObserver(log))
		_, refused := other.TryAcquire(t.Context(), "held")
		require.ErrorIs(t, refused, mongolock.ErrHeld)
		_, mismatch := other.TryAcquire(t.Context(), "shared", mongolock.Shared())
		require.NoError(t, mismatch)
		_, mismatch = other.TryAcquire(t.Context(), "shared", mongolock.OneOf(2))
		require.ErrorIs(t, mismatch, mongolock.ErrModeMismatch)
		status, err := c.Inspect(t.Context(), "held")
		require.NoError(t, err)
		for range 2 {
			synctest.Wait()
			mustNotShow(t, ids, c, other, struct{ C *mongolock.Client }{c}, held, ended, refused, mismatch, status, status.Holders,
				store.Claim{Ref: store.Ref{Key: "k", ID: ids[0]}}, c.Stats())
			log.mu.Lock()
			mustNotShow(t, ids, log.events...)
			log.mu.Unlock()
			time.Sleep(time.Minute)
		}
		require.Len(t, ids, 6)
		log.mu.Lock()
		assert.NotEmpty(t, log.events)
		log.mu.Unlock()
		assert.Contains(t, fmt.Sprintf("%+v", status), status.Holders[0].Owner)
	})
}
