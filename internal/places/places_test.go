package places_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/places"
	"github.com/mongolock/mongolock/internal/tasks"
	"github.com/mongolock/mongolock/store"
)

// A server takes a second for each place that it takes out of a line.
type server struct {
	*places.Keeper
	tasks *tasks.Group

	mu   sync.Mutex // protects what follows
	away bool       // it fails instead
	odd  bool       // it is away every other time
	now  int        // calls under way
	most int        // of them at once
	left map[store.Place][]time.Time
}

func in(t *testing.T, f func(t *testing.T, s *server)) {
	synctest.Test(t, func(t *testing.T) {
		clock := monotonic.New()
		s := &server{tasks: tasks.New(&clock), left: map[store.Place][]time.Time{}}
		s.Keeper = places.New(places.Host{Clock: &clock, Tasks: s.tasks, Leave: s.leave})
		f(t, s)
		s.tasks.Cut()
		s.tasks.Wait()
	})
}

func (s *server) leave(_ string, p store.Place) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[p] = append(s.left[p], time.Now())
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	s.now--
	away := s.away
	s.away = away != s.odd
	if away {
		return errors.New("the store is away")
	}
	return nil
}

// calls are those for p so far.
func (s *server) calls(p store.Place) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left[p]
}

// A client that shuts down leaves all its lines at once, and waiters may give up together.
func TestAtMostSixteenPlacesAreTakenOutAtTheSameTime(t *testing.T) {
	for how, giveUp := range map[string]func(s *server, u places.Unused){
		"GiveUp": func(s *server, u places.Unused) { s.GiveUp(u.Key, u.Place) },
		"Add": func(s *server, u places.Unused) {
			if s.Add(u) {
				s.tasks.Go(s.Work)
			}
		},
	} {
		in(t, func(t *testing.T, s *server) {
			for range 2 {
				clear(s.left)
				for i := range 100 {
					giveUp(s, places.Unused{Key: fmt.Sprint(i), Place: store.Place(fmt.Sprint(i)), Seen: true})
				}
				time.Sleep(8 * time.Second)
				synctest.Wait()
				assert.Len(t, s.left, 100, how)
				assert.Equal(t, 16, s.most, how)
			}
		})
	}
}

// What a call of Close did not let begin leaves room for those that it waits for.
func TestAPlaceThatIsGivenUpTooLateHoldsUpNoOther(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		s.tasks.Begin()
		go s.tasks.Wait()
		synctest.Wait()
		for i := range 16 {
			s.GiveUp("k", store.Place(fmt.Sprint("late ", i)))
		}
		if assert.True(t, s.Add(places.Unused{Key: "k", Place: "p"})) {
			s.Work()
		}
		assert.Len(t, s.calls("p"), 1)
		s.tasks.Done()
	})
}

func TestAPlaceThatWasSeenInItsLineIsTriedUntilItIsStale(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		s.away = true
		start := time.Now()
		for _, u := range []places.Unused{{"k", "seen", true}, {"k", "unseen", false}, {"k", "", true}} {
			if s.Add(u) {
				s.tasks.Go(s.Work)
			}
		}
		time.Sleep(2 * store.PlaceFor)
		assert.Len(t, s.calls("unseen"), 1)
		assert.Empty(t, s.calls(""))
		all := s.calls("seen")
		assert.WithinRange(t, all[len(all)-1], start.Add(store.PlaceFor-10*time.Second), start.Add(store.PlaceFor+10*time.Second))
		for i, at := range all[1:] {
			assert.LessOrEqual(t, at.Sub(all[i]), 10*time.Second)
		}
	})
}

// A client that shuts down over a bad link has a few seconds for all its lines.
func TestFailuresWithAnswersBetweenThemDoNotAddUp(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		s.away, s.odd = true, true
		for i := range 20 {
			s.Add(places.Unused{Key: "k", Place: store.Place(fmt.Sprint(i)), Seen: true})
		}
		start := time.Now()
		s.Work()
		assert.Len(t, s.left, 20)
		assert.Less(t, time.Since(start), 42*time.Second)
	})
}

func TestANoticeAboutAPlaceThatWasJustGivenUpIsOld(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		s.GiveUp("k", "p")
		for range 10 {
			s.Offered("k", "p")
			time.Sleep((time.Second + line.Grace) / 10) // while the call is under way, and after it
		}
		assert.Len(t, s.calls("p"), 1)
		s.Offered("k", "p")
		time.Sleep(time.Second)
		assert.Len(t, s.calls("p"), 2, "the control: the call was long ago")
	})
}

func TestWhatCouldNotBeGivenUpIsGivenUpWhenItIsOffered(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		s.away = true
		if s.Add(places.Unused{Key: "k", Place: "p"}) {
			s.Work()
		}
		s.Offered("k", "p")
		time.Sleep(100 * time.Millisecond)
		assert.Len(t, s.calls("p"), 2)
	})
}

func TestWorkEndsWithTheTasks(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		s.away = true
		s.GiveUp("k", "p")
		time.Sleep(10 * time.Second)
		start := time.Now()
		s.tasks.Cut()
		s.tasks.Wait()
		assert.LessOrEqual(t, time.Since(start), 2*time.Second)
	})
}
