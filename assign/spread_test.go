package assign

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/store"
)

func of(weights ...int) (all []worker) {
	for i, w := range weights {
		all = append(all, worker{string(rune('a' + i)), w})
	}
	return all
}

func TestQuotasFollowTheWeights(t *testing.T) {
	for _, test := range []struct {
		n       int
		weights []int
		want    []int
	}{
		{256, []int{1}, []int{256}},
		{256, []int{1, 1, 1, 1, 1}, []int{52, 51, 51, 51, 51}},
		{12, []int{1, 2, 3}, []int{2, 4, 6}},
		{100, []int{1, 99}, []int{1, 99}},
		{3, []int{1, 1, 1000}, []int{1, 1, 1}},    // none is idle
		{2, []int{1, 5, 1, 5}, []int{0, 1, 0, 1}}, // with too few partitions the heavier ones have them
		{4, []int{1, 1, 1, 1, 1}, []int{1, 1, 1, 1, 0}},
		{7, nil, []int{}},
	} {
		assert.Equal(t, test.want, quotas(test.n, of(test.weights...)), "%d over %v", test.n, test.weights)
	}
}

func TestAPartitionIsMovedOnlyIfItHasTo(t *testing.T) {
	const no = nobody
	for name, test := range map[string]struct {
		weights   []int
		has, want []int
		calm      bool
	}{
		"all are free":                           {weights: []int{1, 1}, has: []int{no, no, no, no}, want: []int{0, 0, 1, 1}},
		"a worker comes":                         {weights: []int{1, 1, 1}, has: []int{0, 0, 0, 1, 1, 1}, want: []int{0, 0, 2, 1, 1, 2}},
		"it comes while workers settle":          {weights: []int{1, 1, 1}, has: []int{0, 0, 0, 1, 1, 1}, want: []int{0, 0, 0, 1, 1, 1}, calm: true},
		"another goes while it settles":          {weights: []int{1, 1}, has: []int{no, no, no, 0, 0, 0}, want: []int{1, 1, 1, 0, 0, 0}, calm: true},
		"a worker goes":                          {weights: []int{1, 1}, has: []int{0, 0, no, 1, 1, no}, want: []int{0, 0, 0, 1, 1, 1}},
		"nothing changes":                        {weights: []int{1, 1}, has: []int{1, 0, 1, 0}, want: []int{1, 0, 1, 0}},
		"one of unequal weight has one too many": {weights: []int{1, 3}, has: []int{0, 0, 1, 1}, want: []int{0, 1, 1, 1}},
		"no workers":                             {has: []int{no, no}, want: []int{no, no}},
	} {
		assert.Equal(t, test.want, spread(of(test.weights...), test.has, test.calm), name)
	}
}

// moved counts the partitions that another worker has, by its ID.
func moved(before []worker, has []int, after []worker, to []int) (n int) {
	for p := range has {
		if has[p] == nobody || before[has[p]].id != after[to[p]].id {
			n++
		}
	}
	return n
}

func TestOnlyThePartitionsOfTheWorkerThatComesOrGoesMove(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range fewer.Of(2000) {
		n := 1 + r.IntN(300)
		var workers []worker
		for i := range 1 + r.IntN(8) {
			workers = append(workers, worker{fmt.Sprint("w", i), 1 + r.IntN(4)})
		}
		free := slices.Repeat([]int{nobody}, n)
		has := spread(workers, free, false)
		total := 0
		for _, w := range workers {
			total += w.weight
		}
		for i, q := range quotas(n, workers) {
			require.LessOrEqual(t, q, (n*workers[i].weight+total-1)/total, "at most its part, rounded up")
			if n >= len(workers) {
				require.Positive(t, q)
			}
		}

		gone := r.IntN(len(workers)) // the one that is not there before, or not there afterwards
		fewer := slices.Delete(slices.Clone(workers), gone, gone+1)
		if len(fewer) == 0 {
			continue
		}
		left := make([]int, n)
		for p, w := range has {
			switch {
			case w == gone:
				left[p] = nobody
			case w > gone:
				left[p] = w - 1
			default:
				left[p] = w
			}
		}
		without := spread(fewer, left, false)
		require.Equal(t, quotas(n, workers)[gone], moved(workers, has, fewer, without), "when it goes")

		again := make([]int, n)
		for p, w := range without {
			if again[p] = w; w >= gone {
				again[p]++
			}
		}
		back := spread(workers, again, false)
		require.Equal(t, quotas(n, workers)[gone], moved(fewer, without, workers, back), "when it comes")
	}
}

func TestThePlanStaysAsItIsWhileItIsCarriedOut(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range fewer.Of(2000) {
		n := 1 + r.IntN(100)
		var workers []worker
		for i := range 1 + r.IntN(8) {
			workers = append(workers, worker{fmt.Sprint("w", i), 1 + r.IntN(4)})
		}
		has := make([]int, n)
		for p := range has {
			has[p] = r.IntN(len(workers)+1) - 1
		}
		calm := r.IntN(4) == 0
		plan := spread(workers, has, calm)
		for _, p := range r.Perm(n) { // each that moves is taken, or given back and not taken yet
			switch {
			case has[p] == plan[p]:
			case r.IntN(3) == 0:
				has[p] = nobody
			default:
				has[p] = plan[p]
			}
			require.Equal(t, plan, spread(workers, has, calm))
		}
	}
}

// Each worker looks often. The partitions are made once a look, not once a worker.
func TestALookAtManyWorkersMakesThePartitionsOnce(t *testing.T) {
	const workers = 200
	now := time.Now()
	status := mongolock.Status{Mode: store.Permits, Now: now}
	for i := range workers {
		status.Holders = append(status.Holders, store.Holder{ID: fmt.Sprint(i), Note: fmt.Sprintf(seatNote, fmt.Sprint(i), 1, maxParts), Since: now, ExpireAt: now.Add(time.Minute)})
	}
	require.Len(t, seatsOf(status).Workers, workers)
	least := uint64(math.MaxUint64) // other tests run beside this one
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		seatsOf(status)
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	assert.Less(t, least, uint64(3*maxParts)*uint64(unsafe.Sizeof(Part{})))
}
