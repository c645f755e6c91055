package assign_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

var (
	histories = flag.Int("assign.histories", 1000, "how many histories to try; by default fewer under the race detector")
	firstSeed = flag.Uint64("assign.first", 1, "the seed of the first one")
)

// A history is a random course of processes that come, go, die and are cut off from the store.
type history struct {
	*fleet
	random *rand.Rand
	ttl    time.Duration
	named  int
	live   []*process
	dead   []*process
	log    []string
}

func (h *history) note(what string, p *process) {
	h.log = append(h.log, fmt.Sprintf("%v %s %s", time.Since(h.began), what, p.name))
}

// chance returns a random time up to d.
func (h *history) chance(d time.Duration) time.Duration {
	return time.Duration(h.random.Int64N(int64(d) + 1))
}

func (h *history) comes() {
	h.named++
	called := fmt.Sprint("p", h.named)
	late, load := h.chance(50*time.Millisecond), h.chance(50*time.Millisecond)
	work := func(ctx context.Context, p assign.Partition) error {
		h.begin(called, p)
		<-ctx.Done()
		h.end(called, p) // it does nothing more
		time.Sleep(late)
		return ctx.Err()
	}
	opts := []assign.Option{
		assign.Weight(1 + h.random.IntN(3)), assign.Settle(time.Duration(h.random.IntN(2)) * time.Second), assign.Drain(h.chance(3 * time.Second)),
	}
	if h.random.IntN(2) == 0 {
		opts = append(opts, assign.Prepare(func(context.Context, assign.Partition) error { time.Sleep(load); return nil }))
	}
	p := h.startWith(called, work, opts...)
	h.live = append(h.live, p)
	h.note("comes", p)
}

// one takes a random live process out of the list.
func (h *history) one() *process {
	i := h.random.IntN(len(h.live))
	p := h.live[i]
	h.live = slices.Delete(h.live, i, i+1)
	return p
}

// step does one thing, and returns how long it lasts until everything is as it should be.
func (h *history) step() {
	switch what := h.random.IntN(10); {
	case what < 4 && len(h.live) < 6 || len(h.live) < 2:
		h.comes()
	case what < 6:
		p := h.one()
		h.note("goes", p)
		p.cancel()
		h.dead = append(h.dead, p)
	case what < 8:
		p := h.one()
		h.note("dies", p)
		h.kill(p)
		h.dead = append(h.dead, p)
	default:
		p := h.live[h.random.IntN(len(h.live))]
		h.note("is cut off", p)
		p.link.set(true)
		time.Sleep(h.chance(2 * h.ttl))
		h.note("is back", p)
		p.link.set(false)
	}
}

