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

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
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

func TestAThousandReleasesTakeTwoCommands(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var claims []store.Claim
	for i := range 1000 {
		claims = append(claims, shortClaim(fmt.Sprint("key-", i)))
	}
	var batch []store.Ending
	for i, answer := range f.store.AcquireMany(f.ctx(), claims) { // one by one the first would run out on a busy machine
		require.NoError(t, answer.Err)
		batch = append(batch, store.Ending{Ref: claims[i].Ref})
	}
	waiting := shortClaim("key-500")
	waiting.Want = time.Minute
	_, err := f.store.Acquire(f.ctx(), waiting)
	require.ErrorIs(t, err, store.ErrHeld)
	f.tap.Take()
	for i, answer := range f.store.ReleaseMany(f.ctx(), batch) {
		require.NoError(t, answer.Err)
		want := batch[i].Key == "key-500"
		assert.Equal(t, want, answer.Wanted, batch[i].Key)
	}
	assert.Equal(t, []string{"find", "delete"}, f.tap.TakeNames())
	assert.Zero(t, f.documents())

	for _, answer := range f.store.ReleaseMany(f.ctx(), batch) {
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
	for _, answer := range f.store.ReleaseMany(f.ctx(), batch) {
		require.NoError(t, answer.Err)
	}
	assert.Equal(t, []string{"find", "update", "find", "delete"}, f.tap.TakeNames())
	assert.Zero(t, f.documents())
}

func TestABulkOfWakeUpsIsOneInsert(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "capped")
	f := newFixture(t)
	for _, err := range f.store.Watch(f.ctx()) { // it makes the collection
		require.NoError(t, err)
		break
	}
	f.tap.Take()
	all := make([]store.Notice, 400)
	for i := range all {
		all[i] = store.Notice{Topic: store.TopicLocks, Key: fmt.Sprint("key-", i), Kind: store.KindFreed}
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

// A waiter that leaves word after the bulk has looked must be told of the release: its
// document is not deleted unseen.
func TestAWordThatIsLeftDuringABulkIsSeen(t *testing.T) {
	t.Parallel()
	for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
		t.Run(string(mode), func(t *testing.T) { assert.Equal(t, []string{"key-7"}, wantedDuringABulk(t, mode)) })
	}
}

// wantedDuringABulk releases twenty keys, of which key-7 gets a word between the find and the
// delete. It returns the keys whose release was answered as waited for.
func wantedDuringABulk(t *testing.T, mode store.Mode) (wanted []string) {
	f := newFixture(t)
	batch := f.taken(20, func(key string) store.Claim {
		c := shortClaim(key)
		if c.Mode = mode; mode == store.Shared {
			c.Limit = 0
		}
		return c
	})
	wait := func() {
		c := shortClaim("key-7")
		c.Want = time.Minute
		_, err := f.store.Acquire(context.WithoutCancel(t.Context()), c)
		assert.ErrorIs(t, err, store.ErrHeld)
	}
	if mode == store.Shared {
		wait = func() { // a waiter would be granted the key here: only the word is written
			c := f.document("key-7")
			until := time.Now().Add(time.Hour)
			_, err := f.coll.UpdateOne(context.WithoutCancel(t.Context()), bson.D{{Key: "_id", Value: c.key}},
				bson.D{{Key: "$set", Value: bson.D{{Key: fieldWanted, Value: mongobase.Date(until)}}}})
			assert.NoError(t, err)
		}
	}
	s := f.between("delete", wait)
	_, err := s.base.Read(f.ctx())
	require.NoError(t, err)
	for i, answer := range s.ReleaseMany(f.ctx(), batch) {
		require.NoError(t, answer.Err)
		if answer.Wanted {
			wanted = append(wanted, batch[i].Key)
		}
	}
	assert.Zero(t, f.documents())
	return wanted
}

func TestAWritersWordOutlivesABulkOfSharers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := shortClaim("k")
	c.Mode, c.Limit = store.Shared, 0
	f.acquire(f.store, c)
	writer := shortClaim("k")
	writer.Want = time.Minute
	_, err := f.store.Acquire(f.ctx(), writer)
	require.ErrorIs(t, err, store.ErrHeld)
	answers := f.store.ReleaseMany(f.ctx(), []store.Ending{{Ref: c.Ref}})
	assert.Equal(t, []store.Ended{{Wanted: true}}, answers)
	left := f.document("k")
	assert.Empty(t, left.Holders)
	assert.False(t, left.exclusiveWanted.IsZero())
	assert.False(t, left.expireAt.After(f.store.base.Present()), "its end has just passed")
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
			for _, answer := range s.ReleaseMany(ctx, batch) {
				require.Error(t, answer.Err)
				assert.Equal(t, certain, store.IsCertain(answer.Err), "%v", answer.Err)
			}
			for _, answer := range f.store.ReleaseMany(f.ctx(), batch) {
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
		_, err := f.store.Release(context.WithoutCancel(t.Context()), batch[7].Ref, 0)
		assert.NoError(t, err)
		_, err = f.store.Acquire(context.WithoutCancel(t.Context()), next)
		assert.NoError(t, err)
	})
	for _, answer := range s.ReleaseMany(f.ctx(), batch) {
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
