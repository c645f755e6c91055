package doclock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
)

func TestADocumentWhoseWorkStallsIsFreeAgain(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o"), mongolock.TTL(time.Hour), mongolock.MaxStall(300*time.Millisecond)))(t)
	for range 5 {
		time.Sleep(100 * time.Millisecond) // real: a third of MaxStall
		doc.Lease().Progress()
	}
	next := must(locks.Acquire(t.Context(), ID("o"), mongolock.MaxWait(time.Minute)))(t)
	assert.ErrorIs(t, doc.Lease().Err(), mongolock.ErrStalled)
	assert.ErrorIs(t, doc.Save(t.Context()), mongolock.ErrLost, "what it was to write is not written")
	assert.NoError(t, next.Lease().Err())
}
