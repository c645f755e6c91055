package doclock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
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
