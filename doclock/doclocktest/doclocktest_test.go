package doclocktest_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/doclock/doclocktest"
	"github.com/mongolock/mongolock/internal/test/kit/testmisuse"
)

type order struct {
	ID    string `bson:"_id"`
	State string `bson:"state"`
	Total int    `bson:"total"`
}

var (
	o        = doclock.ID("o")
	isNew    = bson.D{{Key: "state", Value: "new"}}
	errAway  = errors.New("the database is away")
	silently = doclock.WithLogger(slog.New(slog.DiscardHandler))
)

// inVirtualTime runs a test on a collection with document "o".
func inVirtualTime(t *testing.T, test func(t *testing.T, orders *doclocktest.Locks[order]), opts ...doclock.Option) {
	t.Helper()
	started := time.Now()
	synctest.Test(t, func(t *testing.T) {
		orders := doclocktest.New[order](t, append(opts, silently)...)
		orders.Insert(order{"o", "new", 40})
		test(t, orders)
	})
	assert.Less(t, time.Since(started), 30*time.Second)
}

func TestGetReturnsADocumentWithoutItsLock(t *testing.T) {
	orders := doclocktest.New[bson.M](t, doclock.Field("locked"))
	orders.Insert(bson.M{"_id": "o", "state": "new"})
	orders.Hold(o)
	assert.Equal(t, bson.M{"_id": "o", "state": "new"}, orders.Get(o))
}

func TestAHeldDocumentIsWaitedFor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, orders *doclocktest.Locks[order]) {
		release := orders.Hold(o)
		_, err := orders.TryAcquire(t.Context(), o)
		require.ErrorIs(t, err, mongolock.ErrHeld)
		time.AfterFunc(30*time.Minute, release) // it is renewed for as long
		began := time.Now()
		doc, err := orders.Acquire(t.Context(), o)
		require.NoError(t, err)
		assert.InDelta(t, 30*time.Minute, time.Since(began), float64(time.Minute))
		doc.Value.State = "paid"
		require.NoError(t, doc.SaveAndRelease(t.Context()))
		assert.Equal(t, order{"o", "paid", 40}, orders.Get(o))
	})
}

func TestALostDocumentIsNotSaved(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, orders *doclocktest.Locks[order]) {
		doc, err := orders.Acquire(t.Context(), o)
		require.NoError(t, err)
		work := doc.Lease().Context(t.Context())
		orders.Lose(o)
		require.Error(t, work.Err())
		doc.Value.State = "paid"
		require.ErrorIs(t, doc.Save(t.Context()), mongolock.ErrLost)
		orders.Hold(o)()
		assert.Equal(t, "new", orders.Get(o).State)
	})
}

func TestADatabaseThatIsAwayForLongEndsTheLeaseAndAShortTimeDoesNot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, orders *doclocktest.Locks[order]) {
		doc, err := orders.Acquire(t.Context(), o)
		require.NoError(t, err)
		orders.Fail(errAway)
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, doc.Save(within))
		_, err = orders.Collection().CountDocuments(within, isNew)
		require.Error(t, err)
		orders.Fail(nil)
		time.Sleep(time.Minute) // virtual: it is renewed again
		require.NoError(t, doc.Lease().Err())
		n, err := orders.Collection().CountDocuments(t.Context(), isNew)
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)

		orders.Fail(errAway)
		<-doc.Lease().Done()
		require.ErrorIs(t, doc.Lease().Err(), mongolock.ErrLost)
		assert.Equal(t, order{"o", "new", 40}, orders.Get(o))
	})
}

func TestClaimsAndDeadLettersInVirtualTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, orders *doclocktest.Locks[order]) {
		for range 2 {
			c, err := orders.Claim(t.Context(), isNew, nil)
			require.NoError(t, err)
			require.NoError(t, c.Requeue(t.Context(), time.Hour))
			_, err = orders.TryClaim(t.Context(), isNew, nil)
			require.ErrorIs(t, err, doclock.ErrNoWork, "it is put off")
			time.Sleep(time.Hour + 2*time.Second) // virtual: until it may be claimed
		}
		_, err := orders.TryClaim(t.Context(), isNew, nil)
		require.ErrorIs(t, err, doclock.ErrNoWork)
		dead := 0
		for d, err := range orders.Dead(t.Context(), isNew) {
			require.NoError(t, err)
			assert.Equal(t, 2, d.Attempts)
			dead++
		}
		require.Equal(t, 1, dead)
		var working sync.WaitGroup
		working.Go(func() { // a waiting worker hears of it
			c, err := orders.Claim(t.Context(), isNew, nil)
			assert.NoError(t, err)
			assert.NoError(t, c.Complete(t.Context()))
		})
		time.Sleep(time.Hour) // virtual: a waiter has it by then
		n, err := orders.Reopen(t.Context(), bson.D{})
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		working.Wait()
	}, doclock.MaxAttempts(2))
}

