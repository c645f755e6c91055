package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func garbage(t *testing.T, mem *memstore.Store, id string, p store.Place) {
	t.Helper()
	_, err := mem.Acquire(t.Context(), store.Claim{Ref: store.Ref{Key: "k", ID: id, Mode: store.Exclusive}, Limit: 1, TTL: time.Minute, Place: p})
	require.ErrorIs(t, err, store.ErrHeld)
}

// Garbage places: the waiter behind one.
func TestGarbagePlaces(t *testing.T) {
	for _, p := range []store.Place{"garbage", "x", "x:", "::", "p0::a", "p-1:a:b", "p99999999999999999999:a:b", "s", "x:a", "y:a:b", ":a:b"} {
		t.Run(string(p), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				b := lab.New(mem)
				gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
				garbage(t, mem, "g", p)
				w := inBackground(t.Context(), newClient(t, b), "k")
				time.Sleep(time.Second)
				start := time.Now()
				release(t, gate)
				if l := within(t, "behind garbage", start, w, 121*time.Second); l != nil {
					release(t, l)
				}
				t.Log(b.Counts())
				assert.LessOrEqual(t, b.Count(), 20)
			})
		})
	}
}

// The store's clock is stepped back by an hour: the places of those who died do not get stale.
func TestAClockThatIsSteppedBack(t *testing.T) {
	for _, step := range []time.Duration{-5 * time.Minute, time.Hour, -2 * time.Minute, 2 * time.Minute} {
		for _, first := range []store.Place{"garbage", store.NewPlace(store.Exclusive, 1, 1, "dead")} {
			t.Run(fmt.Sprint(step, first), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					var off time.Duration
					mem := memstore.New(memstore.WithClock(func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(off) }))
					b, b2 := lab.New(mem), lab.New(mem)
					gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(3*time.Hour))
					garbage(t, mem, "g", first)
					w := inBackground(t.Context(), newClient(t, b), "k")
					w2 := inBackground(t.Context(), newClient(t, b2, mongolock.WithoutFeed()), "k")
					time.Sleep(time.Second)
					mu.Lock()
					off = step
					mu.Unlock()
					start := time.Now()
					release(t, gate)
					for range 2 {
						who := "first"
						var r result
						select {
						case r = <-w:
						case r = <-w2:
							who = "second, which polls,"
						}
						require.NoError(t, r.err)
						t.Logf("%s served after %v", who, time.Since(start))
						release(t, r.lease)
					}
					t.Log(b.Counts(), b2.Counts(), time.Since(start))
				})
			})
		}
	}
}

// What a bogus, late or doubled notice costs a waiter under a holder that holds for long.
func TestABogusOfferCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		b := lab.New(mem)
		acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
		w := newClient(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		wait := inBackground(ctx, w, "k")
		time.Sleep(2 * time.Second)
		all, err := mem.Look(t.Context(), []string{"k"})
		require.NoError(t, err)
		p := all[0].Line[0].Place
		b.Reset()
		for range 1000 {
			require.NoError(t, mem.Notify(t.Context(), store.Notice{Topic: store.TopicLocks, Key: "k", Kind: store.KindOffered, To: p.Address(), Place: p}))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		t.Logf("1000 bogus offers in 10 s: %s", b.Counts())
		b.Reset()
		require.NoError(t, mem.Notify(t.Context(), store.Notice{Topic: store.TopicLocks, Key: "k", Kind: store.KindOffered, To: p.Address(), Place: p}))
		time.Sleep(5 * time.Second)
		t.Logf("one bogus offer: %s", b.Counts())
		b.Reset()
		for i := range 100 {
			require.NoError(t, mem.Notify(t.Context(), store.Notice{Topic: store.TopicLocks, Key: "k", Kind: store.KindOffered, To: p.Address(), Place: store.Place(fmt.Sprint("x:", p.Address(), ":", i))}))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		t.Logf("100 offers for places of nobody: %s", b.Counts())
		cancel()
		<-wait
	})
}

// Close leaves no place, whenever it comes.
func TestCloseLeavesNoPlace(t *testing.T) {
	left, n := 0, 3000
	for i := range n {
		mem := memstore.New()
		holder, err := mongolock.NewWithStore(mem, mongolock.WithMargin(0))
		require.NoError(t, err)
		_, err = holder.Acquire(t.Context(), "k", mongolock.TTL(time.Minute))
		require.NoError(t, err)
		c, err := mongolock.NewWithStore(mem)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Acquire(context.Background(), "k")
		}()
		for range i % 50 {
			runtime.Gosched()
		}
		_ = c.Close()
		<-done
		all, _ := mem.Look(t.Context(), []string{"k"})
		if len(all[0].Line) > 0 {
			left++
		}
		_ = holder.Close()
	}
	assert.Zero(t, left, "of %d clients closed at once", n)
}

