package engine

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/store"
)

// A sick store answers renewals late, or not at all. Time is a number: no goroutine runs.
type sick struct {
	core core
	now  moment
	next moment // step
	open []*pending
	all  []*Hold
	sent []moment // renewals

	takes func(batch []*Hold) time.Duration
	fails func(batch []*Hold) bool
}

type pending struct {
	call *Call
	at   moment
	err  error
}

func newSick(leases int, ttl time.Duration) *sick {
	s := &sick{now: moment(time.Hour)}
	s.core = newCore(&Config{Margin: -1, NewID: func() string { return strconv.Itoa(len(s.all)) }})
	s.heal()
	for range leases {
		s.acquire(ttl)
	}
	return s
}

func (s *sick) acquire(ttl time.Duration) {
	w := &Caller{Key: "key-" + strconv.Itoa(len(s.all)), Once: true, Terms: &Terms{TTL: ttl, Mode: store.Exclusive, Limit: 1}}
	s.step(Event{Kind: Want, Caller: w})
	w.call.Grant = store.Grant{Token: 1, Left: ttl}
	s.step(Event{Kind: Answered, Call: w.call})
	s.all = append(s.all, w.Hold)
}

func (s *sick) does(takes func([]*Hold) time.Duration, fails func([]*Hold) bool) {
	s.takes, s.fails = takes, fails
}

// dies has the store answer no call, after that time.
func (s *sick) dies(after time.Duration) {
	s.does(func([]*Hold) time.Duration { return after }, func([]*Hold) bool { return true })
}

func (s *sick) heal() {
	s.does(func([]*Hold) time.Duration { return time.Millisecond }, func([]*Hold) bool { return false })
}

func (s *sick) step(e Event) {
	r := s.core.Step(s.now, e)
	s.next = r.At
	for _, call := range r.Calls {
		if call.Kind != RenewAll {
			continue
		}
		s.sent = append(s.sent, s.now)
		p := &pending{call: call, at: s.now.Add(s.takes(call.Batch))}
		if s.fails(call.Batch) || p.at > call.Until {
			p.at, p.err = min(p.at, call.Until), errFault
		}
		s.open = append(s.open, p)
	}
}

// pass lets time pass. What is answered at one moment is so in the order in which it was sent.
func (s *sick) pass(d time.Duration) {
	for until := s.now.Add(d); ; {
		at := until + 1
		if s.next != 0 {
			at = max(s.now, s.next)
		}
		first := -1
		for i, p := range s.open {
			if p.at <= at && (first < 0 || p.at < s.open[first].at) {
				first = i
			}
		}
		switch {
		case first >= 0:
			p := s.open[first]
			s.open = slices.Delete(s.open, first, first+1)
			s.now = p.at
			s.answer(p)
		case at <= until:
			s.now = at
			s.step(Event{Kind: Tick})
		default:
			s.now = until
			return
		}
	}
}

func (s *sick) answer(p *pending) {
	for _, h := range p.call.Batch {
		p.call.Answers = append(p.call.Answers, store.Renewed{Left: h.Terms.TTL, Err: p.err})
	}
	s.step(Event{Kind: Answered, Call: p.call})
}

func (s *sick) lost(all []*Hold) (n int) {
	for _, h := range all {
		if h.err != nil {
			n++
		}
	}
	return n
}

// outages are the ways in which a store does not answer: how long a call takes that fails then.
var outages = map[string]time.Duration{"it fails at once": 0, "it fails after 100 ms": 100 * time.Millisecond, "it hangs": time.Hour}

func TestAStoreThatDoesNotAnswerIsAskedTwiceASecond(t *testing.T) {
	for how, takes := range outages {
		for _, n := range []int{1, 100, 1000, 5000} {
			what := fmt.Sprintf("%s, %d leases", how, n)
			s := newSick(n, ttl)
			for i := range n / 100 { // of other groups, and not due at once
				s.acquire(ttl + ttl*time.Duration(i)/100)
			}
			s.pass(ttl - 6*time.Second) // some renewals
			s.dies(takes)
			start, before := s.now, len(s.sent)
			s.pass(12 * time.Second)
			for i, at := range s.sent[before:] {
				assert.LessOrEqual(t, float64(i+1), 16+2*at.Sub(start).Seconds(), "%s: calls until %v", what, at.Sub(start))
			}
			assert.NotEmpty(t, s.sent[before:])
			before = len(s.sent)
			s.heal()
			s.pass(ttl / 3)
			assert.Zero(t, s.lost(s.all), "%s: lost", what)
			for _, h := range s.all {
				assert.False(t, h.term.failing, "%s: within a third of the TTL", what)
			}
			assert.LessOrEqual(t, len(s.sent)-before, 300, "%s: calls with which they recover", what)
		}
	}
}

// endsBefore returns how many are lost in an outage that ends shortly before they do.
func endsBefore(n int, ttl, takes, shortly time.Duration) (lost int) {
	s := newSick(n, ttl)
	s.dies(takes)
	s.pass(s.all[0].term.trusted().Sub(s.now) - shortly)
	s.heal()
	s.pass(ttl)
	return s.lost(s.all)
}

func TestTheLastAttemptsAreMadeShortlyBeforeTheEnd(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second, time.Hour} {
		for _, n := range []int{1, 40, 1000} {
			for _, how := range []string{"it fails at once", "it fails after 100 ms"} {
				if takes := outages[how]; takes < ttl/20 {
					assert.Zero(t, endsBefore(n, ttl, takes, ttl/25), "%s: lost of %d with a TTL of %v", how, n, ttl)
				}
			}
		}
	}
	assert.Equal(t, 40, endsBefore(40, ttl, 0, 0), "the control: an outage until the end")
}

// One document is blocked, or many, so that every part of a bulk has one of them: a shard may be down. The store
// answers for all others. Calls that hang take the time that is left: they may be fewer.
func TestNoLeaseIsLostToOthersThatAreBlocked(t *testing.T) {
	for how, parts := range map[string][]float64{
		"it fails at once": {0.001, 0.03, 0.3, 0.5}, "it fails after 100 ms": {0.001, 0.03, 0.3, 0.5}, "it hangs": {0.001, 0.01, 0.1},
	} {
		for _, part := range parts {
			s := newSick(1000, ttl)
			var free, stuck []*Hold
			blocked := map[*Hold]bool{}
			for i, h := range s.all {
				if int(part*float64(i)) == int(part*float64(i+1)) {
					free = append(free, h)
				} else {
					stuck, blocked[h] = append(stuck, h), true
				}
			}
			hit := func(batch []*Hold) bool {
				return slices.ContainsFunc(batch, func(h *Hold) bool { return blocked[h] })
			}
			s.does(func(batch []*Hold) time.Duration {
				if hit(batch) {
					return outages[how]
				}
				return time.Millisecond
			}, hit)
			s.pass(ttl)
			assert.Zero(t, s.lost(free), "lost of %d, and %s for the others", len(free), how)
			assert.Len(t, stuck, s.lost(stuck), "the control: those for which it does not answer")
		}
	}
}
