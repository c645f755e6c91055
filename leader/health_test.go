package leader_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func newClient(t *testing.T, s store.Store, opts ...mongolock.ClientOption) *mongolock.Client {
	t.Helper()
	client, err := mongolock.NewWithStore(s, append(opts, mongolock.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// deaf starts a candidate whose work does not listen to its context, until released.
func deaf(ctx context.Context, t *testing.T, client *mongolock.Client, opts ...leader.Option) (_ *leader.Candidate, leads <-chan struct{}, release func()) {
	t.Helper()
	c, err := leader.New(client, "billing", opts...)
	require.NoError(t, err)
	began, until := make(chan struct{}, 10), make(chan struct{})
	go func() {
		_ = c.Run(ctx, func(context.Context, leader.Term) error {
			began <- struct{}{}
			<-until
			return nil
		})
	}()
	return c, began, sync.OnceFunc(func() { close(until) })
}

func TestAProcessIsHealthyUntilItsWorkIgnoresTheEndOfItsTerm(t *testing.T) {
	ends := map[string]func(c *leader.Candidate, cancel context.CancelFunc){
		"lost":     func(*leader.Candidate, context.CancelFunc) { time.Sleep(30 * time.Second) }, // MaxHold is over
		"resigned": func(c *leader.Candidate, _ context.CancelFunc) { go c.Resign(context.Background()) },
		"stopped":  func(_ *leader.Candidate, cancel context.CancelFunc) { cancel() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newClient(t, memstore.New())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c, leads, release := deaf(ctx, t, client, leader.With(mongolock.MaxHold(time.Minute)))
				defer release()
				healthy := leader.Healthy(10*time.Second, c)
				assert.NoError(t, healthy(nil), "it waits to lead")
				<-leads
				time.Sleep(30 * time.Second)
				assert.NoError(t, healthy(nil), "it leads")
				end(c, cancel)
				synctest.Wait()
				time.Sleep(9 * time.Second)
				assert.NoError(t, healthy(nil), "within the tolerance")
				time.Sleep(time.Minute)
				assert.ErrorContains(t, healthy(nil), `leader: "billing": the work was told to stop`)
				release()
				synctest.Wait()
				assert.NoError(t, healthy(nil), "the work has returned")
				cancel()
			})
		})
	}
}

func TestOneUnhealthyCandidateOfSeveralIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, memstore.New())
		ctx, cancel := context.WithCancel(t.Context())
		well, err := leader.New(client, "reports")
		require.NoError(t, err)
		ill, leads, release := deaf(ctx, t, client)
		defer release()
		<-leads
		cancel()
		time.Sleep(time.Second)
		assert.NoError(t, leader.Healthy(time.Minute, well, ill, nil)(nil))
		assert.Error(t, leader.Healthy(0, well, ill, nil)(nil))
		assert.NoError(t, leader.Healthy(0, well)(nil))
		assert.NoError(t, leader.Healthy(0)(nil))
	})
}

func TestAProbeOverHTTPSeesTheCheck(t *testing.T) {
	client := newClient(t, memstore.New())
	ctx, cancel := context.WithCancel(t.Context())
	c, leads, release := deaf(ctx, t, client)
	defer release()
	healthy := leader.Healthy(0, c)
	probe := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := healthy(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	defer probe.Close()
	code := func() int {
		answer, err := http.Get(probe.URL)
		require.NoError(t, err)
		defer answer.Body.Close()
		return answer.StatusCode
	}
	<-leads
	assert.Equal(t, http.StatusOK, code())
	cancel()
	assert.Eventually(t, func() bool { return code() == http.StatusServiceUnavailable }, 5*time.Second, time.Millisecond)
}

func TestTheLeadersNoteIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, memstore.New())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, leads, release := deaf(ctx, t, client, leader.With(mongolock.Note("http://10.0.0.7:8080")))
		defer release()
		<-leads
		is, err := leader.Current(ctx, client, "billing")
		require.NoError(t, err)
		assert.Equal(t, "http://10.0.0.7:8080", is.Note)
		for is, err := range leader.Watch(ctx, client, "billing") {
			require.NoError(t, err)
			assert.Equal(t, "http://10.0.0.7:8080", is.Note)
			break
		}
	})
}

// An operations is an observer that writes down what package leader does.
type operations struct {
	mu   sync.Mutex // protects what follows
	all  []mongolock.Operation
	ends []string
}

func (o *operations) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if of.Package == "leader" {
		o.all = append(o.all, of)
	}
	return ctx, func(out mongolock.Outcome) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if of.Op == mongolock.OpRun {
			o.ends = append(o.ends, mongolock.OutcomeOf(out.Err))
		}
	}
}

func TestAnObserverOfTheClientSeesElectionsAndTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &operations{}
		s := memstore.New()
		client := newClient(t, s, mongolock.WithObserver(seen))
		standby := newClient(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		run := func(client *mongolock.Client) *leader.Candidate {
			c, err := leader.New(client, "billing", leader.With(mongolock.MaxHold(time.Minute)))
			require.NoError(t, err)
			go func() {
				_ = c.Run(ctx, func(ctx context.Context, _ leader.Term) error { <-ctx.Done(); return ctx.Err() })
			}()
			synctest.Wait()
			return c
		}
		c := run(client)
		run(standby)
		assert.Equal(t, 1, standby.Stats().Candidates)
		assert.Equal(t, 1, standby.Stats().Waiters)
		time.Sleep(30 * time.Second)
		assert.Zero(t, standby.Stats().OldestWait, "a candidate may wait for ever")
		assert.Zero(t, standby.Stats().InLine)
		require.NoError(t, c.Resign(t.Context()))
		time.Sleep(3 * time.Minute) // the other leads for MaxHold, then this one, …
		cancel()
		synctest.Wait()
		seen.mu.Lock()
		defer seen.mu.Unlock()
		require.NotEmpty(t, seen.all)
		run1 := mongolock.Operation{Op: mongolock.OpRun, Package: "leader", Key: "billing"}
		assert.Contains(t, seen.all, run1)
		ops := map[mongolock.Op]bool{}
		for _, of := range seen.all {
			assert.Equal(t, "billing", of.Key)
			ops[of.Op] = true
		}
		assert.Subset(t, ops, map[mongolock.Op]bool{mongolock.OpAcquire: true, mongolock.OpHold: true, mongolock.OpRun: true})
		require.GreaterOrEqual(t, len(seen.ends), 2)
		assert.Equal(t, []string{mongolock.OutcomeReleased, mongolock.OutcomeLost}, seen.ends[:2])
	})
}
