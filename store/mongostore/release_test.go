package mongostore

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store"
)

// takenMeanwhile releases a key that another process releases and takes before the command is sent.
// It returns whether that one still holds the key then.
func takenMeanwhile(t *testing.T) (held bool) {
	f := newFixture(t)
	c, next := exclusiveClaim("k", 30*time.Second), exclusiveClaim("k", 30*time.Second)
	f.acquire(f.store, c)
	var once sync.Once
	late := f.another(func(o *options.ClientOptions) {
		o.SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "findAndModify" {
				once.Do(func() {
					assert.NoError(t, released(context.WithoutCancel(t.Context()), f.store, c.Ref, 0))
					_, err := f.store.Acquire(context.WithoutCancel(t.Context()), next)
					assert.NoError(t, err)
				})
			}
		}})
	})
	if err := released(f.ctx(), late, c.Ref, 0); err != nil {
		require.ErrorIs(t, err, store.ErrGone)
	}
	all, err := f.store.Look(f.ctx(), []string{"k"})
	require.NoError(t, err)
	return len(all[0].Holders) == 1 && all[0].Holders[0].ID == next.ID
}

func TestALateReleaseRemovesNoOtherHolder(t *testing.T) {
	t.Parallel()
	assert.True(t, takenMeanwhile(t), "the next holder was removed")
}
