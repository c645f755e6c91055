package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/leasectx"
	"github.com/mongolock/mongolock/internal/test/kit/cputime"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestAcquireAllTakesEveryKeyAndAnswersInTheOrderGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := newClient(t, s)
		given := []string{"c", "a", "b"}
		all, err := mongolock.AcquireAll(t.Context(), c, given)
		require.NoError(t, err)
		for i, key := range given {
			assert.Equal(t, key, all[i].Key(), "a caller pairs leases with keys")
			mustBeHeld(t, s, key)
		}
		assert.Equal(t, []string{"c", "a", "b"}, given, "the caller's keys")
		assert.NoError(t, errors.Join(all.Err(), all.Release(), all.Release()))
		assert.ErrorIs(t, all.Err(), mongolock.ErrReleased)
		for _, l := range all {
			mustBeFree(t, s, l.Key())
		}
	})
}

func TestAcquireAllRefusesInvalidArgumentsAndSendsNothing(t *testing.T) {
	b := lab.New(memstore.New())
	c := newClient(t, b)
	for says, keys := range map[string][]string{
		"no keys":                nil,
		`"b" is given twice`:     {"b", "a", "b"},
		"key is empty":           {"a", ""},
		"key has 1025 bytes":     {"a", strings.Repeat("x", 1025)},
		"key is not valid UTF-8": {"a", "\xff"},
	} {
		all, err := mongolock.AcquireAll(t.Context(), c, keys)
		assert.Nil(t, all)
		assert.ErrorContains(t, err, says)
	}
	all, err := mongolock.AcquireAll(t.Context(), nil, []string{"a"})
	assert.Nil(t, all)
	assert.ErrorContains(t, err, "locker is nil")
	for _, opt := range []mongolock.AcquireOption{nil, mongolock.TTL(0), mongolock.MaxWait(-1)} {
		all, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b"}, opt)
		assert.Nil(t, all)
		assert.Error(t, err, "an invalid option")
	}
	assert.Zero(t, b.Count(lab.Acquire), "claims sent")
}

func TestAcquireAllReleasesItsKeysIfOneIsNotGranted(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		one, two := newClient(t, b), newClient(t, b)
		held := acquire(t, one, "b")
		start := time.Now()
		all, err := mongolock.AcquireAll(t.Context(), two, []string{"a", "b", "c"}, mongolock.MaxWait(time.Minute))
		assert.Nil(t, all, "leases returned with an error")
		assert.ErrorIs(t, err, mongolock.ErrHeld)
		tookBetween(t, start, time.Minute, time.Minute)
		mustBeFree(t, b, "a")
		mustBeFree(t, b, "c")
		release(t, held)
		mustBeFree(t, b, "b")
	})
}

func TestMaxWaitBoundsAcquireAllAsAWhole(t *testing.T) {
	for _, test := range []struct {
		given   string
		client  []mongolock.ClientOption
		acquire []mongolock.AcquireOption
	}{
		{"to the call", nil, []mongolock.AcquireOption{mongolock.MaxWait(time.Minute)}},
		{"to the client", []mongolock.ClientOption{mongolock.MaxWait(time.Minute)}, nil},
		{"to a wrapped client", []mongolock.ClientOption{mongolock.MaxWait(time.Minute)}, nil},
		{"to both", []mongolock.ClientOption{mongolock.MaxWait(time.Hour)}, []mongolock.AcquireOption{mongolock.MaxWait(time.Minute)}},
	} {
		t.Run(test.given, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				one, two := newClient(t, s), newClient(t, s, test.client...)
				a, b := acquire(t, one, "a"), acquire(t, one, "b")
				time.AfterFunc(50*time.Second, func() { _ = a.Release() })
				var locker mongolock.Locker = two
				if strings.Contains(test.given, "wrapped") {
					locker = struct{ *mongolock.Client }{two}
				}
				start := time.Now()
				_, err := mongolock.AcquireAll(t.Context(), locker, []string{"a", "b"}, test.acquire...)
				assert.ErrorIs(t, err, mongolock.ErrHeld)
				tookBetween(t, start, time.Minute, time.Minute+10*time.Millisecond)
				release(t, b)
			})
		})
	}
}

