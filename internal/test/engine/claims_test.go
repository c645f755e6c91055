package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/claims"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
)

// Package internal/test/system tests the same claims on a server.
func TestEveryClaimHoldsInMemory(t *testing.T) {
	claims.Run(t, func(t *testing.T, _ claims.Need, holds func(*testing.T, claims.Env)) {
		lab.Test(t, func(t *testing.T, b *lab.Store) { holds(t, inMemory(t, b, b)) })
	})
}

// inMemory is the environment of a bubble, where nothing happens later than it is due.
func inMemory(t *testing.T, b *lab.Store, s store.Store) claims.Env {
	never := func() time.Duration { return 0 }
	return claims.Env{
		Client: func(opts ...mongolock.ClientOption) *mongolock.Client { return newClient(t, s, opts...) },
		Delete: func(key string) { b.Mem.Delete(key) },
		Records: func() (n int) {
			for _, err := range b.List(t.Context(), "") {
				assert.NoError(t, err)
				n++
			}
			return n
		},
		Sent: func() int {
			defer b.Reset()
			return b.Count()
		},
		TTL:      30 * time.Second,
		Before:   func(d time.Duration) time.Duration { return d - 1 },
		Late:     never,
		LateWake: never,
		Many:     200, Crowd: 10, OneCommand: true,
	}
}