// The same, with claims under way when the client closes, on a store whose calls take time.
func TestCloseLeavesNoPlaceOfAClaimUnderWay(t *testing.T) {
	for d := time.Duration(0); d < 40*time.Millisecond; d += time.Millisecond {
		for _, how := range []string{"close", "context", "patience", "shutdown"} {
			t.Run(fmt.Sprint(how, d), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mem := memstore.New()
					holder := newClient(t, mem)
					acquire(t, holder, "k", mongolock.TTL(time.Hour))
					b := lab.New(mem)
					b.All(lab.Slow(10*time.Millisecond, 10*time.Millisecond))
					c := newClient(t, b)
					ctx, cancel := context.WithCancel(t.Context())
					var opts []mongolock.AcquireOption
					if how == "patience" && d > 0 {
						opts = append(opts, mongolock.MaxWait(d))
					}
					w, w2 := inBackground(ctx, c, "k", opts...), inBackground(ctx, c, "k", opts...)
					time.Sleep(d)
					switch how {
					case "close":
						_ = c.Close()
					case "shutdown":
						_ = c.Shutdown(ctx)
					case "context":
						cancel()
					case "patience":
						if d == 0 {
							cancel()
						}
					}
					<-w
					<-w2
					time.Sleep(time.Second)
					all, _ := mem.Look(t.Context(), []string{"k"})
					assert.Empty(t, all[0].Line)
					assert.LessOrEqual(t, b.Count(lab.Leave), 1, b.Counts())
					cancel()
				})
			})
		}
	}
}

// No call is made once Close has returned.
func TestNothingIsSentAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		b := lab.New(mem)
		yielding := newClient(t, mem)
		release(t, acquire(t, yielding, "other", mongolock.Yielding()))
		acquire(t, yielding, "k", mongolock.Yielding(), mongolock.TTL(time.Hour))
		for d := time.Duration(0); d < 30*time.Millisecond; d += time.Millisecond {
			c := newClient(t, b)
			b.All(lab.Slow(10*time.Millisecond, 10*time.Millisecond))
			w := inBackground(t.Context(), c, "k")
			time.Sleep(d)
			_ = c.Close()
			b.Reset()
			<-w
			time.Sleep(time.Second)
			assert.Zero(t, b.Count(), "%v %s", d, b.Counts())
		}
	})
}

// One that polls behind a garbage place, or a dead line, of a free key.
func TestOneThatPollsBehindADeadLineAsksLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		b := lab.New(mem)
		gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
		garbage(t, mem, "g", "garbage")
		w := inBackground(t.Context(), newClient(t, b, mongolock.WithoutFeed()), "k")
		time.Sleep(10 * time.Second)
		release(t, gate)
		time.Sleep(2 * time.Second)
		b.Reset()
		time.Sleep(80 * time.Second)
		t.Logf("in 80 s: %s", b.Counts())
		assert.LessOrEqual(t, b.Count(), 160)
		release(t, (<-w).lease)
	})
}

// One that was passed because it was slow joins again, with one claim.
func TestOneThatWasPassedAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		slow := lab.New(mem)
		gate := acquire(t, newClient(t, lab.New(mem)), "k", mongolock.TTL(time.Hour))
		w := inBackground(t.Context(), newClient(t, slow), "k")
		time.Sleep(2 * time.Second)
		next := inBackground(t.Context(), newClient(t, lab.New(mem)), "k", mongolock.TTL(time.Hour))
		time.Sleep(2 * time.Second)
		slow.Reset()
		slow.All(func(_ context.Context, call *lab.Call) error {
			if call.Op == lab.Acquire && slow.Count(lab.Acquire) == 1 {
				time.Sleep(1500 * time.Millisecond)
			}
			time.Sleep(time.Millisecond)
			_ = call.Do()
			return nil
		})
		release(t, gate)
		n := <-next
		time.Sleep(10 * time.Second)
		t.Logf("the calls of one that was passed: %s", slow.Counts())
		assert.LessOrEqual(t, slow.Count(), 3)
		release(t, n.lease)
		release(t, (<-w).lease)
	})
}

// A client that is closed while its waiter is refused by a holder that yields.
func TestNoCallAfterCloseReturned(t *testing.T) {
	late, n := 0, fewer.Of(3000)
	for i := range n {
		mem := memstore.New()
		holder, err := mongolock.NewWithStore(mem, mongolock.WithMargin(0))
		require.NoError(t, err)
		_, err = holder.Acquire(t.Context(), "k", mongolock.TTL(time.Minute), mongolock.Yielding())
		require.NoError(t, err)
		b := lab.New(mem)
		c, err := mongolock.NewWithStore(b)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Acquire(context.Background(), "k")
		}()
		for range i % 50 {
			runtime.Gosched()
		}
		_ = c.Close()
		b.Reset()
		<-done
		if b.Count() > 0 {
			late++
			t.Log(b.Counts())
		}
		_ = holder.Close()
	}
	assert.Zero(t, late, "of %d clients that were closed", n)
}

// No store call is made under Client.mu: a store that asks the client about itself would never
// return.
func TestNoCallUnderTheClientsLock(t *testing.T) {
	locked, n := 0, 3000
	for i := range n {
		mem := memstore.New()
		holder, err := mongolock.NewWithStore(mem, mongolock.WithMargin(0))
		require.NoError(t, err)
		_, err = holder.Acquire(t.Context(), "k", mongolock.TTL(time.Minute), mongolock.Yielding())
		require.NoError(t, err)
		b := lab.New(mem)
		c, err := mongolock.NewWithStore(b)
		require.NoError(t, err)
		b.All(func(_ context.Context, call *lab.Call) error {
			if call.Op == lab.Notify {
				free := make(chan struct{})
				go func() {
					_ = inside.Look(c, "k") // takes Client.mu
					close(free)
				}()
				select {
				case <-free:
				case <-time.After(pace.Of(200 * time.Millisecond)):
					locked++
				}
			}
			_ = call.Do()
			return nil
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Acquire(context.Background(), "k")
		}()
		for range i % 50 {
			runtime.Gosched()
		}
		_ = c.Close()
		<-done
		_ = holder.Close()
		if locked > 0 {
			break
		}
	}
	assert.Zero(t, locked, "a notice was sent with Client.mu held")
}
