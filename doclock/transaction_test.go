package doclock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/store"
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
			assert.Equal(t, doc.Lease().ID(), readLock(raw, "lock").holder().ID, "%s: others, before its end", id)

			end, state, locked := session.AbortTransaction, "new", true
			if commit {
				end, state, locked = session.CommitTransaction, "paid", how == "Save"
			}
			require.NoError(t, end(ctx))
			raw = get(t, coll, id)
			assert.Equal(t, state, raw.Lookup("state").StringValue(), "%s: after its end", id)
			assert.Equal(t, locked, readLock(raw, "lock").holder().ID != "", "%s: locked after its end", id)
			if !commit { // still locked: it can be saved again
				assert.NoError(t, doc.Save(t.Context()), "%s: saved again", id)
				assert.Equal(t, "paid", get(t, coll, id).Lookup("state").StringValue(), "%s: saved again", id)
			}
			assert.NoError(t, doc.Release(), id)
			assert.Empty(t, readLock(get(t, coll, id), "lock").holder().ID, "%s: the holder after the release", id)
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

func TestAnOpenTransactionHoldsUpTheRenewalOfItsOwnDocumentAlone(t *testing.T) {
	needs(t, "transactions")
	coll := collection(t)
	locks := locksOn[order](t, coll, With(mongolock.TTL(time.Minute)))
	var docs []*Document[order]
	for _, id := range []string{"own", "other", "third"} {
		put(t, coll, order{ID: id})
		docs = append(docs, must(locks.Acquire(t.Context(), ID(id)))(t))
	}
	renew := func(within time.Duration) (errs []error) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		var batch []store.Renewal
		for _, d := range docs {
			batch = append(batch, store.Renewal{Ref: d.ref(), TTL: time.Minute})
		}
		for _, a := range locks.store.Renew(ctx, batch) {
			errs = append(errs, a.Err)
		}
		return errs
	}
	session := must(coll.Database().Client().StartSession())(t)
	defer session.EndSession(context.Background())
	for _, end := range []func(context.Context) error{session.AbortTransaction, session.CommitTransaction} {
		require.NoError(t, session.StartTransaction())
		ctx := mongo.NewSessionContext(t.Context(), session)
		docs[0].Value.State += "x"
		require.NoError(t, docs[0].Save(ctx))
		errs := renew(500 * time.Millisecond)
		assert.Error(t, errs[0], "the transaction is open")
		assert.NoError(t, errors.Join(errs[1:]...), "the documents that it has not written")
		require.NoError(t, end(ctx))
		assert.NoError(t, errors.Join(renew(10*time.Second)...), "after its end")
		g, _ := locks.store.granted(docs[0].Lease().ID())
		assert.Zero(t, g.wroteAt, "renewed together with the others again")
	}
}

func TestATransactionThatSavesFirstOutlastsManyRenewals(t *testing.T) {
	needs(t, "transactions")
	t.Parallel()
	coll := collection(t)
	put(t, coll, order{ID: "o"}, order{ID: "audit"})
	ttl := pace.Of(4 * time.Second)
	doc := must(locksOn[order](t, coll, With(mongolock.TTL(ttl))).Acquire(t.Context(), ID("o")))(t)
	tries := 0
	require.NoError(t, inTransactionOf(t, coll, func(ctx context.Context) error {
		tries++
		if err := doc.Save(ctx); err != nil { // nothing has changed: it takes the document for the transaction
			return err
		}
		if _, err := coll.UpdateByID(ctx, "audit", bson.D{{Key: "$inc", Value: bson.D{{Key: "total", Value: 1}}}}); err != nil {
			return err
		}
		time.Sleep(ttl / 2) // a renewal is due after a third
		doc.Value.State = "paid"
		return doc.Save(ctx)
	}))
	assert.Equal(t, 1, tries, "it was refused for a renewal")
	assert.NoError(t, doc.Lease().Renew(t.Context()))
	assert.Equal(t, "paid", get(t, coll, "o").Lookup("state").StringValue())
	assert.NoError(t, doc.SaveAndRelease(t.Context()))
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
	assert.Equal(t, doc.Lease().ID(), readLock(get(t, coll, "o"), "lock").holder().ID, "the holder after the abort")
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
