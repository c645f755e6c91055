package leader_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
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

var errCut = errors.New("the link is cut")

// noFeed hides a store's feed.
type noFeed struct{ store.Store }

// A process is a candidate for "billing" with a client of its own. It counts its terms.
type process struct {
	*leader.Candidate
	client *mongolock.Client
	link   *lab.Store
	stop   context.CancelFunc
	over   chan error
	terms  atomic.Int32
}

func newProcess(t *testing.T, s store.Store, name string, fn leader.Func) *process {
	t.Helper()
	p := &process{link: lab.New(s), over: make(chan error, 1)}
	var err error
	p.client, err = mongolock.NewWithStore(p.link, mongolock.WithOwner(name), mongolock.TTL(9*time.Second), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	p.Candidate, err = leader.New(p.client, "billing", leader.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	if fn == nil {
		fn = func(ctx context.Context, _ leader.Term) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(t.Context())
	go func() {
		p.over <- p.Run(ctx, func(ctx context.Context, term leader.Term) error {
			p.terms.Add(1)
			return fn(ctx, term)
		})
	}()
	synctest.Wait()
	return p
}

func (p *process) end(t *testing.T) {
	t.Helper()
	p.stop()
	assert.NoError(t, <-p.over)
	p.link.CutOff(nil)
	assert.NoError(t, p.client.Close())
}

// leaders names, by their numbers, the processes that say that they lead.
func leaders(all ...*process) (names string) {
	for i, p := range all {
		if p.IsLeader() {
			names += fmt.Sprint(i + 1)
		}
	}
	return names
}

// atOnce is how long a hand-over takes at most, in virtual time: a claim that comes a moment
// before the release looks again after 5 ms.
const atOnce = 10 * time.Millisecond

func TestWhenTheLeaderStopsTheNextLeadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		one, two, three := newProcess(t, s, "one", nil), newProcess(t, s, "two", nil), newProcess(t, s, "three", nil)
		time.Sleep(time.Hour)
		assert.Equal(t, "1", leaders(one, two, three), "lead after an hour")
		one.end(t)
		time.Sleep(atOnce)
		assert.Contains(t, []string{"2", "3"}, leaders(one, two, three), "lead a moment after the first stopped")
		two.end(t)
		three.end(t)
	})
}

func TestALeaderThatIsCutOffStopsLeadingBeforeAnotherDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		release := make(chan struct{})
		one := newProcess(t, s, "one", func(context.Context, leader.Term) error { <-release; return nil }) // it does not look at its context
		two := newProcess(t, s, "two", nil)
		term, _ := one.Term()
		one.link.CutOff(errCut)
		var both, none int
		for range 2000 {
			time.Sleep(10 * time.Millisecond)
			switch leaders(one, two) {
			case "12":
				both++
			case "":
				none++
			}
		}
		assert.Zero(t, both, "looks at which both led")
		assert.Positive(t, none, "looks at which none led")
		assert.Equal(t, "2", leaders(one, two), "lead at last")
		next, ok := two.Term()
		assert.True(t, ok)
		assert.Greater(t, next.Token(), term.Token(), "the new term's token")
		// Connected again it waits for the other, and leads when that stops.
		one.link.CutOff(nil)
		close(release)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 1, one.terms.Load(), "terms")
		two.end(t)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, one.terms.Load(), "terms")
		one.end(t)
	})
}

func TestResigningHandsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		one, two := newProcess(t, s, "one", nil), newProcess(t, s, "two", nil)
		time.Sleep(time.Minute)
		assert.NoError(t, one.Resign(t.Context()))
		time.Sleep(atOnce)
		assert.Equal(t, "2", leaders(one, two))
		time.Sleep(time.Minute)
		assert.NoError(t, two.Resign(t.Context()))
		time.Sleep(atOnce)
		assert.Equal(t, "1", leaders(one, two), "lead after the second resigned")
		assert.NoError(t, two.Resign(t.Context()), "of a process that does not lead")
		one.end(t)
		two.end(t)
	})
}

func TestRunReturnsTheErrorOfAFunctionThatReturnsWhileItLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		full := errors.New("the disk is full")
		for _, want := range []error{nil, full} {
			p := newProcess(t, s, "one", func(context.Context, leader.Term) error { return want })
			assert.Equal(t, want, <-p.over)
			p.over <- nil
			p.end(t)
		}
		status, err := s.Look(t.Context(), []string{"billing"})
		require.NoError(t, err)
		assert.True(t, status[0].Free(), "the key is left held: %+v", status)
	})
}