// A saga goes on where its worker died.
func TestADeadWorkersDocumentComesBackInVirtualTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, orders *doclocktest.Locks[order]) {
		c, err := orders.Claim(t.Context(), isNew, nil, mongolock.NoRenewal())
		require.NoError(t, err)
		began := time.Now()
		again, err := orders.Claim(t.Context(), isNew, nil)
		require.NoError(t, err)
		assert.Equal(t, 2, again.Attempts())
		assert.InDelta(t, 30*time.Second, time.Since(began), float64(5*time.Second))
		require.ErrorIs(t, c.Complete(t.Context()), mongolock.ErrLost)
		require.NoError(t, again.Complete(t.Context()))
	})
}

func TestUpdatesInRealTime(t *testing.T) {
	orders := doclocktest.New[order](t, silently)
	orders.Insert(order{"o", "new", 0})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 25 {
				assert.NoError(t, orders.Update(t.Context(), o, func(o *order) error { o.Total++; return nil }))
			}
		})
	}
	all.Wait()
	assert.Equal(t, 100, orders.Get(o).Total)
}

func TestControlMisuseFailsTheTest(t *testing.T) {
	start := func(f *testmisuse.T) *doclocktest.Locks[order] {
		orders := doclocktest.New[order](f, silently)
		orders.Insert(order{"o", "new", 0})
		return orders
	}
	for name, misuse := range map[string]func(f *testmisuse.T){
		"a document is not released": func(f *testmisuse.T) { _, _ = start(f).Acquire(context.Background(), o) },
		"Hold of a held document":    func(f *testmisuse.T) { orders := start(f); orders.Hold(o); orders.Hold(o) },
		"Lose of a free document":    func(f *testmisuse.T) { start(f).Lose(o) },
		"Lose of somebody else's":    func(f *testmisuse.T) { orders := start(f); orders.Hold(o); orders.Lose(o) },
		"Lose while nobody could":    func(f *testmisuse.T) { orders := start(f); orders.Fail(errAway); orders.Lose(o) },
		"Get of no document":         func(f *testmisuse.T) { start(f).Get(doclock.ID("p")) },
		"Insert of a second":         func(f *testmisuse.T) { start(f).Insert(order{"o", "new", 1}) },
		"a bad option":               func(f *testmisuse.T) { doclocktest.New[order](f, doclock.MaxAttempts(-1)) },
	} {
		assert.NotEmpty(t, testmisuse.Failures(t, misuse), name)
	}
	assert.Empty(t, testmisuse.Failures(t, func(f *testmisuse.T) { start(f).Hold(o)() }), "a test that does nothing wrong")
}

func TestShutdownLetsAHolderSave(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, orders *doclocktest.Locks[order]) {
		doc, err := orders.Acquire(t.Context(), o)
		require.NoError(t, err)
		go func() {
			<-doc.Lease().Context(t.Context()).Done()
			doc.Value.State = "half done"
			assert.NoError(t, doc.SaveAndRelease(t.Context()))
		}()
		require.NoError(t, orders.Shutdown(t.Context()))
		assert.Equal(t, "half done", orders.Get(o).State)
		_, err = orders.TryAcquire(t.Context(), o)
		assert.ErrorIs(t, err, mongolock.ErrClosed)
	})
}

func TestAClaimIsSavedAndKept(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, orders *doclocktest.Locks[order]) {
		c, err := orders.Claim(t.Context(), isNew, nil)
		require.NoError(t, err)
		c.Value.State = "half sent"
		require.NoError(t, c.Save(t.Context()))
		assert.Equal(t, "half sent", orders.Get(o).State)
		_, err = orders.TryAcquire(t.Context(), o)
		require.ErrorIs(t, err, mongolock.ErrHeld)
		assert.Equal(t, "o", c.ID().StringValue())
		assert.Equal(t, c.Lease().ID(), c.Holder().ID)
		require.NoError(t, c.Release())
	})
}

// Cents are stored as text by a codec of the application's own.
type cents int

func TestARegistryDecodesAndEncodesDocuments(t *testing.T) {
	registry := bson.NewRegistry()
	registry.RegisterTypeDecoder(reflect.TypeFor[cents](), bson.ValueDecoderFunc(func(_ bson.DecodeContext, r bson.ValueReader, v reflect.Value) error {
		text, err := r.ReadString()
		n, wrong := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
		return errors.Join(err, wrong)
	}))
	registry.RegisterTypeEncoder(reflect.TypeFor[cents](), bson.ValueEncoderFunc(func(_ bson.EncodeContext, w bson.ValueWriter, v reflect.Value) error {
		return w.WriteString(strconv.FormatInt(v.Int(), 10))
	}))
	type article struct {
		ID    string `bson:"_id"`
		Price cents  `bson:"price"`
	}
	articles := doclocktest.New[article](t, silently, doclock.Registry(registry))
	_, err := articles.Collection().InsertOne(t.Context(), bson.M{"_id": "o", "price": "40"})
	require.NoError(t, err)
	doc, err := articles.Acquire(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, cents(40), doc.Value.Price)
	doc.Value.Price = 41
	require.NoError(t, doc.SaveAndRelease(t.Context()))
	raw, err := articles.Collection().FindOne(t.Context(), o).Raw()
	require.NoError(t, err)
	assert.Equal(t, "41", raw.Lookup("price").StringValue())
}
