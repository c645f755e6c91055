package engine_test

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
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

// A hanging observer never returns from what it is told of some operations of keys that begin with "blocked", or
// of renewals, which may be for several keys.
type hanging struct {
	op    mongolock.Op
	begin bool          // it hangs in Begin, else in the end
	until chan struct{} // it returns then
}

func (h *hanging) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	hangs := of.Op == h.op && (strings.HasPrefix(of.Key, "blocked") || of.Op == mongolock.OpRenew)
	if hangs && h.begin {
		<-h.until
	}
	return ctx, func(mongolock.Outcome) {
		if hangs && !h.begin {
			<-h.until
		}
	}
}

// A renewalTimes knows when a key was renewed.
type renewalTimes struct {
	mu    sync.Mutex // protects times
	times map[string][]time.Time
}

func (s *renewalTimes) note(c *lab.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range c.Batch {
		s.times[r.Key] = append(s.times[r.Key], time.Now())
	}
}

// longest returns the longest time that a key was not renewed between two moments.
func (s *renewalTimes) longest(key string, from, to time.Time) (gap time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range append(s.times[key], to) {
		gap, from = max(gap, at.Sub(from)), at
	}
	return gap
}

// harm reports what the leases on "first", "last" and "ends" suffer from an observer that hangs
// in what it is told of other leases, which are waited for, renewed, broken, handed over, and ended by
// Close. The TTL is 30 s and the margin a second.
func harm(t *testing.T, op mongolock.Op, begin bool) (wrong []string) {
	h := &hanging{op: op, begin: begin, until: make(chan struct{})}
	s, renewals := lab.New(memstore.New()), &renewalTimes{times: make(map[string][]time.Time)}
	s.Each = renewals.note
	logger := mongolock.WithLogger(slog.New(slog.DiscardHandler))
	client, rival := connect(s, mongolock.WithObserver(h), logger), connect(s.Mem, logger)
	began := time.Now()
	theirs, first := acquire(t, rival, "blocked"), acquire(t, client, "first")
	time.AfterFunc(time.Second, func() { _ = theirs.Release() })
	var users sync.WaitGroup
	user := func(key string, does func(*mongolock.Lease)) {
		users.Go(func() {
			if lease, err := client.Acquire(context.Background(), key); err == nil {
				does(lease)
			}
		})
		time.Sleep(2 * time.Second)
	}
	user("blocked", func(lease *mongolock.Lease) { <-lease.Done() })
	user("blocked at Close", func(lease *mongolock.Lease) { <-lease.Done() })
	last := acquire(t, client, "last")
	atSleep := time.Now()
	ends := acquire(t, client, "ends", mongolock.NoRenewal())
	ended := make(chan time.Time, 1)
	go func() {
		<-ends.Done()
		ended <- time.Now()
	}()
	time.Sleep(time.Minute)
	_, _ = rival.Break(context.Background(), "blocked", "because", -1)
	time.Sleep(time.Minute)
	user("blocked", func(lease *mongolock.Lease) { time.Sleep(5 * time.Second); _ = lease.Release() })
	user("blocked", func(*mongolock.Lease) {}) // it is handed over
	time.Sleep(time.Minute)
	for key, lease := range map[string]*mongolock.Lease{"first": first, "last": last} {
		if err := lease.Err(); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", key, err))
		}
		if gap := renewals.longest(key, began, time.Now()); gap > 15*time.Second {
			wrong = append(wrong, fmt.Sprintf("%s was not renewed for %v", key, gap))
		}
	}
	if late := (<-ended).Sub(atSleep.Add(29 * time.Second)); late != 0 {
		wrong = append(wrong, fmt.Sprintf("the end of a lease was late by %v", late))
	}
	contexts := map[string]context.Context{"first": first.Context(t.Context()), "last": last.Context(t.Context())}
	closed := make(chan error)
	go func() { closed <- client.Close() }()
	synctest.Wait()
	for key, ctx := range contexts {
		select {
		case <-ctx.Done(): // its Err would ask the lease
		default:
			wrong = append(wrong, key+" was not ended by Close")
		}
	}
	close(h.until)
	<-closed
	users.Wait()
	_ = rival.Close()
	return wrong
}

