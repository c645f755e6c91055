package leader_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A reign is who led, in order.
type reign struct{ led chan string }

func newReign() *reign { return &reign{make(chan string, 9999)} }

// candidate starts a candidate, and returns what ends it.
func (r *reign) candidate(t *testing.T, in store.Store, name string, opts ...leader.Option) (stop func()) {
	t.Helper()
	client := lab.Client(t, in, mongolock.WithOwner(name))
	end := r.stand(t, client, name, opts...)
	return func() {
		end()
		assert.NoError(t, client.Close())
	}
}

// stand starts a candidate of a client, and returns what ends it.
func (r *reign) stand(t *testing.T, client *mongolock.Client, name string, opts ...leader.Option) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	opts = append(opts, leader.WithLogger(slog.New(slog.DiscardHandler)))
	go func() {
		over <- leader.Run(ctx, client, "billing", func(ctx context.Context, _ leader.Term) error {
			r.led <- name
			<-ctx.Done()
			return ctx.Err()
		}, opts...)
	}()
	return func() {
		cancel()
		assert.NoError(t, <-over)
	}
}

// next returns who leads next, and after how long.
func (r *reign) next(t *testing.T) (string, time.Duration) {
	t.Helper()
	began := time.Now()
	select {
	case name := <-r.led:
		return name, time.Since(began)
	case <-time.After(time.Minute):
		return "nobody", time.Minute
	}
}

func (r *reign) leads(t *testing.T, want string, atMost time.Duration) {
	t.Helper()
	name, took := r.next(t)
	assert.Equal(t, want, name)
	assert.LessOrEqual(t, took, atMost)
}

// since returns who led since the last call.
func (r *reign) since() string {
	var names []string
	for len(r.led) > 0 {
		names = append(names, <-r.led)
	}
	return strings.Join(names, " ")
}

const (
	asked = 5*time.Second + atOnce // once others wait, a leader looks every five seconds
	aside = 2 * time.Second        // by then those that passed the key on stand in line again
)

func TestALeaderMakesRoomForACandidateOfAHigherPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), newReign()
		stopLow := r.candidate(t, in, "low", leader.Priority(0))
		r.leads(t, "low", 0)
		time.Sleep(time.Minute)
		stopLater := r.candidate(t, in, "later", leader.Priority(0))
		time.Sleep(time.Second)
		stopEqual := r.candidate(t, in, "equal", leader.Priority(0))
		time.Sleep(3 * time.Minute)
		assert.Empty(t, r.since(), "lead, and have the same priority")
		stopHigh := r.candidate(t, in, "high", leader.Priority(5))
		r.leads(t, "high", asked)
		stopHigher := r.candidate(t, in, "higher", leader.Priority(9))
		r.leads(t, "higher", asked)
		time.Sleep(time.Hour)
		assert.Empty(t, r.since(), "lead, and have a lower priority")
		stopHigher()
		r.leads(t, "high", atOnce)
		time.Sleep(aside)
		stopHigh()
		name, took := r.next(t)
		assert.Contains(t, []string{"low", "later", "equal"}, name)
		assert.LessOrEqual(t, took, atOnce)
		time.Sleep(time.Hour)
		assert.Empty(t, r.since(), "lead, and have the same priority")
		stopLater()
		stopEqual()
		stopLow()
	})
}

func TestALeaderMakesRoomAtOnceForTheOnlyOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), newReign()
		stopLow := r.candidate(t, in, "low", leader.Priority(0))
		r.leads(t, "low", 0)
		time.Sleep(time.Minute + time.Second)
		stopHigh := r.candidate(t, in, "high", leader.Priority(1))
		r.leads(t, "high", atOnce)
		stopLow()
		stopHigh()
	})
}

// Without a feed nobody tells the leader, which looks by itself.
func TestALeaderThatHearsNoWakeUpsMakesRoomWithinHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := noFeed{memstore.New()}, newReign()
		stopLow := r.candidate(t, in, "low", leader.Priority(0), leader.With(mongolock.NoRenewal(), mongolock.TTL(time.Hour)))
		r.leads(t, "low", 0)
		time.Sleep(time.Minute)
		stopHigh := r.candidate(t, in, "high", leader.Priority(1))
		r.leads(t, "high", 32*time.Second) // it polls, about once a second
		stopLow()
		stopHigh()
	})
}

