package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
)

// An outage handles a renewal that is sent during it, the n-th.
type outage func(ctx context.Context, n int, call *lab.Call) error

var outages = map[string]outage{
	"nothing is answered":   func(ctx context.Context, _ int, call *lab.Call) error { return lab.Hang(ctx, call) },
	"renewals fail at once": func(context.Context, int, *lab.Call) error { return errNet },
	"the first hangs, the others fail": func(ctx context.Context, n int, call *lab.Call) error {
		if n == 1 {
			return lab.Hang(ctx, call)
		}
		return errNet
	},
	// A call that hangs gives its connection up, and the next one has another.
	"one connection is dead": func(ctx context.Context, n int, call *lab.Call) error {
		if n == 1 {
			return lab.Hang(ctx, call)
		}
		return call.Do()
	},
	"three connections are dead": func(ctx context.Context, n int, call *lab.Call) error {
		if n <= 3 {
			return lab.Hang(ctx, call)
		}
		return call.Do()
	},
	"applied, but the reply is lost": func(ctx context.Context, _ int, call *lab.Call) error {
		_ = call.Do()
		return lab.Hang(ctx, call)
	},
}

// lostIn returns how many of three leases are lost in an outage that starts at begin.
func lostIn(t *testing.T, ttl, begin, long time.Duration, how outage) (lost int) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		var leases []*mongolock.Lease
		for i := range 3 {
			leases = append(leases, acquire(t, c, fmt.Sprint("k", i), mongolock.TTL(ttl)))
		}
		start := time.Now()
		var n atomic.Int64
		b.On(lab.Renew, func(ctx context.Context, call *lab.Call) error {
			time.Sleep(ttl / 1000) // the request is on its way
			if at := time.Since(start); at >= begin && at < begin+long {
				return how(ctx, int(n.Add(1)), call)
			}
			return call.Do()
		})
		time.Sleep(begin + long + ttl)
		for _, l := range leases {
			if l.Err() != nil {
				lost++
			}
		}
	})
	return lost
}

func TestAnOutageOfHalfTheTTLLosesNoLeaseWheneverItBegins(t *testing.T) {
	for name, how := range outages {
		for ttl, part := range map[time.Duration]float64{time.Second: 0.5, 10 * time.Second: 0.5, 30 * time.Second: 0.6} {
			for step := range 40 {
				begin := ttl/3 - ttl/40 + time.Duration(step)*ttl/100
				lost := lostIn(t, ttl, begin, time.Duration(part*float64(ttl)), how)
				assert.Zero(t, lost, "leases lost in an outage (%s) after %v, with a TTL of %v", name, begin, ttl)
			}
		}
	}
}

// The control: an outage that is longer than a lease is trusted costs it.
func TestControlAnOutageOfTheWholeTTLLosesEveryLease(t *testing.T) {
	assert.Equal(t, 3, lostIn(t, 10*time.Second, time.Second, 10*time.Second, outages["nothing is answered"]))
}

// Both would begin in the instant in which the first attempt is found to be slow. If the attempt of the
// call is slow too, another one goes beside it, and answers it.
func TestARenewalThatIsDueAgainIsLeftToACallOfRenew(t *testing.T) {
	for i := range 40 {
		lab.Test(t, func(t *testing.T, b *lab.Store) {
			l := acquire(t, newClient(t, b), "k")
			hanging, sent := int64(1+i%2), atomic.Int64{}
			b.On(lab.Renew, func(ctx context.Context, call *lab.Call) error {
				if sent.Add(1) <= hanging {
					return lab.Hang(ctx, nil)
				}
				return call.Do()
			})
			time.Sleep(11 * time.Second)
			err := l.Renew(t.Context())
			assert.NoError(t, err)
			time.Sleep(time.Second)
			assert.EqualValues(t, hanging+1, b.Count(lab.Renew))
			assert.GreaterOrEqual(t, l.Remaining(), 28*time.Second)
		})
	}
}

// A slowLine is a log handler that takes delay for each line.
type slowLine struct {
	slog.Handler
	delay time.Duration
}

func (slowLine) Enabled(context.Context, slog.Level) bool    { return true }
func (s slowLine) Handle(context.Context, slog.Record) error { time.Sleep(s.delay); return nil }
func (s slowLine) WithAttrs([]slog.Attr) slog.Handler        { return s }
func (s slowLine) WithGroup(string) slog.Handler             { return s }

func TestASlowLoggerLosesNoLeaseThatWasRenewed(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b, mongolock.WithLogger(slog.New(slowLine{slog.DiscardHandler, 250 * time.Millisecond})))
		var leases []*mongolock.Lease
		for i := range 400 {
			leases = append(leases, acquire(t, c, fmt.Sprint("k", i)))
		}
		for i := range 200 {
			b.Mem.Delete(fmt.Sprint("k", i))
		}
		time.Sleep(10*time.Second + time.Millisecond)
		for i, l := range leases[:200] {
			require.True(t, isOver(l.Done()), "lease %d is told at once", i)
		}
		time.Sleep(2 * time.Minute)
		for i, l := range leases[200:] {
			require.NoError(t, l.Err(), "lease %d", i)
		}
	})
}

