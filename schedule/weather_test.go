package schedule_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/schedule"
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

// stormy has three processes share a job that is due each minute, for three hours. Their calls are
// lost, and one after the other is killed or stopped. It returns what became of each due time.
func stormy(c *cluster, seed uint64, opts ...schedule.JobOption) (fates map[time.Duration]string) {
	rng := rand.New(rand.NewPCG(seed, 0))
	fates = make(map[time.Duration]string)
	var mu sync.Mutex
	tell := func(first, last time.Time, fate string) {
		mu.Lock()
		defer mu.Unlock()
		for due := first; !due.After(last); due = due.Add(time.Minute) {
			fates[due.Sub(c.begin)] += fate + " "
		}
	}
	opts = append(opts, schedule.Keep(1000), schedule.With(mongolock.TTL(10*time.Second)))
	start := func(nr int) *process {
		p := c.process(nr, schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Dropped {
				tell(e.First, e.Due, "dropped")
			}
		}))
		w := &weather{rng: rand.New(rand.NewPCG(seed, uint64(nr)+1)), lost: 150}
		p.link.fail(w.fault)
		takes := rand.New(rand.NewPCG(seed, uint64(nr)+1000))
		return p.job("job", schedule.Every(time.Minute), func(ctx context.Context, _ schedule.Run) error {
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
		}, opts...).start()
	}
	var all, dead []*process
	over := make(chan struct{})
	for nr := range 3 {
		all = append(all, start(nr))
	}
	const last = 3 * time.Hour
	for nr := 3; time.Since(c.begin) < last; nr++ {
		time.Sleep(time.Duration(rng.IntN(240_000)) * time.Millisecond)
		i := rng.IntN(len(all))
		if rng.IntN(2) == 0 {
			all[i].link.fail(func(string) (error, error) { <-over; return errCut, nil })
			dead = append(dead, all[i])
		} else {
			all[i].end()
		}
		all[i] = start(nr)
	}
	time.Sleep(30 * time.Minute) // virtual, as all here: what is late is caught up with
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
		tell(r.Due, r.Due, "ran")
	}
	for due := 2 * time.Minute; due < last; due += time.Minute {
		if fates[due] == "" {
			fates[due] = "no trace"
		}
	}
	return fates
}

// With Each every due time runs, whatever becomes of calls and processes, unless its process died each
// time; and then that is told.
func TestWithEachEveryDueTimeRunsInAnyWeather(t *testing.T) {
	for seed := range uint64(fewer.Of(12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				for due, fate := range stormy(c, seed, schedule.Each()) {
					assert.Contains(c, fate, "ran", "due at %v", due)
				}
			})
		})
	}
}

func TestEveryDueTimeRunsOrIsToldInAnyWeather(t *testing.T) {
	for name, opts := range combinations() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(fewer.Of(2)) {
				inCluster(t, func(c *cluster) {
					for due, fate := range stormy(c, seed, opts...) {
						assert.NotEqual(c, "no trace", fate, "seed %d: due at %v", seed, due)
					}
				})
			}
		})
	}
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
