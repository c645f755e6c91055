package assign_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// resizeHistories is how many histories of Resize are tried; by default fewer under the race detector.
const resizeHistories = 200

// resizes runs a random course of Resizes beside workers that come, go and are cut off, and returns what
// is wrong with it.
func resizes(t *testing.T, seed uint64, opts ...func(*fleet)) (wrong string) {
	random := rand.New(rand.NewPCG(seed, 3))
	f := newFleet(t, memstore.New(), 8)
	const ttl = 3 * time.Second
	f.clientOpts = []mongolock.ClientOption{mongolock.TTL(ttl), mongolock.WithMargin(time.Second)}
	for _, o := range opts {
		o(f)
	}
	works := make(map[int]int) // by the number of partitions, how many are worked on; protected by the fleet's mu
	note := func(what string, args ...any) {
		wrong += fmt.Sprintf("\n  %v %s", time.Since(f.began), fmt.Sprintf(what, args...))
	}
	var all, live []*process
	comes := func() {
		called, late := fmt.Sprint("p", len(all)), time.Duration(random.IntN(900))*time.Millisecond
		p := f.startWith(called, func(ctx context.Context, p assign.Partition) error {
			f.begin(called, p)
			f.mu.Lock()
			if works[p.N]++; len(works) > 1 {
				f.doubled = append(f.doubled, fmt.Sprint("numbers side by side: ", works))
			}
			f.mu.Unlock()
			<-ctx.Done()
			time.Sleep(late)
			f.end(called, p)
			f.mu.Lock()
			if works[p.N]--; works[p.N] == 0 {
				delete(works, p.N)
			}
			f.mu.Unlock()
			return ctx.Err()
		}, assign.Drain(2*time.Second))
		all, live = append(all, p), append(live, p)
		note("%s comes, with %d", called, f.n)
	}
	operator, err := mongolock.NewWithStore(newLink(f.in, 1000), mongolock.TTL(ttl), mongolock.WithLogger(quiet()))
	assert.NoError(t, err)
	comes()
	comes()
	time.Sleep(time.Second)
	for range 8 {
		switch random.IntN(5) {
		case 0:
			comes()
			time.Sleep(200 * time.Millisecond) // before it has a seat, it is refused with another number
		case 1:
			if len(live) > 1 {
				live[0].cancel()
				note("%s goes", live[0].name)
				live = live[1:]
			}
		case 2:
			if len(live) == 1 {
				break // a Resize that finds no worker changes nothing
			}
			p := live[random.IntN(len(live))]
			p.link.set(true)
			note("%s is cut off", p.name)
			time.Sleep(time.Duration(random.Int64N(int64(2 * ttl))))
			p.link.set(false)
			note("%s is back", p.name)
		default:
			f.n = 4 + random.IntN(20)
			note("Resize to %d: %v", f.n, assign.Resize(t.Context(), operator, name, f.n))
		}
		time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
	}
	time.Sleep(20 * time.Second)
	for _, p := range live {
		if len(p.over) > 0 {
			err := <-p.over
			p.over <- err
			note("%s has ended: %v", p.name, err)
			f.doubled = append(f.doubled, "a worker has ended")
		}
	}
	f.mu.Lock()
	found := append(f.doubled, "")[0]
	if missing := f.missing(); found == "" && (len(missing) > 0 || len(f.busy) != f.n) {
		found = fmt.Sprintf("%d of %d partitions are worked on", len(f.busy), f.n)
	}
	f.mu.Unlock()
	for _, p := range all {
		p.cancel()
	}
	for _, p := range all {
		f.bury(p)
	}
	_ = operator.Close()
	if found == "" {
		return ""
	}
	return found + wrong
}

func TestNoHistoryOfResizesMixesTwoNumbersOrEndsWithAnother(t *testing.T) {
	for seed := range uint64(min(resizeHistories, *histories)) {
		var wrong string
		synctest.Test(t, func(t *testing.T) { wrong = resizes(t, seed) })
		assert.Empty(t, wrong, "seed %d", seed)
	}
}

func TestControlHistoriesOfResizesNoticeWorkersThatDoNotSeeTheOldNumber(t *testing.T) {
	var found strings.Builder
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			found.WriteString(resizes(t, seed, func(f *fleet) {
				f.broken = func(l *link) {
					l.seen = func(s *store.Status) {
						for i := range s.Holders {
							before, _, _ := strings.Cut(s.Holders[i].Note, " of ")
							if !strings.HasSuffix(s.Key, "/workers") {
								s.Holders[i].Note = before + " of 0 partitions"
							}
						}
					}
				}
			}))
		})
	}
	assert.Contains(t, found.String(), "numbers side by side")
}
