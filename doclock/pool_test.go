package doclock

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// A process that misses no document keeps the order. One that misses some draws from
// further in, and comes back when it misses no more.
func TestAPoolThatMissesDocumentsDrawsFromFurtherIn(t *testing.T) {
	p := newPool(nil, nil, nil)
	fill := func() {
		p.ids = nil
		for i := range windowMost {
			kind, value, _ := bson.MarshalValue(int32(i))
			p.ids = append(p.ids, bson.RawValue{Type: kind, Value: value})
		}
		p.seen, p.tries, p.misses = time.Now(), 0, 0
	}
	draw := func(missed bool) int32 {
		t.Helper()
		id, ok := p.pick()
		if !ok {
			fill()
			id, _ = p.pick()
		}
		p.done(id, missed)
		return id.Int32()
	}
	fill()
	for want := range int32(50) {
		require.Equal(t, want, draw(false), "with no other process about")
	}
	for range 6 {
		draw(true)
	}
	assert.Equal(t, windowMost, p.reach, "the reach after six misses")
	for range 1000 {
		draw(false)
	}
	assert.Equal(t, 1, p.reach, "the reach after a thousand hits")
}

func TestALookIsRepeatedWhenItIsOldOrMissesTooMuch(t *testing.T) {
	p := newPool(nil, nil, nil)
	p.seen, p.tries = time.Now(), 32
	p.misses = 3
	assert.False(t, p.stale(), "after 3 misses of 32")
	p.misses = 4
	assert.True(t, p.stale(), "after 4 misses of 32")
	p.misses, p.seen = 0, time.Now().Add(-2*windowAge)
	assert.True(t, p.stale(), "after twice its age")
}

// claimsFrom draws n documents from a pool that finds as many as it asks for, with a pause
// before each, and returns how many documents all its looks have found.
func claimsFrom(t *testing.T, n int, pause time.Duration, missed func(i int) bool) (found int) {
	t.Helper()
	p := newPool(nil, nil, nil)
	next := int32(0)
	for i := range n {
		time.Sleep(pause)
		id, ok := p.pick()
		if !ok {
			p.resize()
			p.ids = p.ids[:0]
			for range p.size {
				p.ids = append(p.ids, asValue(next))
				next++
			}
			found += p.size
			p.seen, p.tries, p.misses, p.full = time.Now(), 0, 0, true
			id, ok = p.pick()
			require.True(t, ok)
		}
		p.done(id, missed(i))
	}
	return found
}

func never(int) bool { return false }

func TestSlowWorkersLookAtFewDocumentsForEachClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.LessOrEqual(t, claimsFrom(t, 100, 1100*time.Millisecond, never), 100*windowLeast, "at 1.1 s a claim")
		assert.LessOrEqual(t, claimsFrom(t, 1000, 100*time.Millisecond, never), 1000*4, "at 0.1 s a claim")
	})
}

func TestFastWorkersLookSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found := claimsFrom(t, 10_000, 100*time.Microsecond, never)
		assert.LessOrEqual(t, found, 10_000+windowMost, "at 0.1 ms a claim")
	})
}

func TestWorkersThatMissDocumentsLookAtMoreOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(nil, nil, nil)
		for range 4 {
			p.resize()
			p.seen, p.tries, p.misses = time.Now(), 2, 2
			p.ids = []bson.RawValue{asValue(1)}
		}
		p.resize()
		assert.Equal(t, windowMost, p.size)
	})
}

// A filter with the present time in it is another one each time.
func TestClaimsThatEachHaveAFilterOfTheirOwnKeepFewPools(t *testing.T) {
	var s pools
	s.begin(&docStore{})
	defer s.close()
	ask := func(i int) *pool {
		p, err := s.pool(bson.Raw(asValue(bson.D{{Key: "due", Value: bson.DateTime(i)}}).Value), nil)
		require.NoError(t, err)
		return p
	}
	for i := range 1000 {
		ask(i)
	}
	assert.LessOrEqual(t, len(s.byQuery), maxPools)
	var waited []*pool
	for i := range 1000 { // waiters keep theirs
		waited = append(waited, ask(i))
		waited[i].waiters.enter()
	}
	for _, p := range waited {
		p.waiters.leave()
	}
	ask(1000)
	assert.LessOrEqual(t, len(s.byQuery), maxPools, "after the waiters have left")
}

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
