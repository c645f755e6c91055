package leader_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestALeaseThatOthersMayShareIsRefused(t *testing.T) {
	client, err := mongolock.NewWithStore(memstore.New())
	require.NoError(t, err)
	defer client.Close()
	for want, opts := range map[string][]mongolock.AcquireOption{
		"leader: Lease(Shared()): several processes would lead at the same time":                     {mongolock.Shared()},
		"leader: Lease(OneOf(3)): several processes would lead at the same time":                     {mongolock.TTL(time.Second), mongolock.OneOf(3)},
		"leader: Lease(OneOf(1)): several processes would lead at the same time":                     {mongolock.OneOf(1)},
		"leader: Lease(MinHold(1m0s)): the key would stay taken after a leader resigned":             {mongolock.MinHold(time.Minute)},
		"at the same time\nleader: Lease(MinHold(1s)): the key would stay taken after a leader resi": {mongolock.Shared(), mongolock.MinHold(time.Second)},
	} {
		for name, locker := range map[string]mongolock.Locker{
			"a client":                    client,
			"what embeds one":             mongolocktest.New(t),
			"a Locker of somebody else's": someLocker{},
		} {
			_, err := leader.New(locker, "billing", leader.Lease(opts...))
			assert.ErrorContains(t, err, want, name)
		}
	}
	_, err = leader.New(client, "billing", leader.Lease(mongolock.TTL(time.Second), mongolock.Note("version 7"), mongolock.MaxHold(time.Hour)))
	assert.NoError(t, err, "what a leader can use")
}

// The control: two that share a key hold it at the same time. So two candidates would
// lead, if their options were not looked at.
func TestControlASharedKeyHasTwoHoldersAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := mongolock.NewWithStore(memstore.New())
		require.NoError(t, err)
		defer client.Close()
		one, err := client.TryAcquire(t.Context(), "billing", mongolock.Shared())
		require.NoError(t, err)
		two, err := client.TryAcquire(t.Context(), "billing", mongolock.Shared())
		require.NoError(t, err)
		assert.NoError(t, one.Err())
		assert.NoError(t, two.Err())
		assert.NoError(t, one.Release())
		assert.NoError(t, two.Release())
	})
}

var errDown = errors.New("down")

// someLocker is a Locker that is no client, and has none.
type someLocker struct{}

func (someLocker) Acquire(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return nil, errDown
}

func (someLocker) TryAcquire(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return nil, errDown
}

func TestACandidateLogsWhereItsClientDoes(t *testing.T) {
	for name, own := range map[string]bool{"to the client's logger": false, "to its own": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ofClient, ofCandidate bytes.Buffer
				s := &link{Store: memstore.New()}
				s.cut.Store(true)
				client, err := mongolock.NewWithStore(s, mongolock.WithLogger(slog.New(slog.NewTextHandler(&ofClient, nil))))
				require.NoError(t, err)
				opts := []leader.Option{}
				if own {
					opts = append(opts, leader.WithLogger(slog.New(slog.NewTextHandler(&ofCandidate, nil))))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.NoError(t, leader.Run(ctx, client, "billing", func(context.Context, leader.Term) error { return nil }, opts...))
				s.cut.Store(false)
				require.NoError(t, client.Close())
				const line = "leader: acquiring the key failed, trying again"
				if own {
					assert.Contains(t, ofCandidate.String(), line)
					assert.NotContains(t, ofClient.String(), line)
				} else {
					assert.Contains(t, ofClient.String(), line)
				}
			})
		})
	}
}