func TestRunReturnsNoErrorIfItsContextEndsWhileWorkWhoseLeaseIsLostReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lab.New(memstore.New())
		client := lab.Client(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		err := leader.Run(ctx, client, "billing", func(ctx context.Context, _ leader.Term) error {
			l.CutOff(errCut)
			<-ctx.Done()
			cancel()
			return context.Cause(ctx)
		})
		assert.NoError(t, err)
		_ = client.Close()
	})
}

func TestAPanicReleasesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lab.Client(t, memstore.New())
		assert.PanicsWithValue(t, "boom", func() {
			_ = leader.Run(t.Context(), client, "billing", func(context.Context, leader.Term) error { panic("boom") })
		})
		is, err := leader.Current(t.Context(), client, "billing")
		require.NoError(t, err)
		assert.Zero(t, is, "leads")
		assert.NoError(t, client.Close())
	})
}

// watched notes what Watch yields, and when.
type watched struct {
	mu   sync.Mutex
	seen []string
}

func (w *watched) watch(ctx context.Context, in leader.Inspector) {
	began := time.Now()
	for is, err := range leader.Watch(ctx, in, "billing") {
		w.mu.Lock()
		w.seen = append(w.seen, fmt.Sprintf("%q %v %v", is.Owner, err, time.Since(began).Truncate(time.Second)))
		w.mu.Unlock()
	}
}

func TestWatchYieldsEachChange(t *testing.T) {
	for name, c := range map[string]struct {
		store func() store.Store
		want  string
	}{
		"by the feed, at once": {func() store.Store { return memstore.New() }, `"" <nil> 0s, "one" <nil> 5s, "" <nil> 10s, "two" <nil> 15s`},
		"by looking, in time":  {func() store.Store { return noFeed{memstore.New()} }, `"" <nil> 0s, "one" <nil> 5s, "" <nil> 14s, "two" <nil> 15s`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := c.store()
				client := lab.Client(t, s)
				ctx, cancel := context.WithCancel(t.Context())
				var w watched
				done := make(chan struct{})
				go func() { defer close(done); w.watch(ctx, client) }()
				time.Sleep(5 * time.Second)
				one := newProcess(t, s, "one", nil)
				time.Sleep(5 * time.Second)
				one.end(t)
				time.Sleep(5 * time.Second)
				two := newProcess(t, s, "two", nil)
				time.Sleep(20 * time.Second)
				cancel()
				<-done
				assert.Equal(t, c.want, strings.Join(w.seen, ", "))
				two.end(t)
				assert.NoError(t, client.Close())
			})
		})
	}
}

func TestWithoutAFeedWatchLooksOnceASecondWhileNoProcessLeads(t *testing.T) {
	for name, c := range map[string]struct {
		store       store.Store
		least, most int
	}{
		"with a feed": {memstore.New(), 2, 4}, // one every 30 s, and one when the feed is live
		"without":     {noFeed{memstore.New()}, 58, 66},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := lab.New(c.store)
				client := lab.Client(t, link)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for is, err := range leader.Watch(ctx, client, "billing") {
					assert.NoError(t, err)
					assert.Zero(t, is, "leads")
				}
				assert.GreaterOrEqual(t, link.Count(lab.Look), c.least, "looks in a minute")
				assert.LessOrEqual(t, link.Count(lab.Look), c.most, "looks in a minute")
			})
		})
	}
}

func TestWatchSeesThatALeaderDiedWhenItsLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		one := newProcess(t, s, "one", nil)
		client := lab.Client(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		var w watched
		done := make(chan struct{})
		go func() { defer close(done); w.watch(ctx, client) }()
		time.Sleep(time.Minute)
		one.link.CutOff(errCut) // its last renewal was up to 3 s ago, and lasts 9 s
		time.Sleep(11 * time.Second)
		cancel()
		<-done
		if assert.Len(t, w.seen, 2) {
			assert.Contains(t, w.seen[1], `"" <nil> 1m`)
		}
		one.end(t)
		assert.NoError(t, client.Close())
	})
}

func TestAfterAnErrorWatchSaysAgainWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		one := newProcess(t, s, "one", nil)
		link := lab.New(s)
		client := lab.Client(t, link)
		ctx, cancel := context.WithCancel(t.Context())
		var w watched
		done := make(chan struct{})
		go func() { defer close(done); w.watch(ctx, client) }()
		synctest.Wait()
		link.On(lab.Look, lab.Fail(errCut))
		for len(w.seen) < 3 {
			time.Sleep(time.Second)
		}
		link.On(lab.Look, nil)
		time.Sleep(10 * time.Second)
		cancel()
		<-done
		require.Len(t, w.seen, 4)
		assert.Contains(t, w.seen[0], `"one" <nil>`)
		assert.Contains(t, w.seen[1], errCut.Error())
		assert.Contains(t, w.seen[2], errCut.Error())
		assert.Contains(t, w.seen[3], `"one" <nil>`)
		one.end(t)
		assert.NoError(t, client.Close())
	})
}

// disconnected is a store whose connection was closed for good.
type disconnected struct{ store.Store }

func (disconnected) Acquire(context.Context, store.Claim) (store.Grant, error) {
	return store.Grant{}, fmt.Errorf("client is disconnected (%w; %w)", store.ErrDisconnected, store.ErrNotApplied)
}

func TestRunReturnsWhenTheDatabaseClientIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lab.Client(t, disconnected{memstore.New()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := leader.Run(ctx, client, "billing", func(context.Context, leader.Term) error { return nil })
		assert.ErrorIs(t, err, mongolock.ErrDisconnected)
		assert.NoError(t, client.Close())
	})
}

// forgetful is a store that excludes no claim: each one has a key of its own.
type forgetful struct{ store.Store }

func (f forgetful) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	c.Key += c.ID
	return f.Store.Acquire(ctx, c)
}

func TestControlTwoLeadersAreSeenWhereTheLockDoesNotExclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := forgetful{memstore.New()}
		one, two := newProcess(t, s, "one", nil), newProcess(t, s, "two", nil)
		assert.Equal(t, "12", leaders(one, two), "lead: this check sees nothing")
		one.link.CutOff(errCut)
		two.link.CutOff(errCut)
		one.stop()
		two.stop()
		<-one.over
		<-two.over
		_ = one.client.Close()
		_ = two.client.Close()
	})
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	client := lab.Client(t, memstore.New())
	fn := func(context.Context, leader.Term) error { return nil }
	for want, err := range map[string]error{
		"leader: New: the client is nil":                    leader.Run(t.Context(), nil, "k", fn),
		"leader: New: the key is empty":                     leader.Run(t.Context(), client, "", fn),
		"leader: Run: fn is nil":                            leader.Run(t.Context(), client, "k", nil),
		"leader: With: mongolock: TTL(1ns): must be betwee": leader.Run(t.Context(), client, "k", fn, leader.With(mongolock.TTL(1))),
		"leader: With: mongolock: a nil AcquireOption":      leader.Run(t.Context(), client, "k", fn, leader.With(nil)),
		"leader: WithLogger(nil): must not be nil":          leader.Run(t.Context(), client, "k", fn, leader.WithLogger(nil)),
		"leader: a nil Option":                              leader.Run(t.Context(), client, "k", fn, nil),
		"key has 1025 bytes":                                leader.Run(t.Context(), client, strings.Repeat("k", 1025), fn),
	} {
		assert.ErrorContains(t, err, want)
	}
	_, err := leader.Current(t.Context(), nil, "k")
	assert.ErrorContains(t, err, "inspector is nil")
	for _, err := range leader.Watch(t.Context(), nil, "k") {
		assert.ErrorContains(t, err, "inspector is nil")
	}
	require.NoError(t, client.Close())
	assert.ErrorIs(t, leader.Run(t.Context(), client, "k", fn), mongolock.ErrClosed, "on a closed client")
}

var _ iter.Seq2[leader.Leader, error] = leader.Watch(context.Background(), nil, "")

func TestALeaderWhoseWorkStallsLeadsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var terms []time.Duration
		var causes []error
		c, err := leader.New(newClient(t, s), "billing", leader.With(mongolock.MaxStall(time.Minute)))
		assert.NoError(t, err)
		_ = c.Run(ctx, func(ctx context.Context, term leader.Term) error {
			began := time.Now()
			for range 3 {
				time.Sleep(50 * time.Second)
				term.Lease().Progress()
			}
			<-ctx.Done()
			terms, causes = append(terms, time.Since(began)), append(causes, context.Cause(ctx))
			if len(terms) == 2 {
				cancel()
			}
			return nil
		})
		assert.Equal(t, []time.Duration{210 * time.Second, 210 * time.Second}, terms)
		for _, cause := range causes {
			assert.ErrorIs(t, cause, mongolock.ErrStalled)
		}
	})
}
