package mongolocktest_test

import (
	"context"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store/memstore"
)

var place = regexp.MustCompile(`, at \S+/orders_test\.go:\d+`)

// ordered returns a client in memory whose orders are noted.
func ordered(t testing.TB) mongolock.Locker {
	c := lab.Client(t, memstore.New())
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return mongolocktest.Orders(t, c)
}

// take takes keys, each under those before it.
func take(ctx context.Context, t testing.TB, locks mongolock.Locker, keys ...string) {
	if len(keys) == 0 {
		return
	}
	require.NoError(t, mongolock.Do(ctx, locks, keys[0], func(ctx context.Context, _ *mongolock.Lease) error {
		take(ctx, t, locks, keys[1:]...)
		return nil
	}))
}

func TestKeysInDifferentOrdersFailTheTestOnceWithBothPlaces(t *testing.T) {
	const failure = "mongolocktest: keys are taken in different orders, so two callers can wait for each other: "
	for name, test := range map[string]struct {
		waits [][]string
		want  string // empty: they are in order
	}{
		"one order":                   {waits: [][]string{{"order:1", "customer:2"}, {"order:3", "customer:1"}}},
		"both, twice":                 {[][]string{{"order:1", "customer:2"}, {"customer:7", "order:9"}, {"customer:7", "order:8"}}, "order under customer; but customer under order"},
		"by a third":                  {[][]string{{"a/1", "b/1"}, {"b/2", "c/2"}, {"c", "a/3"}}, "a under c; but b under a; c under b"},
		"no way back":                 {waits: [][]string{{"a", "b"}, {"b", "c"}, {"a", "c"}, {"d", "a"}}},
		"under one lease":             {waits: [][]string{{"tenant", "order:1", "customer:1"}, {"tenant", "customer:1", "order:1"}}},
		"keys of a class":             {waits: [][]string{{"item:1", "item:2"}, {"item:9", "item:10"}, {"item:3", "item:2"}}},
		"the same keys of a class":    {[][]string{{"item:1", "item:2"}, {"item:2", "item:1"}}, "item:1 under item:2; but item:2 under item:1"},
		"below a tenant":              {waits: [][]string{{"tenant/1/order/5", "tenant/1/stock/9"}, {"tenant/1/order/5", "tenant/1/customer/7"}}},
		"below two tenants":           {[][]string{{"tenant/1/order/5", "tenant/1/stock/9"}, {"tenant/2/stock/1", "tenant/2/order/7"}}, "tenant/*/order under tenant/*/stock; but tenant/*/stock under tenant/*/order"},
		"keys that begin with a sign": {[][]string{{":1", "/2"}, {"/2", ":1"}}, ":1 under /2; but /2 under :1"},
	} {
		t.Run(name, func(t *testing.T) {
			want := ""
			if test.want != "" {
				want = failure + test.want + ". Take them in one order everywhere, or together with AcquireAll."
			}
			for of, locker := range map[string]func(testing.TB) mongolock.Locker{
				"any": ordered,
				"New": func(t testing.TB) mongolock.Locker { return mongolocktest.New(t) },
			} {
				said := run(t, func(t testing.TB) {
					locks := locker(t)
					for _, keys := range test.waits {
						take(t.Context(), t, locks, keys...)
					}
				})
				assert.Equal(t, want, place.ReplaceAllString(said, ""), of)
				if want != "" {
					assert.GreaterOrEqual(t, len(place.FindAllString(said, -1)), 2, said)
				}
			}
		})
	}
}

