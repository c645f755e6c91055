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

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A line is a process's way to the store, which can be cut.
type line struct {
	store.Store
	cut atomic.Bool
}

var errCut = errors.New("the line is cut")

func (l *line) Unwrap() store.Store { return l.Store }

func (l *line) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if l.cut.Load() {
		return store.Grant{}, errCut
	}
	return l.Store.Acquire(ctx, c)
}

func (l *line) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	if !l.cut.Load() {
		return l.Store.Renew(ctx, batch)
	}
	all := make([]store.Renewed, len(batch))
	for i := range all {
		all[i].Err = errCut
	}
	return all
}

func (l *line) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	if l.cut.Load() {
		return false, errCut
	}
	return l.Store.Release(ctx, r, keep)
}

// deaf hides a store's feed.
type deaf struct{ store.Store }

// A peer is one process that stands for "billing" and notes its terms.
type peer struct {
	*leader.Candidate
	client *mongolock.Client
	line   *line
	stop   context.CancelFunc
	over   chan error
	terms  atomic.Int32
}

func newPeer(t *testing.T, s store.Store, name string, fn leader.Func) *peer {
	t.Helper()
	p := &peer{line: &line{Store: s}, over: make(chan error, 1)}
	var err error
	p.client, err = mongolock.NewWithStore(p.line, mongolock.WithOwner(name), mongolock.TTL(9*time.Second), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if p.Candidate, err = leader.New(p.client, "billing"); err != nil {
		t.Fatal(err)
	}
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

func (p *peer) end(t *testing.T) {
	t.Helper()
	p.stop()
	if err := <-p.over; err != nil {
		t.Error(err)
	}
	p.line.cut.Store(false)
	if err := p.client.Close(); err != nil {
		t.Error(err)
	}
}

func leaders(peers ...*peer) (names string) {
	for i, p := range peers {
		if p.IsLeader() {
			names += fmt.Sprint(i + 1)
		}
	}
	return names
}

func TestOneLeadsAndWhenItGoesTheNextDoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		one, two, three := newPeer(t, s, "one", nil), newPeer(t, s, "two", nil), newPeer(t, s, "three", nil)
		time.Sleep(time.Hour)
		if got := leaders(one, two, three); got != "1" {
			t.Errorf("after an hour %q lead", got)
		}
		one.end(t)
		time.Sleep(time.Millisecond)
		got := leaders(one, two, three)
		if got != "2" && got != "3" {
			t.Errorf("a moment after it went %q lead", got)
		}
		two.end(t)
		three.end(t)
	})
}

func TestALeaderThatIsCutOffStopsLeadingBeforeAnotherDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		release := make(chan struct{})
		one := newPeer(t, s, "one", func(context.Context, leader.Term) error { <-release; return nil }) // deaf to its context
		two := newPeer(t, s, "two", nil)
		term, _ := one.Term()
		one.line.cut.Store(true)
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
		if both > 0 || none == 0 {
			t.Errorf("both led at %d looks, none at %d", both, none)
		}
		if leaders(one, two) != "2" {
			t.Errorf("at last %q lead", leaders(one, two))
		}
		if next, ok := two.Term(); !ok || next.Token() <= term.Token() {
			t.Error("the new term's token is not greater")
		}
		// Back again it stands behind the other, and leads when that goes.
		one.line.cut.Store(false)
		close(release)
		time.Sleep(time.Minute)
		if one.terms.Load() != 1 {
			t.Errorf("one had %d terms", one.terms.Load())
		}
		two.end(t)
		time.Sleep(time.Minute)
		if one.terms.Load() != 2 {
			t.Errorf("one had %d terms", one.terms.Load())
		}
		one.end(t)
	})
}

func TestResigningHandsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		one, two := newPeer(t, s, "one", nil), newPeer(t, s, "two", nil)
		time.Sleep(time.Minute)
		began := time.Now()
		if err := one.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got, took := leaders(one, two), time.Since(began); got != "2" || took > time.Millisecond {
			t.Errorf("after %v %q lead", took, got)
		}
		time.Sleep(time.Minute)
		if err := two.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := leaders(one, two); got != "1" {
			t.Errorf("handed back to %q", got)
		}
		if err := two.Resign(t.Context()); err != nil {
			t.Errorf("of one that does not lead: %v", err)
		}
		one.end(t)
		two.end(t)
	})
}

func TestTheFunctionsOwnEndIsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		full := errors.New("the disk is full")
		for _, want := range []error{nil, full} {
			p := newPeer(t, s, "one", func(context.Context, leader.Term) error { return want })
			if err := <-p.over; err != want {
				t.Errorf("%v, not %v", err, want)
			}
			p.over <- nil
			p.end(t)
		}
		if status, err := s.Look(t.Context(), []string{"billing"}); err != nil || !status[0].Free() {
			t.Errorf("the key is left held: %+v, %v", status, err)
		}
	})
}

func TestAPanicGivesTheKeyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := mongolock.NewWithStore(memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("not the panic")
				}
			}()
			_ = leader.Run(t.Context(), client, "billing", func(context.Context, leader.Term) error { panic("boom") })
		}()
		if is, err := leader.Current(t.Context(), client, "billing"); is != (leader.Leader{}) || err != nil {
			t.Errorf("%+v leads, %v", is, err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}

// watched notes what Watch says, and when.
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

func TestThoseWhoWatchLearnOfChanges(t *testing.T) {
	for name, c := range map[string]struct {
		store func() store.Store
		want  string
	}{
		"by the feed, at once": {func() store.Store { return memstore.New() }, `"" <nil> 0s, "one" <nil> 5s, "" <nil> 10s, "two" <nil> 15s`},
		"by looking, in time":  {func() store.Store { return deaf{memstore.New()} }, `"" <nil> 0s, "one" <nil> 5s, "" <nil> 14s, "two" <nil> 15s`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := c.store()
				client, err := mongolock.NewWithStore(s)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var w watched
				done := make(chan struct{})
				go func() { defer close(done); w.watch(ctx, client) }()
				time.Sleep(5 * time.Second)
				one := newPeer(t, s, "one", nil)
				time.Sleep(5 * time.Second)
				one.end(t)
				time.Sleep(5 * time.Second)
				two := newPeer(t, s, "two", nil)
				time.Sleep(20 * time.Second)
				cancel()
				<-done
				if got := strings.Join(w.seen, ", "); got != c.want {
					t.Errorf("%s, not %s", got, c.want)
				}
				two.end(t)
				if err := client.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// counting counts how often a client is asked.
type counting struct {
	*mongolock.Client
	looks atomic.Int32
}

func (c *counting) Inspect(ctx context.Context, key string) (mongolock.Status, error) {
	c.looks.Add(1)
	return c.Client.Inspect(ctx, key)
}

func TestThoseWhoWatchLookOnceASecondWhereNobodyLeadsAndThereIsNoFeed(t *testing.T) {
	for name, c := range map[string]struct {
		store       store.Store
		least, most int32
	}{
		"with a feed": {memstore.New(), 2, 4}, // one every 30 s, and one when the feed is there
		"without":     {deaf{memstore.New()}, 58, 66},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, err := mongolock.NewWithStore(c.store)
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				in := &counting{Client: client}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for is, err := range leader.Watch(ctx, in, "billing") {
					if err != nil || is != (leader.Leader{}) {
						t.Errorf("%+v, %v", is, err)
					}
				}
				if n := in.looks.Load(); n < c.least || n > c.most {
					t.Errorf("%d looks in a minute", n)
				}
			})
		})
	}
}

func TestThoseWhoWatchLearnOfALeadersDeathWhenItRanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		one := newPeer(t, s, "one", nil)
		client, err := mongolock.NewWithStore(s)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var w watched
		done := make(chan struct{})
		go func() { defer close(done); w.watch(ctx, client) }()
		time.Sleep(time.Minute)
		one.line.cut.Store(true) // its last renewal was up to 3 s ago, and 9 s it lasts
		time.Sleep(11 * time.Second)
		cancel()
		<-done
		if len(w.seen) != 2 || !strings.HasPrefix(w.seen[1], `"" <nil> 1m`) {
			t.Errorf("%q", w.seen)
		}
		one.end(t)
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}

// forgetful is a Locker with no lock behind it: the control.
type forgetful struct{ store.Store }

func (f forgetful) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	c.Key += c.ID
	return f.Store.Acquire(ctx, c)
}

func TestControlTwoLeadersAreSeenWhereTheLockDoesNotExclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := forgetful{memstore.New()}
		one, two := newPeer(t, s, "one", nil), newPeer(t, s, "two", nil)
		if got := leaders(one, two); got != "12" {
			t.Errorf("%q lead: this check sees nothing", got)
		}
		one.line.cut.Store(true)
		two.line.cut.Store(true)
		one.stop()
		two.stop()
		<-one.over
		<-two.over
		_ = one.client.Close()
		_ = two.client.Close()
	})
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fn := func(context.Context, leader.Term) error { return nil }
	for want, err := range map[string]error{
		"leader: New: the locker is nil": leader.Run(t.Context(), nil, "k", fn),
		"leader: New: the key is empty":  leader.Run(t.Context(), client, "", fn),
		"leader: Run: fn is nil":         leader.Run(t.Context(), client, "k", nil),
		"TTL(1ns): must be between":      leader.Run(t.Context(), client, "k", fn, mongolock.TTL(1)),
		"key has 1025 bytes":             leader.Run(t.Context(), client, strings.Repeat("k", 1025), fn),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := leader.Current(t.Context(), nil, "k"); err == nil || !strings.Contains(err.Error(), "inspector is nil") {
		t.Error(err)
	}
	for _, err := range leader.Watch(t.Context(), nil, "k") {
		if err == nil {
			t.Error("watched nothing")
		}
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := leader.Run(t.Context(), client, "k", fn); !errors.Is(err, mongolock.ErrClosed) {
		t.Errorf("on a closed client: %v", err)
	}
}

var _ iter.Seq2[leader.Leader, error] = leader.Watch(context.Background(), nil, "")
