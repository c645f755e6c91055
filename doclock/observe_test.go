package doclock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
)

// An opCounts is an observer that counts operations by package, operation and outcome.
type opCounts struct {
	mu    sync.Mutex // protects what follows
	count map[string]int
	keys  map[string]bool
}

func (o *opCounts) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	return ctx, func(out mongolock.Outcome) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.count[fmt.Sprintf("%s %s %s", of.Package, of.Op, mongolock.OutcomeOf(out.Err))]++
		o.keys[of.Key] = true
	}
}

func TestAnObserverSeesDocumentsAsThoseOfThisPackage(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o"})
	seen := &opCounts{count: map[string]int{}, keys: map[string]bool{}}
	locks := locksOn[order](t, coll, WithObserver(seen))
	doc, err := locks.Acquire(t.Context(), ID("o"))
	require.NoError(t, err)
	stats := locks.Stats()
	assert.Equal(t, "doclock", stats.Package)
	assert.Equal(t, 1, stats.Held)
	_, err = locks.TryAcquire(t.Context(), ID("o"))
	require.ErrorIs(t, err, mongolock.ErrHeld)
	require.NoError(t, doc.SaveAndRelease(t.Context()))
	seen.mu.Lock()
	defer seen.mu.Unlock()
	assert.Equal(t, map[string]int{
		"doclock acquire granted": 1, "doclock acquire held": 1, "doclock hold released": 1, "doclock release granted": 1,
	}, seen.count)
	assert.Len(t, seen.keys, 1, "the document")
}

// Two workers' pools show the same document, so one of them comes too late.
func TestAClaimThatComesTooLateIsSeenAsHeld(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o"})
	seen := &opCounts{count: map[string]int{}, keys: map[string]bool{}}
	first, second := locksOn[order](t, coll), locksOn[order](t, coll, WithObserver(seen))
	p, err := second.pool(t.Context(), bson.D{}, nil, nil)
	require.NoError(t, err)
	id, some, err := p.draw(t.Context())
	require.NoError(t, err)
	require.True(t, some)
	won, err := first.Claim(t.Context(), bson.D{}, nil, mongolock.TTL(time.Minute))
	require.NoError(t, err)
	_, err = second.claim(t.Context(), p, id, nil)
	require.ErrorIs(t, err, errMissed)
	require.NoError(t, won.Release())
	seen.mu.Lock()
	defer seen.mu.Unlock()
	assert.Equal(t, map[string]int{"doclock acquire held": 1}, seen.count)
}
