package keeper

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/tasks"
	"github.com/mongolock/mongolock/internal/term"
	"github.com/mongolock/mongolock/store"
)

const ttl = 30 * time.Second

var errFault = errors.New("the store is away")

// A thing is trusted as a lease is.
type thing struct {
	Slot
	name string

	mu       sync.Mutex
	term     term.Term
	over     bool
	waited   bool
	renewing chan struct{}
	answers  []error
}

func (x *thing) Begin() (bool, <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over || x.renewing != nil {
		return false, x.renewing
	}
	x.renewing = make(chan struct{})
	return true, nil
}

func (x *thing) Wait() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waited = true
}

func (x *thing) Limits(now monotonic.Moment) (patience, pause time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.term.Patience(now, x.term.Trusted()), x.term.RetryPause(now, x.term.Trusted())
}

func (x *thing) Answer(a store.Renewed, sent, now monotonic.Moment) Next {
	x.mu.Lock()
	defer x.mu.Unlock()
	close(x.renewing)
	x.renewing = nil
	x.answers = append(x.answers, a.Err)
	x.over = x.over || x.term.Over(now)
	switch {
	case x.over:
		return Next{}
	case a.Err != nil:
		x.term.Failed(now)
		return Next{Again: true}
	}
	return Next{Due: x.term.Renewed(sent, now, x.TTL)}
}

func (x *thing) answered() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.answers)
}

// last is the last answer.
func (x *thing) last() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.answers[len(x.answers)-1]
}

func (x *thing) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
}

// A server answers renewals. It records the sizes of the calls and when they came.
type server struct {
	clock *monotonic.Clock
	tasks *tasks.Group
	*Keeper

	mu    sync.Mutex
	calls []int
	at    []time.Duration
	takes func(batch []Item) time.Duration
	fails func(batch []Item) bool
}

func newServer(t *testing.T) *server {
	clock := monotonic.New()
	s := &server{clock: &clock, tasks: tasks.New(&clock)}
	s.Keeper = New(Host{Clock: s.clock, Tasks: s.tasks, Send: s.send})
	t.Cleanup(func() { s.Stop(); s.tasks.Cut(); s.tasks.Wait() })
	return s
}

func (s *server) send(batch []Item, sent monotonic.Moment, limit time.Duration) ([]store.Renewed, func()) {
	s.mu.Lock()
	s.calls, s.at = append(s.calls, len(batch)), append(s.at, time.Duration(sent))
	takes, fails := s.takes, s.fails != nil && s.fails(batch)
	s.mu.Unlock()
	var took time.Duration
	if takes != nil {
		took = takes(batch)
	}
	time.Sleep(min(took, limit))
	answers := make([]store.Renewed, len(batch))
	for i := range answers {
		if fails || took > limit {
			answers[i].Err = errFault
		}
	}
	return answers, func() {}
}

// does sets how the server answers.
func (s *server) does(takes func(batch []Item) time.Duration, fails func(batch []Item) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes, s.fails = takes, fails
}

func (s *server) seen() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.calls...)
}

// things adds n of them, which are due in a third of the TTL.
func (s *server) things(n int, ttl time.Duration) (all []*thing) {
	for i := range n {
		x, due := s.thing(Slot{TTL: ttl})
		x.name = fmt.Sprint(i)
		s.Add(x, due)
		all = append(all, x)
	}
	return all
}

// thing makes one that was granted now.
func (s *server) thing(slot Slot) (x *thing, due monotonic.Moment) {
	now := s.clock.Now()
	x = &thing{Slot: slot}
	x.term, due = term.Granted(slot.TTL, min(time.Second, slot.TTL/10), now, now, slot.TTL)
	return x, due
}

// lost is how many of them have ended, or are about to.
func (s *server) lost(all []*thing) (n int) {
	for _, x := range all {
		x.mu.Lock()
		if x.over || x.term.Over(s.clock.Now()) {
			n++
		}
		x.mu.Unlock()
	}
	return n
}

func in(t *testing.T, f func(t *testing.T, s *server)) {
	synctest.Test(t, func(t *testing.T) { f(t, newServer(t)) })
}

func TestItemsDueTogetherAreRenewedInOneCall(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		all := s.things(10, ttl)
		time.Sleep(2*time.Second + ttl/3)
		assert.Equal(t, []int{10}, s.seen())
		time.Sleep(ttl)
		assert.Equal(t, []int{10, 10, 10, 10}, s.seen(), "and go on together")
		assert.Equal(t, 4, all[0].answered())
	})
}

func TestAFailedRenewalIsRepeatedInSmallParts(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		all := s.things(32, ttl)
		s.does(nil, func(batch []Item) bool { // one of them is blocked, and holds up its call
			for _, item := range batch {
				if item.(*thing).name == "7" {
					return true
				}
			}
			return false
		})
		time.Sleep(ttl/3 + 6*time.Second)
		for _, x := range all {
			assert.Equal(t, x.name != "7", x.last() == nil, x.name)
		}
		assert.Equal(t, 32, s.seen()[0])
		for _, n := range s.seen()[1:] {
			assert.LessOrEqual(t, n, 2, "in 16 parts")
		}
	})
}

