package schedule_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// A weather decides what happens to a process's calls: of a thousand, so many are lost on the way, and as
// many of the replies. Some take seconds.
type weather struct {
	mu   sync.Mutex // protects rng
	rng  *rand.Rand
	lost int
}

func (w *weather) fault(string) (before, after error) {
	w.mu.Lock()
	x, pause := w.rng.IntN(1000), time.Duration(w.rng.IntN(25))*time.Millisecond
	if w.rng.IntN(1000) < w.lost {
		pause = time.Duration(w.rng.IntN(4500)) * time.Millisecond
	}
	w.mu.Unlock()
	time.Sleep(pause)
	switch {
	case x < w.lost:
		return errCut, nil
	case x < 2*w.lost:
		return nil, errCut
	}
	return nil, nil
}

// A storm is what became of a job in such weather.
type storm struct {
	*cluster
	mu     sync.Mutex // protects what follows
	fates  map[time.Duration]string
	under  map[*schedule.Run]bool
	faults []string
}

// tell notes the fate of due times, of those of the plan.
func (s *storm) tell(first, last time.Time, fate string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for due := first.Add(time.Minute - 1).Truncate(time.Minute); !due.After(last); due = due.Add(time.Minute) {
		s.fates[due.Sub(s.begin)] += fate + " "
	}
}

func (s *storm) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf("%v: ", time.Since(s.begin))+fmt.Sprintf(format, args...))
}

// begins notes a run, until the function that it returns is called.
func (s *storm) begins(r *schedule.Run, beside bool) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.under {
		if !beside || r.Due.Equal(other.Due) {
			s.fault("the runs of %v and %v overlap", other.Due, r.Due)
		}
	}
	s.under[r] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.under, r)
	}
}

// stormy has three processes share a job that is due each minute, for three hours. Their calls are
// lost, and one after the other is killed or stopped. With orders, people also pause and resume the job,
// have it run at once, and take it off a process and add it again.
func stormy(c *cluster, seed uint64, orders, beside bool, opts ...schedule.JobOption) *storm {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &storm{cluster: c, fates: map[time.Duration]string{}, under: map[*schedule.Run]bool{}}
	opts = append(opts, schedule.Keep(1000), schedule.With(mongolock.TTL(10*time.Second)))
	add := func(p *process, w *weather) *process {
		takes := rand.New(rand.NewPCG(seed, uint64(p.nr)+1000))
		return p.job("job", schedule.Every(time.Minute), func(ctx context.Context, r schedule.Run) error {
			defer s.begins(&r, beside)()
			w.mu.Lock()
			d := time.Duration(takes.IntN(20)) * time.Second
			if takes.IntN(6) == 0 {
				d = time.Duration(takes.IntN(200)) * time.Second
			}
			w.mu.Unlock()
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, opts...)
	}
	winds := map[*process]*weather{}
	start := func(nr int) *process {
		p := c.process(nr, schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Dropped {
				s.tell(e.First, e.Due, "dropped")
			}
		}))
		w := &weather{rng: rand.New(rand.NewPCG(seed, uint64(nr)+1)), lost: 150}
		p.link.fail(w.fault)
		winds[p] = w
		return add(p, w).start()
	}
	var all, dead []*process
	over := make(chan struct{})
	for nr := range 3 {
		all = append(all, start(nr))
	}
	var paused time.Time
	pass := func(d time.Duration) {
		time.Sleep(d)
		for _, p := range all {
			sent := p.link.counted()
			if most := 60 * (2 + int(d/time.Minute)); sent["claim"]+sent["read"]+sent["undo"]+sent["end"] > most {
				s.fault("process %d sent %v in %v", p.nr, sent, d)
			}
		}
	}
	resume := func() {
		if changed, err := c.store.Change(c.Context(), "job", jobs.Resume); changed && err == nil {
			s.tell(paused, time.Now(), "paused")
		}
	}
	const last = 3 * time.Hour
	for nr := 3; time.Since(c.begin) < last; nr++ {
		pass(time.Duration(rng.IntN(240_000)) * time.Millisecond)
		i, what := rng.IntN(len(all)), rng.IntN(2)
		if orders {
			what = rng.IntN(6)
		}
		switch p := all[i]; what {
		case 0:
			p.link.fail(func(string) (error, error) { <-over; return errCut, nil })
			dead = append(dead, p)
			all[i] = start(nr)
		case 1:
			p.end()
			all[i] = start(nr)
		case 2:
			_, _ = c.store.Change(c.Context(), "job", jobs.AskRun)
		case 3:
			p.Remove("job")
			pass(time.Duration(rng.IntN(60_000)) * time.Millisecond)
			add(p, winds[p])
		case 4:
			paused = time.Now()
			_, _ = c.store.Change(c.Context(), "job", jobs.Pause)
			pass(time.Duration(rng.IntN(240_000)) * time.Millisecond)
			resume()
		case 5:
			p.link.cut()
			pass(time.Duration(rng.IntN(60_000)) * time.Millisecond)
			p.link.fail(winds[p].fault)
		}
	}
	pass(30 * time.Minute) // virtual, as all here: what is late is caught up with
	for _, p := range all {
		p.end()
	}
	close(over)
	for _, p := range dead {
		p.stop()
		<-p.over
	}
	state := c.state("job")
	for _, r := range slices.Concat(state.Past, state.Runs) {
		s.tell(r.Due, r.Due, "ran "+r.Outcome)
	}
	for due := 2 * time.Minute; due < last; due += time.Minute {
		switch fate := s.fates[due]; {
		case fate == "":
			s.fates[due] = "no trace"
		case strings.Count(fate, "succeeded")+min(1, strings.Count(fate, "dropped")) > 1:
			s.fault("due at %v: %s", due, fate)
		}
	}
	return s
}

