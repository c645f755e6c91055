package keeper

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The ways in which a store does not answer: how long a call takes that fails then.
var outages = map[string]time.Duration{"it fails at once": 0, "it fails after 100 ms": 100 * time.Millisecond, "it hangs": time.Hour}

// dies has the server answer no call, in that way.
func (s *server) dies(after time.Duration) {
	s.does(func([]Item) time.Duration { return after }, func([]Item) bool { return true })
}

// since are the calls from the n-th on, and how long after start they were sent.
func (s *server) since(n int, start time.Duration) (at []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.at[n:] {
		at = append(at, t-start)
	}
	return at
}

func TestAStoreThatDoesNotAnswerIsAskedTwiceASecond(t *testing.T) {
	for how, takes := range outages {
		for _, n := range []int{1, 100, 1000, 5000} {
			in(t, func(t *testing.T, s *server) {
				all := s.things(n, ttl)
				for i := range n / 100 { // of other groups, and not due at once
					all = append(all, s.things(1, ttl+ttl*time.Duration(i)/100)...)
				}
				time.Sleep(ttl - 6*time.Second) // some renewals
				s.dies(takes)
				start, before := time.Duration(s.clock.Now()), len(s.seen())
				const outage = 12 * time.Second
				time.Sleep(outage)
				for i, at := range s.since(before, start) {
					assert.LessOrEqual(t, float64(i+1), 16+2*at.Seconds(), "%s: calls for %d until %v", how, n, at)
				}
				assert.NotEmpty(t, s.since(before, start))
				before = len(s.seen())
				s.does(nil, nil)
				time.Sleep(ttl / 3)
				assert.Zero(t, s.lost(all), "%s: lost of %d", how, n)
				for _, x := range all {
					assert.NoError(t, x.last(), "%s: within a third of the TTL", how)
				}
				assert.LessOrEqual(t, len(s.seen())-before, 250, "%s: calls with which %d recover", how, n)
			})
		}
	}
}

// endsBefore is how many are lost in an outage that ends shortly before they do.
func endsBefore(t *testing.T, n int, ttl, takes, shortly time.Duration) (lost int) {
	in(t, func(t *testing.T, s *server) {
		all := s.things(n, ttl)
		s.dies(takes)
		time.Sleep(time.Duration(all[0].term.Trusted()) - time.Duration(s.clock.Now()) - shortly)
		s.does(nil, nil)
		time.Sleep(ttl)
		lost = s.lost(all)
	})
	return lost
}

func TestTheLastAttemptsAreMadeShortlyBeforeTheEnd(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second, time.Hour} {
		for _, n := range []int{1, 40, 1000} {
			for _, how := range []string{"it fails at once", "it fails after 100 ms"} {
				if takes := outages[how]; takes < ttl/20 {
					assert.Zero(t, endsBefore(t, n, ttl, takes, ttl/25), "%s: lost of %d with a TTL of %v", how, n, ttl)
				}
			}
		}
	}
	assert.Equal(t, 40, endsBefore(t, 40, ttl, 0, 0), "the control: an outage until the end")
}

// One document is blocked, or many, so that every part of a bulk has one of them: a shard may be
// down. The store answers for all others. Calls that hang take the time that is left: they may be
// fewer.
func TestNoItemIsLostToOthersThatAreBlocked(t *testing.T) {
	for how, parts := range map[string][]float64{
		"it fails at once": {0.001, 0.03, 0.3, 0.5}, "it fails after 100 ms": {0.001, 0.03, 0.3, 0.5}, "it hangs": {0.001, 0.01, 0.1},
	} {
		for _, part := range parts {
			in(t, func(t *testing.T, s *server) {
				var free, stuck []*thing
				blocked := map[Item]bool{}
				for i, x := range s.things(1000, ttl) {
					if int(part*float64(i)) == int(part*float64(i+1)) {
						free = append(free, x)
					} else {
						stuck, blocked[x] = append(stuck, x), true
					}
				}
				hit := func(batch []Item) bool {
					return slices.ContainsFunc(batch, func(item Item) bool { return blocked[item] })
				}
				s.does(func(batch []Item) time.Duration {
					if hit(batch) {
						return outages[how]
					}
					return time.Millisecond
				}, hit)
				time.Sleep(ttl)
				assert.Zero(t, s.lost(free), "lost of %d, and %s for the others", len(free), how)
				assert.Len(t, stuck, s.lost(stuck), "the control: those for which it does not answer")
			})
		}
	}
}

// What is due while the store is only probed may not be renewed before it ends.
func TestAnItemIsToldThatItHasToWait(t *testing.T) {
	in(t, func(t *testing.T, s *server) {
		s.dies(0)
		s.things(mostAsked, ttl)
		time.Sleep(ttl / 2)
		x := s.things(1, ttl)[0]
		time.Sleep(ttl/3 + time.Second) // it is due
		x.mu.Lock()
		defer x.mu.Unlock()
		assert.True(t, x.waited)
	})
}