// waitTogether has candidates wait in this order, the lowest first, while somebody leads who resigns
// for none, and returns who leads once that one stops, and at last.
func waitTogether(t *testing.T) (led string) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), newReign()
		stop := r.candidate(t, in, "first")
		r.leads(t, "first", 0)
		var stops []func()
		for i, name := range []string{"low", "middle", "high"} {
			stops = append(stops, r.candidate(t, in, name, leader.Priority(3*i)))
			time.Sleep(time.Second)
		}
		assert.Empty(t, r.since(), "lead while one does that resigns for none")
		stop()
		time.Sleep(2 * atOnce)
		led = r.since()
		for _, stop := range stops {
			stop()
		}
	})
	return led
}

func TestOfThoseThatWaitTheOneOfTheHighestPriorityLeads(t *testing.T) {
	assert.Equal(t, "high", waitTogether(t))
}

func TestInTheEndEachOfThoseThatWaitedLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), newReign()
		stopLow := r.candidate(t, in, "low", leader.Priority(0))
		r.leads(t, "low", 0)
		stopMiddle := r.candidate(t, in, "middle", leader.Priority(4))
		r.leads(t, "middle", asked)
		stopHigh := r.candidate(t, in, "high", leader.Priority(9))
		r.leads(t, "high", asked)
		time.Sleep(time.Minute)
		stopHigh()
		r.leads(t, "middle", atOnce)
		time.Sleep(aside)
		stopMiddle()
		r.leads(t, "low", atOnce)
		stopLow()
	})
}

// leadsOn has one of the highest priority die while it waits, and returns who led before, and after how
// long somebody of the others leads for good.
func leadsOn(t *testing.T, others int) (terms int, after time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), newReign()
		var stops []func()
		for range others {
			stops = append(stops, r.candidate(t, in, "low", leader.Priority(0)))
			time.Sleep(time.Second)
		}
		r.leads(t, "low", 0)
		time.Sleep(time.Minute)
		dead := lab.New(in)
		dead.On(lab.Acquire, func(_ context.Context, call *lab.Call) error {
			err := call.Do()
			if call.Key == "billing" {
				for _, op := range []lab.Op{lab.Acquire, lab.Renew, lab.Release} { // as soon as it stands in the line of the key
					dead.On(op, lab.Fail(errCut))
				}
			}
			return err
		})
		stops = append(stops, r.candidate(t, dead, "high", leader.Priority(9)))
		began := time.Now()
		for range 600 {
			time.Sleep(time.Second)
			if n := len(r.led); n > 0 {
				terms += n
				r.since()
				after = time.Since(began)
			}
		}
		dead.All(nil)
		for _, stop := range stops {
			stop()
		}
	})
	return terms, after
}

func TestRoomIsMadeOnceForACandidateThatDied(t *testing.T) {
	for _, others := range []int{1, 2, 3, 5} {
		terms, after := leadsOn(t, others)
		assert.Equal(t, 1, terms, "terms since then, of %d others", others)
		assert.LessOrEqual(t, after, asked+4*time.Second, "until one of %d others leads for good", others)
	}
}

func TestRoomIsMadeNowAndThenForACandidateThatIsTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), newReign()
		stopLow := r.candidate(t, in, "low", leader.Priority(0))
		r.leads(t, "low", 0)
		high := lab.New(in)
		high.On(lab.Acquire, func(_ context.Context, call *lab.Call) error {
			if call.Key == "billing" {
				time.Sleep(7 * time.Second)
			}
			return call.Do()
		})
		stopHigh := r.candidate(t, high, "high", leader.Priority(9))
		time.Sleep(10 * time.Minute)
		led := r.since()
		assert.NotContains(t, led, "high")
		assert.GreaterOrEqual(t, strings.Count(led, "low"), 5, "terms, in which it made room: %s", led)
		assert.LessOrEqual(t, strings.Count(led, "low"), 10, "terms: %s", led)
		high.On(lab.Acquire, nil)
		time.Sleep(80 * time.Second)
		assert.Regexp(t, "high$", r.since(), "who leads once it is quick")
		time.Sleep(10 * time.Minute)
		assert.Empty(t, r.since())
		stopLow()
		stopHigh()
	})
}

// A process that was cut off while it waits shows its priority again.
func TestAPriorityOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), newReign()
		stop := r.candidate(t, in, "first", leader.Priority(9))
		r.leads(t, "first", 0)
		stopLow := r.candidate(t, in, "low", leader.Priority(0))
		high := lab.New(in)
		stopHigh := r.candidate(t, high, "high", leader.Priority(5))
		time.Sleep(time.Minute)
		high.CutOff(errCut)
		time.Sleep(2 * time.Minute)
		high.CutOff(nil)
		time.Sleep(10 * time.Second)
		assert.Empty(t, r.since())
		stop()
		r.leads(t, "high", atOnce)
		time.Sleep(aside)
		stopHigh()
		r.leads(t, "low", atOnce)
		stopLow()
	})
}