func TestWhatCannotWaitForAnotherSaysNothingOfTheOrder(t *testing.T) {
	for name, use := range map[string]func(t testing.TB, locks mongolock.Locker){
		"an attempt under a lease": func(t testing.TB, locks mongolock.Locker) {
			for _, keys := range [][2]string{{"order:1", "customer:1"}, {"customer:1", "order:1"}} {
				require.NoError(t, mongolock.Do(t.Context(), locks, keys[0], func(ctx context.Context, _ *mongolock.Lease) error {
					_, err := mongolock.TryDo(ctx, locks, keys[1], func(context.Context, *mongolock.Lease) error { return nil })
					return err
				}))
			}
		},
		"AcquireAll, which has an order of its own": func(t testing.TB, locks mongolock.Locker) {
			for _, keys := range [][]string{{"order-items:3", "order"}, {"order:17", "order-items:3"}} {
				rival, err := locks.Acquire(t.Context(), "order-items:3") // so that one key is waited for with the other in hand
				require.NoError(t, err)
				time.AfterFunc(time.Second, func() { _ = rival.Release() })
				all, err := mongolock.AcquireAll(t.Context(), locks, keys)
				require.NoError(t, err)
				require.NoError(t, all.Release())
			}
		},
		"a lease that has ended": func(t testing.TB, locks mongolock.Locker) {
			for _, keys := range [][2]string{{"order:1", "customer:1"}, {"customer:1", "order:1"}} {
				first, err := locks.Acquire(t.Context(), keys[0])
				require.NoError(t, err)
				ctx := context.WithoutCancel(first.Context(t.Context()))
				require.NoError(t, first.Release())
				take(ctx, t, locks, keys[1])
			}
		},
		"the key itself": func(t testing.TB, locks mongolock.Locker) {
			require.NoError(t, mongolock.Do(t.Context(), locks, "k", func(ctx context.Context, _ *mongolock.Lease) error {
				_, err := locks.Acquire(ctx, "k")
				require.ErrorIs(t, err, mongolock.ErrHeld)
				return nil
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				assert.Empty(t, run(t, func(t testing.TB) { use(t, ordered(t)) }))
			})
		})
	}
}

func TestTheKeysOfAnAcquireAllCountUnderALease(t *testing.T) {
	for name, locker := range map[string]func(testing.TB) mongolock.Locker{
		"any": ordered,
		"New": func(t testing.TB) mongolock.Locker { return mongolocktest.New(t) },
	} {
		said := run(t, func(t testing.TB) {
			locks := locker(t)
			require.NoError(t, mongolock.Do(t.Context(), locks, "customer:1", func(ctx context.Context, _ *mongolock.Lease) error {
				all, err := mongolock.AcquireAll(ctx, locks, []string{"order:1", "order:2"})
				require.NoError(t, err)
				return all.Release()
			}))
			take(t.Context(), t, locks, "order:1", "customer:2")
		})
		assert.Contains(t, said, "customer under order", name)
		assert.Len(t, place.FindAllString(said, -1), 2, said)
	}
}

func TestReadersInDifferentOrdersFailTheTestToo(t *testing.T) {
	assert.Contains(t, run(t, func(t testing.TB) {
		locks := ordered(t)
		for _, keys := range [][2]string{{"price:1", "stock:1"}, {"stock:1", "price:1"}} {
			require.NoError(t, mongolock.Do(t.Context(), locks, keys[0], func(ctx context.Context, _ *mongolock.Lease) error {
				return mongolock.Do(ctx, locks, keys[1], func(context.Context, *mongolock.Lease) error { return nil }, mongolock.Shared())
			}, mongolock.Shared()))
		}
	}), "price under stock")
}

// It shows that the rule about readers is right: with a writer waiting for each key they deadlock.
func TestReadersInDifferentOrdersCanWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		connect := func() *mongolock.Client {
			c := lab.Client(t, mem)
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		ended := make(chan error, 2)
		for _, keys := range [][2]string{{"price:1", "stock:1"}, {"stock:1", "price:1"}} {
			reader, writer := connect(), connect()
			go func() {
				ended <- mongolock.Do(t.Context(), reader, keys[0], func(ctx context.Context, _ *mongolock.Lease) error {
					time.Sleep(time.Second)
					return mongolock.Do(ctx, reader, keys[1], func(context.Context, *mongolock.Lease) error { return nil }, mongolock.Shared(), mongolock.MaxWait(time.Minute))
				}, mongolock.Shared())
			}()
			time.AfterFunc(time.Second/2, func() {
				_ = mongolock.Do(t.Context(), writer, keys[0], func(context.Context, *mongolock.Lease) error { return nil })
			})
		}
		require.ErrorIs(t, <-ended, mongolock.ErrHeld)
		<-ended
	})
}

func TestWhatIsTakenAfterTheTestSaysNothing(t *testing.T) {
	var locks mongolock.Locker
	c := lab.Client(t, memstore.New())
	r := &recordingT{TB: t}
	locks = mongolocktest.Orders(r, c)
	take(t.Context(), t, locks, "a", "b")
	for _, f := range r.cleanup {
		f()
	}
	take(t.Context(), t, locks, "b", "a")
	assert.Empty(t, r.errors)
}