// doneAfter acquires a lease that lasts for less than its TTL, by the time given, and that
// cannot be renewed. It returns when Done was closed, and when the deadline was.
func doneAfter(t *testing.T, less, margin time.Duration) (done, deadline time.Duration) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b, mongolock.WithMargin(margin))
		b.On(lab.Acquire, func(_ context.Context, call *lab.Call) error {
			err := call.Do()
			call.Grant.Left -= less
			return err
		})
		b.On(lab.Renew, lab.Hang)
		start := time.Now()
		l := acquire(t, c, "k")
		deadline = l.Remaining()
		<-l.Done()
		done = time.Since(start)
		assert.Positive(t, b.Count(lab.Renew), "it was renewed before its deadline")
	})
	return done, deadline
}

func TestDoneIsClosedAtTheDeadlineWhateverTheMargin(t *testing.T) {
	for _, margin := range []time.Duration{0, time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second} {
		for less := time.Duration(0); less < 30*time.Second-margin; less += time.Second {
			done, deadline := doneAfter(t, less, margin)
			assert.Equal(t, deadline, done, "margin %v, %v less than the TTL left", margin, less)
		}
	}
}

func TestFormattingALeaseNeverShowsItsID(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "the key", mongolock.NoRenewal())
		ended := false
		ctx := l.Context(t.Context())
		context.AfterFunc(ctx, func() { ended = true })
		for range 2 {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
				for _, what := range []any{l, []*mongolock.Lease{l}, mongolock.Leases{l}, struct{ L *mongolock.Lease }{l}} {
					text := fmt.Sprintf(verb, what)
					assert.NotContains(t, text, l.ID(), verb)
					assert.NotContains(t, text, fmt.Sprintf("%x", l.ID()), verb)
				}
				assert.Contains(t, fmt.Sprintf(verb, l), "the key", verb)
			}
			assert.NotContains(t, l.String()+fmt.Sprintf("%#v", l), l.ID())
			var log bytes.Buffer
			slog.New(slog.NewTextHandler(&log, nil)).Info("held", "lease", l)
			assert.NotContains(t, log.String(), l.ID())
			b.On(lab.Release, lab.Fail(errNet))
			time.Sleep(40 * time.Second)
		}
		synctest.Wait()
		assert.True(t, ended, "the lease ended between the two rounds")
	})
}

func TestReleaseReportsALossThoughTheDatabaseCannotBeReached(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k", mongolock.NoRenewal())
		b.On(lab.Release, lab.Fail(errNet))
		<-l.Done()
		err := l.Release()
		require.ErrorIs(t, err, mongolock.ErrLost)
		require.ErrorIs(t, err, errNet)
	})
}

// In the second case the store is only probed, and sees no renewal of the last lease before its end.
func TestALeaseThatIsNotRenewedEndsInTimeForWhoeverWaitsForThat(t *testing.T) {
	for how, fault := range map[string]func(ctx context.Context) error{
		"renewals hang": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"renewals fail": func(context.Context) error { return errNet },
	} {
		for wait, end := range map[string]func(*mongolock.Lease) <-chan struct{}{
			"Done":    (*mongolock.Lease).Done,
			"Context": func(l *mongolock.Lease) <-chan struct{} { return l.Context(context.Background()).Done() },
		} {
			t.Run(wait+", "+how, func(t *testing.T) {
				lab.Test(t, func(t *testing.T, b *lab.Store) {
					b.On(lab.Renew, func(ctx context.Context, _ *lab.Call) error {
						return fault(ctx)
					})
					c := newClient(t, b, mongolock.TTL(10*time.Second))
					var all []*mongolock.Lease
					for i := range 5000 {
						all = append(all, acquire(t, c, fmt.Sprint("k", i)))
					}
					time.Sleep(time.Second)
					start := time.Now()
					l := acquire(t, c, "last")
					for _, one := range all {
						<-end(one)
						tookBetween(t, start, 0, 8*time.Second+time.Millisecond)
					}
					<-end(l)
					tookBetween(t, start, 9*time.Second, 9*time.Second+time.Millisecond)
					require.ErrorIs(t, l.Err(), mongolock.ErrLost)
				})
			})
		}
	}
}

// A store that is slow does not come to all renewals in time.
func TestALeaseWhoseRenewalHasToWaitEndsInTime(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		var mu sync.Mutex // protects renewed
		renewed := map[string]bool{}
		b.On(lab.Renew, func(_ context.Context, call *lab.Call) error {
			time.Sleep(800 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			for _, r := range call.Batch {
				renewed[r.Key] = true
			}
			return call.Do()
		})
		c := newClient(t, b, mongolock.TTL(10*time.Second))
		var all []*mongolock.Lease
		for i := range 5000 {
			all = append(all, acquire(t, c, fmt.Sprint("k", i)))
		}
		var ended atomic.Int64
		for _, l := range all {
			go func() {
				<-l.Done()
				ended.Add(1)
			}()
		}
		time.Sleep(9*time.Second + time.Millisecond)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		assert.Greater(t, len(renewed), 100, "the test shows little")
		assert.InDelta(t, len(all), len(renewed)+int(ended.Load()), 200, "that were renewed or have ended: one call may be under way")
	})
}