func TestNoItemIsRenewedAfterRemoveUntilItIsAddedAgain(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		x := s.things(1, ttl)[0]
		s.Remove(x)
		s.Plan(x, s.clock.Now()) // an answer that came late
		time.Sleep(time.Minute)
		assert.Empty(t, s.seen())
		s.Add(x, s.clock.Now())
		time.Sleep(time.Second)
		assert.Equal(t, []int{1}, s.seen())
	})
}

func TestPlanMovesTheNextRenewal(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		x := s.things(1, ttl)[0]
		s.Plan(x, s.clock.Now().Add(time.Second))
		s.Plan(x, s.clock.Now().Add(2*time.Second))
		time.Sleep(1500 * time.Millisecond)
		assert.Empty(t, s.seen())
		time.Sleep(time.Second)
		assert.Equal(t, []int{1}, s.seen())
		s.Plan(x, s.clock.Now().Add(time.Second))
		time.Sleep(2 * time.Second)
		assert.Equal(t, []int{1, 1}, s.seen(), "sooner than the alarm was set")
		s.Add(x, s.clock.Now())
		time.Sleep(time.Second)
		assert.Equal(t, []int{1, 1}, s.seen(), "one was planned")
	})
}

func TestAnItemThatHasEndedIsNotRenewed(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		all := s.things(2, ttl)
		all[0].end()
		time.Sleep(ttl/3 + time.Second)
		assert.Equal(t, []int{1}, s.seen())
		_, ok := s.Renew(all[0])
		assert.False(t, ok)
	})
}

// Of a bulk that is due nothing may be left to send: its items have ended, or a call of Renew has
// begun each of them. What is due with them is renewed all the same.
func TestABulkOfWhichNothingIsLeftDelaysNoOther(t *testing.T) {
	for how, first := range map[string]func(s *server, x *thing){
		"they have ended":   func(_ *server, x *thing) { x.end() },
		"they are renewed":  func(s *server, x *thing) { s.tasks.Go(func() { s.Renew(x) }) },
		"a call waits, too": func(s *server, x *thing) { s.tasks.Go(func() { s.Renew(x) }); s.tasks.Go(func() { s.Renew(x) }) },
	} {
		in(t, func(t *testing.T, s *server) {
			of := s.things(firstBulk, ttl)
			time.Sleep(time.Millisecond) // so that the others are due after these
			others := s.things(firstBulk+1, ttl)
			s.does(func([]Item) time.Duration { return time.Second }, nil)
			time.Sleep(ttl/3 - 100*time.Millisecond)
			for _, x := range of {
				first(s, x)
			}
			time.Sleep(ttl)
			for _, x := range others {
				assert.GreaterOrEqual(t, x.answered(), 3, "%s: renewals in four thirds of a TTL", how)
			}
			if how != "they have ended" {
				assert.Zero(t, s.lost(of), "%s: lost of them", how)
			}
		})
	}
}

func TestRenewComesAfterTheRenewalUnderWay(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		x := s.things(1, ttl)[0]
		s.does(func([]Item) time.Duration { return time.Second }, nil)
		time.Sleep(ttl/3 + 100*time.Millisecond)
		require.Len(t, s.seen(), 1)
		answer, ok := s.Renew(x)
		assert.True(t, ok)
		assert.NoError(t, answer.Err)
		assert.Equal(t, []int{1, 1}, s.seen())
		time.Sleep(ttl/3 - 2*time.Second)
		assert.Len(t, s.seen(), 2, "the next one is planned from the last")
	})
}

func TestASlowCallForLongTTLsDelaysNoShortOnes(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		s.does(func(batch []Item) time.Duration {
			if batch[0].slot().TTL > time.Minute {
				return time.Hour
			}
			return 0
		}, nil)
		s.things(1, time.Hour)
		short := s.things(1, 3*time.Second)[0]
		time.Sleep(20*time.Minute + 10*time.Second)
		assert.GreaterOrEqual(t, short.answered(), 1200, "one each second")
	})
}

func TestManyItemsGoInBulksThatTheStoreAnswersInTime(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		const each = 2 * time.Millisecond
		s.does(func(batch []Item) time.Duration { return time.Duration(len(batch)) * each }, nil)
		s.things(2000, ttl)
		time.Sleep(2 * ttl)
		assert.Equal(t, firstBulk, s.seen()[0])
		for _, n := range s.seen() {
			assert.LessOrEqual(t, time.Duration(n)*each, ttl/10, "a bulk of %d", n)
		}
	})
}

func TestStopEndsTheRenewals(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		s.things(3, ttl)
		s.Stop()
		s.things(3, ttl)
		s.Rearm()
		time.Sleep(time.Minute)
		assert.Empty(t, s.seen())
	})
}