// play runs one history, and returns what is wrong with it.
func play(t *testing.T, seed uint64, on *memstore.Store, opts ...func(*fleet)) (wrong string) {
	h := &history{random: rand.New(rand.NewPCG(seed, 7))}
	h.fleet = newFleet(t, on, 1+h.random.IntN(24))
	h.ttl = []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[h.random.IntN(3)]
	h.clientOpts = []mongolock.ClientOption{mongolock.TTL(h.ttl)}
	for _, o := range opts {
		o(h.fleet)
	}
	defer func() {
		for _, p := range h.live {
			p.cancel()
		}
		for _, p := range slices.Concat(h.dead, h.live) {
			h.bury(p)
		}
	}()
	for range 1 + h.random.IntN(10) {
		h.step()
		if h.random.IntN(2) == 0 { // often the next thing happens while this one is under way
			time.Sleep(h.chance(time.Second / 10))
		} else {
			time.Sleep(h.chance(2 * h.ttl))
		}
	}
	time.Sleep(h.ttl + 2*time.Second)     // calls that failed meanwhile are repeated within a second, and a look comes within another
	if dead := h.deadInLine(); dead > 0 { // the line passes one after the other, each after some seconds
		time.Sleep(time.Duration(1+dead) * 3 * time.Second)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch missing := h.missing(); {
	case len(h.doubled) > 0:
		wrong = fmt.Sprint("two workers: ", h.doubled)
	case len(missing) > 0:
		wrong = fmt.Sprintf("a TTL of %v and two seconds after the last change, partitions without a worker: %v of %d", h.ttl, missing, h.n)
	default:
		return ""
	}
	for _, line := range h.log {
		wrong += "\n  " + line
	}
	return wrong
}

// missing returns the partitions that no process works on, but for those that one process is handing
// to another at this moment. The fleet is locked.
func (f *fleet) missing() (all []int) {
	for id := range f.n {
		if _, is := f.busy[id]; !is && time.Since(f.left[id]) > 300*time.Millisecond {
			all = append(all, id)
		}
	}
	return all
}

// deadInLine returns how many dead processes wait for a partition that no process works on: the most
// of them for one.
func (h *history) deadInLine() (most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var keys []string
	for _, id := range h.missing() {
		keys = append(keys, fmt.Sprintf("%s/%04d", name, id))
	}
	all, err := h.in.Look(context.Background(), keys)
	require.NoError(h.t, err)
	for _, status := range all {
		dead := 0
		for _, w := range status.Line {
			if h.fleet.dead[w.Owner] {
				dead++
			}
		}
		most = max(most, dead)
	}
	return most
}

func TestNoHistoryHasTwoWorkersOnAPartitionOrLeavesOneUnowned(t *testing.T) {
	seeds := make(chan uint64)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for seed := range seeds {
				var wrong string
				synctest.Test(t, func(t *testing.T) { wrong = play(t, seed, memstore.New()) })
				if wrong != "" {
					t.Errorf("go test ./assign -run History -assign.histories 1 -assign.first %d: %s", seed, wrong)
				}
			}
		})
	}
	for i := range uint64(*histories) {
		seeds <- *firstSeed + i
	}
	close(seeds)
	all.Wait()
}

// Each change of a fleet that is at rest moves what a consistent spreading has to move: the share of
// the process that comes or goes.
func TestAFleetAtRestMovesOnlyTheShareOfTheProcessThatComesOrGoes(t *testing.T) {
	for seed := range uint64(fewer.Of(50)) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 9))
			f := newFleet(t, memstore.New(), 1+random.IntN(100))
			var live []*process
			for i := range 12 {
				var share int
				if len(live) > 1 && random.IntN(2) == 0 {
					at := random.IntN(len(live))
					share = f.shares()[live[at].name]
					f.counted()
					f.stop(live[at])
					live = slices.Delete(live, at, at+1)
					time.Sleep(5 * time.Second)
				} else {
					f.counted()
					p := f.start(fmt.Sprint("p", i), assign.Weight(1+random.IntN(4)))
					live = append(live, p)
					time.Sleep(5 * time.Second)
					share = f.shares()[p.name]
				}
				moves, _ := f.counted()
				require.Equal(t, share, moves)
				total := 0
				for _, n := range f.shares() {
					total += n
				}
				assert.Equal(t, f.n, total)
			}
			f.stop(live...)
		})
	}
}

// findsIn returns what is wrong in the first of some histories in which anything is.
func findsIn(t *testing.T, broken func(*link)) (complaint string) {
	t.Helper()
	for seed := uint64(0); seed < 30 && complaint == ""; seed++ {
		synctest.Test(t, func(t *testing.T) {
			complaint, _, _ = strings.Cut(play(t, seed, memstore.New(), func(f *fleet) { f.broken = broken }), "\n")
		})
	}
	return complaint
}

func TestControlHistoriesNoticeAStoreThatGrantsPartitionsThatAreHeld(t *testing.T) {
	complaint := findsIn(t, func(l *link) {
		l.claim = func(c store.Claim) {
			if !strings.HasSuffix(c.Key, "/workers") {
				l.Mem.Delete(c.Key)
			}
		}
	})
	assert.Contains(t, complaint, "two workers")
}

func TestControlHistoriesNoticeSeatsThatNeverEnd(t *testing.T) {
	complaint := findsIn(t, func(l *link) {
		l.seen = func(s *store.Status) {
			for i := range s.Holders {
				s.Holders[i].ExpireAt = s.Now.Add(l.slow)
			}
		}
	})
	assert.Contains(t, complaint, "without a worker")
}