func TestCandidatesOfOneClientHavePrioritiesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), newReign()
		client := lab.Client(t, in)
		stopLow := r.stand(t, client, "low", leader.Priority(0))
		r.leads(t, "low", 0)
		stopNext := r.stand(t, client, "low", leader.Priority(0))
		time.Sleep(time.Second)
		stopOther := r.candidate(t, in, "middle", leader.Priority(1))
		r.leads(t, "middle", asked)
		stopHigh := r.stand(t, client, "high", leader.Priority(2))
		r.leads(t, "high", asked)
		time.Sleep(time.Minute)
		stopHigh()
		r.leads(t, "middle", atOnce)
		time.Sleep(aside)
		stopOther()
		r.leads(t, "low", atOnce)
		stopLow()
		stopNext()
		require.NoError(t, client.Close())
	})
}

// counted counts the calls of a store for the keys of an election, but for renewals.
type counted struct {
	*lab.Store
	looks atomic.Int32
}

func newCounted(in store.Store) *counted {
	c := &counted{Store: lab.New(in)}
	c.Each = func(call *lab.Call) {
		if slices.Contains(call.Keys, "billing.preferred") { // the engine looks at the key itself, for those who wait
			c.looks.Add(1)
		}
	}
	return c
}

func (c *counted) calls() [4]int {
	defer c.Reset()
	return [4]int{c.Count(lab.Acquire), c.Count(lab.Release), int(c.looks.Swap(0)), c.Count(lab.Leave)}
}

// What the candidates of a key send for the sake of priorities.
func TestWhatAPriorityCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), newReign()
		low, high, top := newCounted(in), newCounted(in), newCounted(in)
		stopLow := r.candidate(t, low, "low", leader.Priority(0))
		r.leads(t, "low", 0)
		assert.Equal(t, [4]int{1, 0, 0, 0}, low.calls(), "acquires, releases, looks, leaves, of the lowest, that finds the key free")
		time.Sleep(time.Hour + time.Second)
		assert.Equal(t, [4]int{0, 0, 120, 0}, low.calls(), "of a leader in an hour in which nobody waits")
		stopHigh := r.candidate(t, high, "high", leader.Priority(1))
		r.leads(t, "high", atOnce)
		synctest.Wait()
		assert.Equal(t, [4]int{3, 1, 0, 0}, high.calls(), "of one that shows its priority, waits, is granted the key, and shows it no more")
		assert.Equal(t, [4]int{0, 1, 1, 0}, low.calls(), "of the leader that makes room for it")
		time.Sleep(time.Hour)
		assert.Equal(t, [4]int{0, 0, 720, 0}, high.calls(), "of a leader in an hour in which a lower one waits")
		stopTop := r.candidate(t, top, "top", leader.Priority(9))
		r.leads(t, "top", asked)
		synctest.Wait()
		top.calls()
		time.Sleep(time.Hour)
		assert.Equal(t, [4]int{}, top.calls(), "of the highest in an hour in which lower ones wait")
		stopLow()
		stopTop()
		stopHigh()
	})
}

func TestALeaderWithoutAPriorityResignsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), newReign()
		stop := r.candidate(t, in, "unranked")
		r.leads(t, "unranked", 0)
		stopOther := r.candidate(t, in, "waits", leader.Priority(0))
		time.Sleep(time.Second)
		stopHigh := r.candidate(t, in, "high", leader.Priority(9))
		name, _ := r.next(t)
		assert.Equal(t, "nobody", name)
		stop()
		r.leads(t, "high", time.Second)
		stopHigh()
		r.leads(t, "waits", time.Second)
		stopOther()
	})
}

// Work that made room and returns its context's cause has not failed, if the process ends meanwhile.
func TestRunThatEndsWhileItsWorkMakesRoomReturnsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := memstore.New(), newReign()
		client := lab.Client(t, in)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() {
			over <- leader.Run(ctx, client, "billing", func(ctx context.Context, _ leader.Term) error {
				<-ctx.Done()
				time.Sleep(10 * time.Second)
				return context.Cause(ctx)
			}, leader.Priority(0))
		}()
		time.Sleep(time.Second)
		defer r.candidate(t, in, "high", leader.Priority(5))()
		time.Sleep(8 * time.Second)
		cancel()
		require.NoError(t, <-over)
		require.NoError(t, client.Close())
	})
}
