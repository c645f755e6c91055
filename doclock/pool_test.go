package doclock

import (
	"testing"
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
		for i := range window {
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
	assert.Equal(t, window, p.reach, "the reach after six misses")
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