func TestAnObserverThatHangsDelaysNoRenewalAndNoEndOfAnotherLease(t *testing.T) {
	for _, op := range []mongolock.Op{mongolock.OpAcquire, mongolock.OpWait, mongolock.OpHold, mongolock.OpRenew, mongolock.OpTransfer, mongolock.OpRelease} {
		for name, begin := range map[string]bool{"beginning": true, "end": false} {
			t.Run(fmt.Sprintf("%s/%s", op, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { assert.Empty(t, harm(t, op, begin)) })
			})
		}
	}
}

// A transcript is an observer that writes down all that it is shown.
type transcript struct{ lab.Text }

func (r *transcript) add(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

func (r *transcript) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	r.add("%+v", of)
	return ctx, func(out mongolock.Outcome) { r.add("%s: %v, %+v", of.Op, out.Err, out) }
}

// The end of one lease, and the answer to the release of another, are one step.
func TestAnObserverOfAReleaseThatHangsPutsOffNoEndAtThatMoment(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		h := &hanging{op: mongolock.OpRelease, until: make(chan struct{})}
		client := newClient(t, s, mongolock.WithObserver(h), mongolock.TTL(10*time.Second))
		for range 20 { // which of the two is first is up to the scheduler
			ends := acquire(t, client, "ends", mongolock.NoRenewal())
			ctx := ends.Context(t.Context())
			s.On(lab.Release, lab.Slow(0, time.Second))
			var users sync.WaitGroup
			for _, key := range []string{"blocked 1", "blocked 2", "blocked 3"} {
				lease := acquire(t, client, key)
				time.AfterFunc(8*time.Second, func() { users.Go(func() { _ = lease.Release() }) }) // answered at the deadline
			}
			time.Sleep(9 * time.Second)
			assert.True(t, isOver(ends.Done()))
			assert.True(t, isOver(ctx.Done()), "its context goes on")
			close(h.until)
			users.Wait()
			h.until = make(chan struct{})
			s.On(lab.Release, nil)
			_ = ends.Release()
			time.Sleep(time.Minute)
		}
	})
}

func TestAnObserverIsNotShownTheIDsOfAcquisitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen := lab.New(memstore.New()), &transcript{}
		var mu sync.Mutex // protects ids
		var ids []string
		s.Each = func(c *lab.Call) {
			if c.Claim.ID != "" {
				mu.Lock()
				defer mu.Unlock()
				ids = append(ids, c.Claim.ID)
			}
		}
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
		require.GreaterOrEqual(t, len(ids), 4)
		for _, id := range ids {
			assert.NotContains(t, seen.String(), id)
		}
		assert.Contains(t, seen.String(), "Op:transfer", "the control: the operations are in the text")
	})
}

// A slowStart is an observer that takes a while to take in that a lease is held.
type slowStart time.Duration

func (s slowStart) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	if of.Op == mongolock.OpHold {
		time.Sleep(time.Duration(s)) // virtual
	}
	return ctx, func(mongolock.Outcome) {}
}

func TestASlowObserverDoesNotPutOffTheEndOfALease(t *testing.T) {
	for what, opts := range map[string][]mongolock.AcquireOption{
		"not renewed": {mongolock.NoRenewal(), mongolock.TTL(10 * time.Second)},
		"MaxHold":     {mongolock.MaxHold(9 * time.Second)},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, memstore.New(), mongolock.WithObserver(slowStart(3*time.Second)))
				start := time.Now()
				l := acquire(t, c, "k", opts...)
				<-l.Done()
				tookBetween(t, start, 9*time.Second, 9*time.Second)
			})
		})
	}
}

func TestALeaseThatRunsOutBeforeTheObserverReturnsIsNotGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := newClient(t, s, mongolock.WithObserver(slowStart(9*time.Second)))
		l, err := c.Acquire(t.Context(), "k", mongolock.TTL(10*time.Second))
		assert.Nil(t, l)
		assert.ErrorContains(t, err, "granted too late")
		synctest.Wait()
		mustBeFree(t, s, "k")
	})
}
