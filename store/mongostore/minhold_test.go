package mongostore_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
)

// on is a process on a set, or behind a router.
func on(t *testing.T, set *docset.Set) *mongolock.Client {
	t.Helper()
	c, err := mongolock.New(set.Client(t, docset.None).Database("d").Collection("locks"), mongolock.TTL(shardTTL), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// tries takes the keys that are free, and gives them back at once, together. It tells how many.
func tries(t *testing.T, host *mongolock.Client, minHold time.Duration, keys ...string) int {
	t.Helper()
	var leases mongolock.Leases
	for _, key := range keys {
		lease, err := host.TryAcquire(t.Context(), key, mongolock.MinHold(minHold))
		if err == nil {
			leases = append(leases, lease)
			continue
		}
		assert.ErrorIs(t, err, mongolock.ErrHeld)
	}
	assert.NoError(t, leases.Release())
	return len(leases)
}

// Each of three hosts tries to run a job at every tick. The job takes no time, and MinHold keeps its
// key until the last host has tried. The newest time that a host knows is that of another shard.
func TestAJobWithMinHoldCountsEveryTickBehindARouter(t *testing.T) {
	const tick, ticks, apart, minHold = 20 * time.Second, 8, 4 * time.Second, 15 * time.Second
	for _, ahead := range [][]time.Duration{{0, 0}, {time.Hour, 0}, {0, time.Hour}, {0, 3 * time.Second}, {3 * time.Second, 0}} {
		for _, jobs := range [][]string{{"a job"}, {"a job", "another"}} {
			synctest.Test(t, func(t *testing.T) {
				set := docset.NewSharded(func(id string) int {
					if strings.HasPrefix(id, "near") {
						return 0
					}
					return 1
				}, ahead...)
				hosts := []*mongolock.Client{on(t, set), on(t, set), on(t, set)}
				began, ran := time.Now(), 0
				for n := range ticks {
					time.Sleep(time.Until(began.Add(time.Duration(n) * tick)))
					for _, host := range hosts {
						tries(t, host, time.Nanosecond, "near")
						ran += tries(t, host, minHold, jobs...)
						time.Sleep(apart)
					}
				}
				assert.Equal(t, ticks*len(jobs), ran, "of %v in %d ticks, with shards' clocks %v", jobs, ticks, ahead)
			})
		}
	}
}

func TestAWaiterBehindARouterHasTheKeyWhenMinHoldIsOver(t *testing.T) {
	const minHold = 30 * time.Second
	for apart, late := range map[time.Duration]time.Duration{0: time.Second, time.Hour: minHold, -time.Hour: minHold} {
		for _, first := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				set := docset.NewSharded(func(id string) int {
					if id == "near" {
						return 0
					}
					return 1
				}, 0, apart)
				host, other := on(t, set), on(t, set)
				lease, err := host.Acquire(t.Context(), "a job", mongolock.MinHold(minHold))
				require.NoError(t, err)
				granted := time.Now()
				done := make(chan struct{})
				go func() {
					defer close(done)
					if !first {
						time.Sleep(2 * time.Second)
					}
					tries(t, other, time.Nanosecond, "near")
					lease, err := other.Acquire(t.Context(), "a job")
					if assert.NoError(t, err) {
						assert.NoError(t, lease.Release())
					}
				}()
				time.Sleep(time.Second)
				require.NoError(t, lease.Release())
				<-done
				assert.GreaterOrEqual(t, time.Since(granted), minHold)
				assert.LessOrEqual(t, time.Since(granted), minHold+2*time.Second+late, "with clocks %v apart, in line first: %v", apart, first)
			})
		}
	}
}

// A failover takes away what no majority has.
func TestMinHoldSurvivesARollbackOfTheRelease(t *testing.T) {
	for _, jobs := range [][]string{{"a job"}, {"a job", "another"}} {
		for minHold, rolled := range map[time.Duration]bool{10 * time.Minute: false, shardTTL / 2: true} {
			synctest.Test(t, func(t *testing.T) {
				set := docset.New(0)
				host, other := on(t, set), on(t, set)
				var leases mongolock.Leases
				for _, job := range jobs {
					lease, err := host.Acquire(t.Context(), job, mongolock.MinHold(minHold))
					require.NoError(t, err)
					leases = append(leases, lease)
				}
				granted, writes, majority := time.Now(), set.Len(), false
				set.Before(func(c docdb.Command) { majority = majority || c.Writes() && c.Majority() })
				require.NoError(t, leases.Release())
				set.Before(nil)
				assert.Equal(t, !rolled, majority, "a MinHold of %v of a lease of %v waits for the majority", minHold, shardTTL)
				if !majority {
					set.RollBack(writes)
				}
				for _, job := range jobs {
					lease, err := other.Acquire(t.Context(), job)
					require.NoError(t, err)
					assert.GreaterOrEqual(t, time.Since(granted), minHold-time.Second, "%s under MinHold", job)
					require.NoError(t, lease.Release())
				}
			})
		}
	}
}
