package mongostore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

// taken takes n keys and returns their releases.
func (f *fixture) taken(n int, claim func(key string) store.Claim) (batch []store.Ending) {
	f.t.Helper()
	for i := range n {
		c := claim(fmt.Sprint("key-", i))
		f.acquire(f.store, c)
		batch = append(batch, store.Ending{Ref: c.Ref})
	}
	return batch
}

func shortClaim(key string) store.Claim { return exclusiveClaim(key, 30*time.Second) }

// documents returns how many there are.
func (f *fixture) documents() int64 {
	f.t.Helper()
	n, err := f.coll.CountDocuments(f.ctx(), bson.D{})
	require.NoError(f.t, err)
	return n
}

func TestReleasesByTheHundredTakeTwoCommandsAndOneMoreIfSomebodyWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var claims []store.Claim
	for i := range 1000 {
		claims = append(claims, exclusiveClaim(fmt.Sprint("key-", i), time.Minute))
	}
	var batch []store.Ending
	for _, c := range claims {
		f.acquire(f.store, c)
		batch = append(batch, store.Ending{Ref: c.Ref})
	}
	f.tap.Take()
	for _, answer := range f.store.Release(f.ctx(), batch[:500]) {
		require.Equal(t, store.Ended{}, answer)
	}
	assert.Equal(t, []string{"find", "delete"}, f.tap.TakeNames())
	waiting := f.waits(f.store, shortClaim("key-700"))
	f.tap.Take()
	for i, answer := range f.store.Release(f.ctx(), batch[500:]) {
		var want store.Ended
		if batch[500+i].Key == "key-700" {
			want.Line = []store.Place{waiting.Place}
		}
		require.Equal(t, want, answer, batch[500+i].Key)
	}
	assert.Equal(t, []string{"find", "delete", "update"}, f.tap.TakeNames())
	assert.EqualValues(t, 1, f.documents())
	f.acquire(f.store, anew(waiting))
	f.tap.Take()

	for _, answer := range f.store.Release(f.ctx(), batch) {
		require.ErrorIs(t, answer.Err, store.ErrGone)
	}
	assert.Equal(t, []string{"find"}, f.tap.TakeNames(), "of a bulk that was released")
}

func TestAHundredSharersLeaveWithFourCommands(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	batch := f.taken(100, func(key string) store.Claim {
		c := shortClaim(key)
		c.Mode, c.Limit = store.Shared, 0
		return c
	})
	f.tap.Take()
	for _, answer := range f.store.Release(f.ctx(), batch) {
		require.NoError(t, answer.Err)
	}
	assert.Equal(t, []string{"find", "update", "find", "delete"}, f.tap.TakeNames())
	assert.Zero(t, f.documents())
}

func TestABulkOfNoticesIsOneInsert(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "capped")
	f := newFixture(t)
	for _, err := range f.store.Watch(f.ctx(), store.Audience{}) { // it makes the collection
		require.NoError(t, err)
		break
	}
	f.tap.Take()
	all := make([]store.Notice, 400)
	for i := range all {
		all[i] = store.Notice{Topic: store.TopicLocks, Key: fmt.Sprint("key-", i), Kind: store.KindOffered, To: "here"}
	}
	require.NoError(t, f.store.Notify(f.ctx(), all...))
	assert.Equal(t, []string{"insert"}, f.tap.TakeNames())
}

// between calls do when the store is about to send its first command of that name.
func (f *fixture) between(name string, do func()) *Store {
	var once sync.Once
	return f.another(func(o *options.ClientOptions) {
		o.SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == name {
				once.Do(do)
			}
		}})
	})
}

// A waiter that joins the line after the bulk has looked must be told of the release: its
// document is not deleted unseen.
func TestAPlaceThatIsTakenDuringABulkIsSeen(t *testing.T) {
	t.Parallel()
	for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
		t.Run(string(mode), func(t *testing.T) { assert.Equal(t, []string{"key-7"}, awaitedDuringABulk(t, mode)) })
	}
}

// awaitedDuringABulk releases twenty keys, for which of key-7 one begins to wait between the find
// and the write. It returns the keys whose release was answered with a line. All but key-7 must be
// gone then, and that must be free.
func awaitedDuringABulk(t *testing.T, mode store.Mode) (awaited []string) {
	f := newFixture(t)
	batch := f.taken(20, func(key string) store.Claim {
		c := shortClaim(key)
		if c.Mode = mode; mode == store.Shared {
			c.Limit = 0
		}
		return c
	})
	var waiting store.Claim
	write := map[store.Mode]string{store.Exclusive: "delete", store.Shared: "update"}[mode]
	s := f.between(write, func() { waiting = f.waits(f.another(), shortClaim("key-7")) })
	_, err := s.base.Read(f.ctx())
	require.NoError(t, err)
	for i, answer := range s.Release(f.ctx(), batch) {
		require.NoError(t, answer.Err)
		require.Zero(t, answer.Left)
		if len(answer.Line) > 0 {
			awaited = append(awaited, batch[i].Key)
		}
	}
	if f.documents() > 0 {
		assert.EqualValues(t, 1, f.documents())
		f.acquire(f.another(), anew(waiting))
	}
	return awaited
}

// A bulk whose reply is lost may have been applied; one whose find failed has not.
func TestABulkWithoutAnAnswerIsUnknownFromItsDeleteOn(t *testing.T) {
	t.Parallel()
	for name, certain := range map[string]bool{"find": true, "delete": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			batch := f.taken(20, shortClaim)
			ctx, cancel := context.WithCancel(f.ctx())
			s := f.between(name, cancel)
			for _, answer := range s.Release(ctx, batch) {
				require.Error(t, answer.Err)
				assert.Equal(t, certain, store.IsCertain(answer.Err), "%v", answer.Err)
			}
			for _, answer := range f.store.Release(f.ctx(), batch) {
				if answer.Err != nil {
					assert.ErrorIs(t, answer.Err, store.ErrGone)
				}
			}
			assert.Zero(t, f.documents())
		})
	}
}

// takenMeanwhile releases many keys, one of which another process takes between the find and
// the delete. It returns whether that one is still held then.
func takenMeanwhile(t *testing.T) (held bool) {
	f := newFixture(t)
	batch := f.taken(20, shortClaim)
	next := shortClaim("key-7")
	s := f.between("delete", func() {
		err := released(context.WithoutCancel(t.Context()), f.store, batch[7].Ref, 0)
		assert.NoError(t, err)
		_, err = f.store.Acquire(context.WithoutCancel(t.Context()), next)
		assert.NoError(t, err)
	})
	for _, answer := range s.Release(f.ctx(), batch) {
		require.NoError(t, answer.Err, "one that was released meanwhile is released")
	}
	all, err := f.store.Look(f.ctx(), []string{"key-7"})
	require.NoError(t, err)
	return len(all[0].Holders) == 1 && all[0].Holders[0].ID == next.ID
}

func TestALateBulkOfReleasesRemovesNoOtherHolder(t *testing.T) {
	t.Parallel()
	assert.True(t, takenMeanwhile(t), "the next holder was removed")
}
