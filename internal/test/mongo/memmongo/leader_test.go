package memmongo_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/leader"
)

// How a candidate of a priority comes to lead on MongoDB, where a command takes a millisecond. What is counted
// are the commands of all processes from the moment at which it stands, cursors among them.
func TestACandidateOfAPriorityLeadsAfterAFewCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, sent: make([]atomic.Int64, 3)}
		server, led := memmongo.New(), make(chan string, 99)
		stand := func(i int, name string, priority int) (stop func()) {
			client := c.process(server, i)
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan error)
			go func() {
				over <- leader.Run(ctx, client, "billing", func(ctx context.Context, _ leader.Term) error {
					led <- name
					<-ctx.Done()
					return ctx.Err()
				}, leader.Priority(priority), leader.WithLogger(slog.New(slog.DiscardHandler)))
			}()
			return func() {
				cancel()
				assert.NoError(t, <-over)
				require.NoError(t, client.Close())
			}
		}
		commands := func() (n int64) {
			for i := range c.sent {
				n += c.sent[i].Swap(0)
			}
			return n
		}
		stopLow := stand(0, "low", 0)
		require.Equal(t, "low", <-led)
		time.Sleep(time.Minute + time.Second) // virtual: it has looked a second ago
		commands()
		began := time.Now()
		stopHigh := stand(1, "high", 5)
		require.Equal(t, "high", <-led)
		t.Logf("alone in line: led after %v and %d commands", time.Since(began), c.sent[0].Load()+c.sent[1].Load())
		assert.LessOrEqual(t, time.Since(began), 25*time.Millisecond)
		assert.LessOrEqual(t, commands(), int64(25))

		time.Sleep(time.Minute)
		stopTop := stand(2, "top", 9)
		require.Equal(t, "top", <-led)
		time.Sleep(time.Minute)
		commands()
		began = time.Now()
		stopTop()
		require.Equal(t, "high", <-led)
		t.Logf("handed down: led after %v and %d commands", time.Since(began), c.sent[0].Load()+c.sent[1].Load()+c.sent[2].Load())
		assert.LessOrEqual(t, time.Since(began), 15*time.Millisecond)

		time.Sleep(time.Minute)
		commands()
		time.Sleep(time.Minute)
		n := commands()
		t.Logf("in a minute in which a lower one waits: %d commands", n)
		assert.LessOrEqual(t, n, int64(55))
		stopLow()
		stopHigh()
		for _, link := range c.links {
			t.Cleanup(link.Close)
		}
	})
}