func TestAcquireAllFailsWhenALeaseIsLostWhileItWaits(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		one, two := newClient(t, b), newClient(t, b)
		held := acquire(t, one, "b")
		start := time.Now()
		all, err := mongolock.AcquireAll(t.Context(), two, []string{"a", "b"}, mongolock.NoRenewal(), mongolock.TTL(10*time.Second))
		assert.Nil(t, all, "leases returned with an error")
		assert.ErrorIs(t, err, mongolock.ErrLost)
		tookBetween(t, start, 9*time.Second, 10*time.Second)
		release(t, held)
		time.Sleep(time.Minute)
		mustBeFree(t, b, "a")
		mustBeFree(t, b, "b")
	})
}

// An inTurn is a Locker that AcquireAll asks for one key after the other: it has no key at once. It
// notes of how many leases the contexts of the claims are made.
type inTurn struct {
	*mongolock.Client
	under int // the most
}

func (l *inTurn) TryAcquire(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return nil, mongolock.ErrHeld
}

func (l *inTurn) Acquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	l.under = max(l.under, len(slices.Collect(leasectx.Owners(ctx))))
	return l.Client.Acquire(ctx, key, opts...)
}

func keysNamed(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%04d", strings.Repeat("k", 1000), i*7919%n)
	}
	return keys
}

// In a chain of contexts each claim would go through all leases before it.
func TestTheClaimsOfAnAcquireAllStandSideBySide(t *testing.T) {
	l := &inTurn{Client: newClient(t, memstore.New())}
	all, err := mongolock.AcquireAll(t.Context(), l, keysNamed(50))
	require.NoError(t, errors.Join(err, all.Release()))
	assert.Zero(t, l.under)
}

func TestTheTimeOfAcquireAllGrowsWithTheNumberOfKeys(t *testing.T) {
	l := &inTurn{Client: newClient(t, memstore.New())}
	least := func(n int) time.Duration {
		keys, best := keysNamed(n), time.Hour
		for range 3 {
			before := cputime.Used(t) // a processor that others use takes nothing of it
			all, err := mongolock.AcquireAll(t.Context(), l, keys, mongolock.NoRenewal(), mongolock.TTL(time.Hour))
			best = min(best, cputime.Used(t)-before)
			require.NoError(t, errors.Join(err, all.Release()))
		}
		return best
	}
	const few = 100
	many := fewer.Of(4000)
	base, took := least(few), least(many)
	t.Logf("%d keys: %v, %d: %v", few, base, many, took)
	assert.Less(t, took, 10*time.Duration(many/few)*base)
}

func TestACancelledAcquireAllHoldsNothing(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		one, two := newClient(t, b), newClient(t, b)
		held := acquire(t, one, "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := mongolock.AcquireAll(ctx, two, []string{"a", "b"})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, mongolock.ErrHeld)
		mustBeFree(t, b, "a")
		release(t, held)
	})
}

func TestCallersOfAcquireAllWithKeysInCommonDoNotDeadlock(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		orders := [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c"}, {"c", "a"}}
		var wg sync.WaitGroup
		start := time.Now()
		for _, keys := range orders {
			c := newClient(t, b)
			wg.Go(func() {
				for range 10 {
					all, err := mongolock.AcquireAll(t.Context(), c, keys)
					if !assert.NoError(t, err) {
						return
					}
					time.Sleep(10 * time.Millisecond)
					assert.NoError(t, errors.Join(all.Err(), all.Release()))
				}
			})
		}
		wg.Wait()
		tookBetween(t, start, 0, time.Minute)
	})
}

func TestTheContextOfSeveralLeasesEndsWhenAnyOfThemIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := newClient(t, s)
		type mark struct{}
		parent := context.WithValue(t.Context(), mark{}, "value")
		for lost := range 3 {
			all, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b", "c"}, mongolock.Shared())
			require.NoError(t, err)
			ctx := all.Context(parent)
			assert.NoError(t, ctx.Err())
			assert.Equal(t, "value", ctx.Value(mark{}))
			s.Delete(all[lost].Key())
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), mongolock.ErrLost)
			assert.ErrorIs(t, all.Err(), mongolock.ErrLost)
			assert.ErrorIs(t, all.Release(), mongolock.ErrLost)
			for _, l := range all {
				mustBeFree(t, s, l.Key())
			}
		}
	})
}

func TestReleaseOfSeveralLeasesReportsTheOneThatFailed(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		all, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b"})
		require.NoError(t, err)
		b.On(lab.Release, func(_ context.Context, call *lab.Call) error {
			if call.Key == "a" {
				return errNet
			}
			return call.Do()
		})
		err = all.Release()
		assert.ErrorIs(t, err, errNet)
		mustBeFree(t, b, "b")
		b.On(lab.Release, nil)
		assert.NoError(t, all.Release())
		mustBeFree(t, b, "a")
	})
}

