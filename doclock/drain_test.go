package doclock

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// drain has workers of several Locks, one for each process, claim and complete n
// messages. Each message must be claimed exactly once, and a claim may take no more than
// most commands on average.
func drain(t *testing.T, n, processes, workers int, most float64) {
	taps := make([]testserver.Tap, processes)
	var locks []*Locks[message]
	coll := collection(t)
	messages(t, coll, n)
	uri := uriOf(t)
	for i := range taps {
		locks = append(locks, locksOn[message](t, again(t, coll, uri, taps[i].On), WithOwner(fmt.Sprint("p", i))))
	}
	require.NoError(t, locks[0].EnsureClaimIndex(t.Context(), pending, oldest))
	for i := range taps {
		taps[i].TakeNames()
	}
	var claims atomic.Int64
	seen := make([]atomic.Int32, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range processes * workers {
		l := locks[i%processes]
		wg.Go(func() {
			for {
				c, err := l.TryClaim(t.Context(), pending, oldest)
				if errors.Is(err, ErrNoWork) || !assert.NoError(t, err) {
					return
				}
				claims.Add(1)
				seen[c.Value.ID].Add(1)
				c.Value.State = "sent"
				assert.NoError(t, c.Complete(t.Context()))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	for id := range seen {
		assert.EqualValues(t, 1, seen[id].Load(), "claims of message %d", id)
	}
	sent := 0
	for i := range taps {
		for _, name := range taps[i].TakeNames() {
			if slices.Contains([]string{"findAndModify", "find", "hello"}, name) {
				sent++
			}
		}
	}
	perClaim := float64(sent)/float64(claims.Load()) - 1 // less the command that completes it
	t.Logf("%d processes of %d workers: %d claims, %.3f commands for each, %.0f a second", processes, workers, claims.Load(), perClaim, float64(n)/took.Seconds())
	assert.LessOrEqual(t, perClaim, most, "commands per claim")
}

// A longer queue takes longer, and shows the same.
func TestEightWorkersClaimWithHardlyMoreThanOneCommandEach(t *testing.T) {
	needs(t, "atomic")
	drain(t, 1000, 1, 8, 1.3)
}

// Processes that all went for the first message would send eight commands a claim. The
// shorter the queue, the more its end counts, when all are after the same few messages:
// hence a higher limit. On a busy machine what was looked at is older.
func TestWorkersOfSeveralProcessesSeldomClaimTheSameDocument(t *testing.T) {
	needs(t, "atomic")
	drain(t, 1000, 8, 1, min(1.6*pace.Of(time.Second).Seconds(), 4))
}
