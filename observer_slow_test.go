package mongolock_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A hanging observer never returns from what it is told of some operations.
type hanging struct {
	op    mongolock.Op
	begin bool          // it hangs in Begin, else in the end
	until chan struct{} // it returns then
}

func (h *hanging) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	if of.Op == h.op && h.begin {
		<-h.until
	}
	return ctx, func(mongolock.Outcome) {
		if of.Op == h.op && !h.begin {
			<-h.until
		}
	}
}

// livesWith reports what went wrong as a client held, renewed, handed over, released and
// closed in spite of an observer that hangs. The client's margin is a second, its TTL 30 s.
func livesWith(t *testing.T, op mongolock.Op, begin bool) (wrong string) {
	h := &hanging{op: op, begin: begin, until: make(chan struct{})}
	s := memstore.New()
	client, rival := connect(s, mongolock.WithObserver(h), mongolock.WithLogger(slog.New(slog.DiscardHandler))), connect(s)
	done := make(chan string)
	go func() {
		began := time.Now()
		late := func(most time.Duration, doing string) string {
			if took := time.Since(began); took > most {
				return fmt.Sprintf("%s took %v", doing, took)
			}
			began = time.Now()
			return ""
		}
		lease, err := client.Acquire(t.Context(), "k")
		if problem := late(time.Second, "Acquire"); err != nil || problem != "" {
			done <- problem + fmt.Sprint(err)
			return
		}
		time.Sleep(10 * time.Minute)
		if err := lease.Err(); err != nil {
			done <- fmt.Sprintf("after 20 TTLs: %v", err)
			return
		}
		began = time.Now()
		if err := lease.Release(); err != nil {
			done <- fmt.Sprintf("Release: %v", err)
			return
		}
		problem := late(time.Second, "Release")
		if _, err := rival.TryAcquire(t.Context(), "k"); err != nil {
			problem += fmt.Sprintf("; after Release: %v", err)
		}
		_, _ = client.Acquire(t.Context(), "k", mongolock.MaxWait(time.Second))
		problem += late(2*time.Second, "a wait")
		_, _ = client.Acquire(t.Context(), "other")
		if err := client.Close(); err != nil {
			problem += fmt.Sprintf("; Close: %v", err)
		}
		done <- problem + late(3*time.Second, "Close")
	}()
	select {
	case wrong = <-done:
	case <-time.After(time.Hour):
		wrong = "nothing goes on"
	}
	close(h.until)
	if strings.HasPrefix(wrong, "nothing") {
		<-done
	}
	_, _ = client.Close(), rival.Close()
	return wrong
}

var observedOps = []mongolock.Op{mongolock.OpAcquire, mongolock.OpWait, mongolock.OpHold, mongolock.OpRenew, mongolock.OpRelease}

func TestAnObserverThatHangsLosesNoLeaseAndKeepsNoKey(t *testing.T) {
	for _, op := range observedOps {
		for name, begin := range map[string]bool{"beginning": true, "end": false} {
			t.Run(fmt.Sprintf("%s/%s", op, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { assert.Empty(t, livesWith(t, op, begin)) })
			})
		}
	}
}

// A caller is an observer that calls back into its client, with a lease of it.
type caller struct {
	client *mongolock.Client
	wg     sync.WaitGroup
	mu     sync.Mutex // protects busy
	busy   bool
}

// callBack does with the client what a program may do, but not within itself.
func (c *caller) callBack(key string) {
	c.mu.Lock()
	was := c.busy
	c.busy = true
	c.mu.Unlock()
	if was || c.client == nil {
		return
	}
	ctx := context.Background()
	_ = c.client.Stats()
	_, _ = c.client.Inspect(ctx, key)
	if lease, err := c.client.TryAcquire(ctx, "its own"); err == nil {
		_ = lease.Release()
	}
	_, _ = c.client.Acquire(ctx, key, mongolock.MaxWait(time.Minute)) // held by the observed call, or by this one
	_ = c.client.Close()
	c.mu.Lock()
	c.busy = false
	c.mu.Unlock()
}

func (c *caller) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	if of.Op != mongolock.OpRelease {
		return ctx, func(mongolock.Outcome) {}
	}
	c.wg.Add(1)
	defer c.wg.Done()
	c.callBack(of.Key)
	return ctx, func(mongolock.Outcome) {}
}

func TestAnObserverMayCallItsClientEvenToCloseIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{}
		client := connect(memstore.New(), mongolock.WithObserver(c), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
		c.client = client
		lease := acquire(t, client, "k")
		start := time.Now()
		_ = lease.Release()
		assert.Less(t, time.Since(start), time.Second, "Release waits for an observer that waits for the release")
		assert.NoError(t, client.Close())
		c.wg.Wait()
	})
}

func TestTheLogSaysOnceThatAnObserverIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		h := &hanging{op: mongolock.OpAcquire, begin: true, until: make(chan struct{})}
		client := connect(memstore.New(), mongolock.WithObserver(h), mongolock.WithLogger(slog.New(slog.NewTextHandler(&said, nil))))
		for range 3 {
			_ = acquire(t, client, "k").Release()
		}
		assert.Equal(t, 1, strings.Count(said.String(), "observer"), said.String())
		// All but the call that hangs: three acquisitions less one, three holds, three releases.
		assert.EqualValues(t, 8, client.Stats().Unobserved)
		close(h.until)
		assert.NoError(t, client.Close())
	})
}

// An idKeeper is a store that remembers the IDs of all claims.
type idKeeper struct {
	*countingStore
	mu  sync.Mutex // protects ids
	ids []string
}

func (s *idKeeper) keep(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, id)
}

func (s *idKeeper) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.keep(c.ID)
	return s.countingStore.Acquire(ctx, c)
}

func (s *idKeeper) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	s.keep(to.ID)
	return s.countingStore.Transfer(ctx, from, to)
}

// A transcript is an observer that writes down all that it is shown.
type transcript struct {
	mu   sync.Mutex // protects text
	text strings.Builder
}

func (r *transcript) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.text, format+"\n", args...)
}

func (r *transcript) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	r.add("%+v", of)
	return ctx, func(out mongolock.Outcome) { r.add("%s: %v, %+v", of.Op, out.Err, out) }
}

func TestAnObserverIsNotShownTheIDsOfAcquisitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen := &idKeeper{countingStore: newCountingStore()}, &transcript{}
		client, rival := connect(s, mongolock.WithObserver(seen)), connect(s, mongolock.WithObserver(seen))
		lease := acquire(t, client, "k")
		_, err := rival.TryAcquire(t.Context(), "k")
		require.ErrorIs(t, err, mongolock.ErrHeld)
		go func() { time.Sleep(time.Minute); _ = lease.Release() }()
		next, err := client.Acquire(t.Context(), "k") // handed over
		require.NoError(t, err)
		ticket, err := next.Detach(t.Context())
		require.NoError(t, err)
		resumed, err := rival.Resume(t.Context(), ticket)
		require.NoError(t, err)
		_, err = client.Resume(t.Context(), ticket)
		require.ErrorIs(t, err, mongolock.ErrLost)
		_, _ = client.Break(t.Context(), "k", "because", -1)
		_ = resumed.Renew(t.Context())
		_ = resumed.Release()
		require.NoError(t, client.Close())
		require.NoError(t, rival.Close())
		require.GreaterOrEqual(t, len(s.ids), 4)
		for _, id := range s.ids {
			assert.NotContains(t, seen.text.String(), id)
		}
		assert.Contains(t, seen.text.String(), "Op:transfer", "the control: the operations are in the text")
	})
}