func TestAReleaseOfManyThatOthersWaitForIsOverWithinItsTimeWhenTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHungStore()
		defer s.hung.Store(false)
		c := newClient(t, s)
		keys := numbered(50)
		all, err := mongolock.AcquireAll(t.Context(), c, keys)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, key := range keys {
			inBackground(ctx, c, key)
			inBackground(ctx, newClient(t, s), key)
		}
		time.Sleep(2 * time.Second)
		s.hung.Store(true)
		start := time.Now()
		assert.Error(t, all.Release())
		tookBetween(t, start, time.Second, 5*time.Second)
	})
}

func TestAFailedAcquireAllReportsTheKeysThatItCouldNotRelease(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		acquire(t, newClient(t, b), "c")
		c := newClient(t, b)
		time.AfterFunc(time.Second, func() {
			b.Mem.Delete("a") // so the lease of "a" is lost
			b.On(lab.Release, func(_ context.Context, call *lab.Call) error {
				if call.Key == "b" {
					return errNet
				}
				return call.Do()
			})
		})
		_, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b", "c"})
		assert.ErrorIs(t, err, mongolock.ErrLost)
		assert.ErrorIs(t, err, errNet)
	})
}

func TestForGivesOneOfSeveralKeysOptionsOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, s), newClient(t, s)
		inAll := func(c *mongolock.Client, tenant string, opts ...mongolock.AcquireOption) (mongolock.Leases, error) {
			return mongolock.AcquireAll(t.Context(), c, []string{tenant, "all"}, append(opts, mongolock.For(tenant, mongolock.OneOf(1)), mongolock.For("all", mongolock.OneOf(2)))...)
		}
		one, err := inAll(c, "tenant 1")
		require.NoError(t, err)
		assert.Equal(t, []string{"tenant 1", "all"}, []string{one[0].Key(), one[1].Key()})

		_, err = inAll(other, "tenant 1", mongolock.MaxWait(time.Second))
		assert.ErrorIs(t, err, mongolock.ErrHeld, "the tenant's only permit")
		two, err := inAll(other, "tenant 2")
		require.NoError(t, err)
		_, err = inAll(other, "tenant 3", mongolock.MaxWait(time.Second))
		assert.ErrorIs(t, err, mongolock.ErrHeld, "the last of two for all")
		assert.NoError(t, errors.Join(one.Release(), two.Release()))
		for _, key := range []string{"tenant 1", "tenant 2", "tenant 3", "all"} {
			mustBeFree(t, s, key)
		}
	})
}

func TestForInTheWrongPlaceIsRefusedAndSendsNothing(t *testing.T) {
	b := lab.New(memstore.New())
	c := newClient(t, b)
	for says, opts := range map[string][]mongolock.AcquireOption{
		`For("c"): it is not among the keys`: {mongolock.For("c", mongolock.Shared())},
		`For("a"): MaxWait is for all keys`:  {mongolock.For("a", mongolock.MaxWait(time.Second))},
		`For("b"): only AcquireAll`:          {mongolock.For("a", mongolock.For("b"))},
		"TTL(0s)":                            {mongolock.For("b", mongolock.TTL(0))},
		"a nil":                              {mongolock.For("b", nil)},
	} {
		all, err := mongolock.AcquireAll(t.Context(), c, []string{"a", "b"}, opts...)
		assert.Nil(t, all)
		assert.ErrorContains(t, err, says)
	}
	_, err := c.Acquire(t.Context(), "a", mongolock.For("a", mongolock.Shared()))
	assert.ErrorContains(t, err, `For("a"): only AcquireAll`)
	assert.Zero(t, b.Count(), "calls")
}

func TestAnAcquireAllThatFailsLeavesNothingBehindWhateverItsMinHold(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		held := acquire(t, newClient(t, b.Mem), "b")
		_, err := mongolock.AcquireAll(t.Context(), newClient(t, b), []string{"a", "b"}, mongolock.MinHold(time.Hour), mongolock.MaxWait(time.Second))
		require.ErrorIs(t, err, mongolock.ErrHeld)
		synctest.Wait()
		mustBeFree(t, b, "a")
		release(t, held)
	})
}
