package memmongo_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
)

// far is a link on which what the client sends takes so long that workers plan while partitions move.
type far struct{ *memmongo.Link }

func (f far) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := f.Link.DialContext(ctx, network, address)
	return distantly{conn}, err
}

type distantly struct{ net.Conn }

func (c distantly) Write(b []byte) (int, error) {
	time.Sleep(30 * time.Millisecond) // virtual
	return c.Conn.Write(b)
}

// rolling swaps three workers for others, one after the other, and returns the longest time for which nobody
// worked on a partition that moved.
func rolling(t *testing.T, between, pause time.Duration) (longest time.Duration) {
	server := memmongo.New()
	var mu sync.Mutex // protects left and gaps
	left, gaps := map[int]time.Time{}, []time.Duration{}
	var links []*memmongo.Link
	start := func() (stop func()) {
		link := server.Link()
		links = append(links, link)
		driver, err := mongo.Connect(options.Client().ApplyURI("mongodb://memory:27017/?directConnection=true").SetDialer(far{link}))
		require.NoError(t, err)
		client, err := mongolock.New(driver.Database("d").Collection("locks"), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() {
			over <- assign.Run(ctx, client, "orders", 12, func(ctx context.Context, p assign.Partition) error {
				mu.Lock()
				if at, was := left[p.ID]; was {
					gaps = append(gaps, time.Since(at))
				}
				mu.Unlock()
				<-ctx.Done()
				mu.Lock()
				left[p.ID] = time.Now()
				mu.Unlock()
				return ctx.Err()
			}, assign.WithLogger(slog.New(slog.DiscardHandler)))
		}()
		return func() {
			cancel()
			assert.NoError(t, <-over)
			assert.NoError(t, client.Close())
			assert.NoError(t, driver.Disconnect(context.Background()))
		}
	}
	var ends []func()
	for range 3 {
		ends = append(ends, start())
	}
	time.Sleep(time.Minute)
	var ending sync.WaitGroup
	for _, end := range ends[:3] {
		ends = append(ends, start())
		time.Sleep(between)
		ending.Go(end)
		time.Sleep(pause)
	}
	time.Sleep(time.Minute)
	mu.Lock()
	longest = slices.Max(gaps)
	mu.Unlock()
	for _, end := range ends[3:] {
		ending.Go(end)
	}
	ending.Wait()
	for _, link := range links {
		link.Close()
	}
	return longest
}

// Workers that plan at different moments may each leave a partition to the other. No change of workers and no end
// of a lease tells them of it: so they look again until all have what they should have.
func TestAPartitionThatMovesInARollingSwapIsIdleForLessThanTwoSeconds(t *testing.T) {
	var longest time.Duration
	for _, between := range []time.Duration{0, 20 * time.Millisecond, 50 * time.Millisecond} {
		for _, pause := range []time.Duration{0, time.Second, 3 * time.Second, 8 * time.Second, 20 * time.Second} {
			for range 2 {
				synctest.Test(t, func(t *testing.T) { longest = max(longest, rolling(t, between, pause)) })
			}
		}
	}
	t.Logf("idle for %v at most", longest)
	assert.Less(t, longest, 2*time.Second)
}
