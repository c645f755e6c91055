package system

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/claims"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// The same claims hold in memory and in virtual time, see internal/test/engine.
func TestEveryClaimHoldsOnAServer(t *testing.T) {
	t.Parallel()
	claims.Run(t, func(t *testing.T, needs claims.Need, holds func(*testing.T, claims.Env)) {
		t.Parallel()
		with := newFixtureOnAny
		if needs == claims.Atomic {
			with = newFixture
		}
		holds(t, with(t).env())
	})
}

// env is an Env on a server, and on a machine that has other things to do.
func (f *fixture) env() claims.Env {
	tap, pings := &testserver.Tap{}, new(atomic.Int64)
	return claims.Env{
		Client: func(opts ...mongolock.ClientOption) *mongolock.Client {
			pings.Add(1) // that of reached, which is not the library's
			return f.clientOn(f.reached(tap.On), opts...)
		},
		Delete: func(key string) {
			_, err := f.coll.DeleteOne(f.ctx(), bson.D{{Key: "_id", Value: key}})
			assert.NoError(f.t, err)
		},
		Records:    func() int { return int(f.count()) },
		Sent:       func() int { return len(tap.Take()) - int(pings.Swap(0)) },
		TTL:        min(pace.Of(1500*time.Millisecond), 4*time.Second),
		Before:     func(d time.Duration) time.Duration { return d / 2 },
		Late:       func() time.Duration { return pace.Of(slack) + f.busy() },
		LateWake:   func() time.Duration { return pace.Of(slack+pollPause) + f.busy() },
		Tolerance:  pace.Of(2 * time.Second),
		Many:       6,
		Crowd:      4,
		Contenders: []int{4},
		OneCommand: testserver.Has("operationtime"),
		Watched:    testserver.Has("router"),
	}
}

// count is the number of documents in the collection.
func (f *fixture) count() int64 {
	f.t.Helper()
	n, err := f.coll.CountDocuments(f.ctx(), bson.D{})
	require.NoError(f.t, err)
	return n
}