// With Each every due time runs, whatever becomes of calls and processes, unless its process died each
// time; and then that is told.
func TestWithEachEveryDueTimeRunsInAnyWeather(t *testing.T) {
	for seed := range uint64(fewer.Of(12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				s := stormy(c, seed, false, false, schedule.Each())
				for due, fate := range s.fates {
					assert.Contains(c, fate, "ran", "due at %v", due)
				}
				assert.Empty(c, s.faults)
			})
		})
	}
}

func TestEveryDueTimeRunsOrIsToldInAnyWeather(t *testing.T) {
	for name, opts := range combinations() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(fewer.Of(4)) {
				inCluster(t, func(c *cluster) {
					s := stormy(c, seed, seed%2 == 1, strings.Contains(name, "beside"), opts...)
					for due, fate := range s.fates {
						assert.NotEqual(c, "no trace", fate, "seed %d: due at %v", seed, due)
					}
					assert.Empty(c, s.faults, "seed %d", seed)
				})
			}
		})
	}
}

// A control: runs that may overlap are judged as those that may not.
func TestTheStormNoticesRunsThatOverlap(t *testing.T) {
	inCluster(t, func(c *cluster) {
		assert.Contains(c, strings.Join(stormy(c, 0, true, false, schedule.Beside()).faults, " "), "overlap")
	})
}

// Two processes do not know what became of their claims of one due time. The first one's was applied, and
// is given back when the second has seen it; then the first dies.
func TestADueTimeThatIsGivenBackAfterAnUnknownClaimRuns(t *testing.T) {
	for name, opts := range lates {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				opts := append(slices.Clone(opts), schedule.With(mongolock.TTL(30*time.Second)))
				one := c.process(1).add("job", schedule.Every(time.Minute), time.Second, opts...)
				two := c.process(2).add("job", schedule.Every(time.Minute), time.Second, opts...)
				claims := 0
				one.link.fail(func(call string) (before, after error) {
					switch {
					case time.Since(c.begin) < 2*time.Minute:
						return nil, nil
					case call == "claim":
						return nil, errCut
					case call == "undo":
						time.Sleep(3 * time.Second) // virtual, as all here
						one.link.cut()
						return nil, nil
					}
					return nil, nil
				})
				two.link.fail(func(call string) (before, after error) {
					if call == "claim" && time.Since(c.begin) >= 2*time.Minute {
						if claims++; claims == 1 {
							time.Sleep(10 * time.Millisecond)
							return errCut, nil
						}
					}
					return nil, nil
				})
				one.start()
				two.start()
				c.until(4*time.Minute + 30*time.Second)
				one.stop()
				two.end()
				<-one.over
				assert.Equal(c, seconds(60, 120, 180, 240), c.fires())
			})
		})
	}
}
