package doclock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
)

func TestASaveInATransactionTakesEffectWithTheCommit(t *testing.T) {
	needs(t, "transactions")
	coll := collection(t)
	session := must(coll.Database().Client().StartSession())(t)
	defer session.EndSession(context.Background())
	for how, save := range map[string]func(context.Context, *Document[order]) error{
		"Save":           func(ctx context.Context, d *Document[order]) error { return d.Save(ctx) },
		"SaveAndRelease": func(ctx context.Context, d *Document[order]) error { return d.SaveAndRelease(ctx) },
	} {
		for _, commit := range []bool{false, true} {
			id := how + map[bool]string{true: "-committed", false: "-aborted"}[commit]
			put(t, coll, order{ID: id, State: "new"})
			locks := locksOn[order](t, coll, With(mongolock.TTL(time.Minute)))
			doc := must(locks.Acquire(t.Context(), ID(id)))(t)
			require.NoError(t, session.StartTransaction())
			ctx := mongo.NewSessionContext(t.Context(), session)
			doc.Value.State = "paid"
			require.NoError(t, save(ctx, doc), id)
			raw := get(t, coll, id)
			assert.Equal(t, "new", raw.Lookup("state").StringValue(), "%s: others, before its end", id)
			assert.Equal(t, doc.Lease().ID(), readLock(raw, "lock").id, "%s: others, before its end", id)

			end, state, locked := session.AbortTransaction, "new", true
			if commit {
				end, state, locked = session.CommitTransaction, "paid", how == "Save"
			}
			require.NoError(t, end(ctx))
			raw = get(t, coll, id)
			assert.Equal(t, state, raw.Lookup("state").StringValue(), "%s: after its end", id)
			assert.Equal(t, locked, readLock(raw, "lock").id != "", "%s: locked after its end", id)
			if !commit { // still locked: it can be saved again
				assert.NoError(t, doc.Save(t.Context()), "%s: saved again", id)
				assert.Equal(t, "paid", get(t, coll, id).Lookup("state").StringValue(), "%s: saved again", id)
			}
			assert.NoError(t, doc.Release(), id)
			assert.Empty(t, readLock(get(t, coll, id), "lock").id, "%s: the holder after the release", id)
		}
	}
}

func TestARenewalAfterTheCommitEndsTheLeaseAsReleased(t *testing.T) {
	needs(t, "transactions")
	coll := collection(t)
	put(t, coll, order{ID: "o"})
	doc := must(locksOn[order](t, coll).Acquire(t.Context(), ID("o")))(t)
	require.NoError(t, inTransactionOf(t, coll, func(ctx context.Context) error {
		doc.Value.State = "paid"
		return doc.SaveAndRelease(ctx)
	}))
	_ = doc.Lease().Renew(t.Context())
	assert.ErrorIs(t, doc.Lease().Err(), mongolock.ErrReleased)
	assert.NoError(t, doc.Release())
}

func TestALockIsTakenOutsideOfTheCallersTransaction(t *testing.T) {
	needs(t, "transactions")
	coll := collection(t)
	put(t, coll, order{ID: "o"}, order{ID: "held"})
	must(locksOn[order](t, coll).Acquire(t.Context(), ID("held")))(t)
	locks := locksOn[order](t, coll)
	aborted := errors.New("aborted")
	var doc *Document[order]
	require.ErrorIs(t, inTransactionOf(t, coll, func(ctx context.Context) error {
		if _, err := coll.InsertOne(ctx, order{ID: "new"}); err != nil {
			return err
		}
		_, err := locks.TryAcquire(ctx, ID("held"))
		assert.ErrorIs(t, err, mongolock.ErrHeld)
		_, err = locks.TryAcquire(ctx, ID("new"))
		assert.ErrorIs(t, err, ErrNotFound, "a document that only the transaction sees")
		doc, err = locks.TryAcquire(ctx, ID("o"))
		assert.NoError(t, err)
		assert.NoError(t, coll.FindOne(ctx, ID("new")).Err(), "the transaction must still be open")
		return aborted
	}), aborted)
	require.NotNil(t, doc)
	assert.Equal(t, doc.Lease().ID(), readLock(get(t, coll, "o"), "lock").id, "the holder after the abort")
}

// inTransactionOf runs f in a transaction, which is committed if f returns nil.
func inTransactionOf(t *testing.T, coll *mongo.Collection, f func(context.Context) error) error {
	t.Helper()
	return coll.Database().Client().UseSession(t.Context(), func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
			return nil, f(ctx)
		}, options.Transaction())
		return err
	})
}
