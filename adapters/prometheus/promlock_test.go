package promlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	promlock "github.com/mongolock/mongolock/adapters/prometheus"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/store/memstore"
)

// An exposition is the metrics of a process as Prometheus gets them, over HTTP.
type exposition struct {
	t   *testing.T
	url string
}

// expose registers a collector in a registry of its own, which checks what it collects, and
// serves it.
func expose(t *testing.T, c *promlock.Collector) exposition {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(server.Close)
	return exposition{t, server.URL}
}

// scrape reads all metrics, by name and labels as they are written, without those of zero.
// Of a histogram it has the count.
func (e exposition) scrape() map[string]float64 {
	e.t.Helper()
	answer, err := http.Get(e.url)
	require.NoError(e.t, err)
	defer answer.Body.Close()
	require.Equal(e.t, http.StatusOK, answer.StatusCode)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	require.NoError(e.t, err)
	all := make(map[string]float64)
	for name, f := range families {
		for _, m := range f.Metric {
			if v := value(f.GetType(), m); v != 0 {
				all[name+labels(m)] = v
			}
		}
	}
	return all
}

func value(kind dto.MetricType, m *dto.Metric) float64 {
	switch kind {
	case dto.MetricType_HISTOGRAM:
		return float64(m.GetHistogram().GetSampleCount())
	case dto.MetricType_COUNTER:
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}

func labels(m *dto.Metric) string {
	var all []string
	for _, l := range m.Label {
		if l.GetValue() != "mongolock" { // the package of most
			all = append(all, l.GetValue())
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}

// wants fails unless the exposition has these values.
func (e exposition) wants(want map[string]float64) {
	e.t.Helper()
	is := e.scrape()
	for name, v := range want {
		assert.InDelta(e.t, v, is[name], 0, "%s; there are %v", name, is)
	}
}

func newCollector(t *testing.T, opts ...promlock.Option) *promlock.Collector {
	t.Helper()
	c, err := promlock.New(opts...)
	require.NoError(t, err)
	return c
}

var quiet = mongolock.WithLogger(slog.New(slog.DiscardHandler))

func TestHeldKeysAndWaitersAreReadAtTheScrape(t *testing.T) {
	metrics := newCollector(t)
	exposed := expose(t, metrics)
	s := memstore.New()
	client, err := mongolock.NewWithStore(s, mongolock.WithObserver(metrics), quiet)
	require.NoError(t, err)
	exposed.wants(map[string]float64{"mongolock_clients{idle}": 1})
	a, err := client.Acquire(t.Context(), "a")
	require.NoError(t, err)
	b, err := client.Acquire(t.Context(), "b")
	require.NoError(t, err)
	next := make(chan *mongolock.Lease)
	go func() {
		l, err := client.Acquire(t.Context(), "a")
		assert.NoError(t, err)
		next <- l
	}()
	require.Eventually(t, func() bool { return client.Stats().Waiters == 1 }, 5*time.Second, time.Millisecond)
	exposed.wants(map[string]float64{"mongolock_leases_held{}": 2, "mongolock_waiters{}": 1})
	is := exposed.scrape()
	assert.Positive(t, is["mongolock_oldest_wait_seconds{}"])
	assert.Positive(t, is["mongolock_oldest_renewal_seconds{}"])

	require.NoError(t, a.Release()) // handed over
	require.NoError(t, errors.Join((<-next).Release(), b.Release()))
	exposed.wants(map[string]float64{
		"mongolock_leases_held{}": 0, "mongolock_waiters{}": 0, "mongolock_oldest_wait_seconds{}": 0,
		"mongolock_acquire_duration_seconds{granted}":  3,
		"mongolock_wait_duration_seconds{granted}":     1,
		"mongolock_hold_duration_seconds{released}":    3,
		"mongolock_release_duration_seconds{granted}":  3,
		"mongolock_transfer_duration_seconds{granted}": 1,
		"mongolock_handoffs_total{granted}":            1,
	})
	require.NoError(t, client.Close())
	exposed.wants(map[string]float64{"mongolock_clients{idle}": 0})
}

func TestTheLineIsReadAtTheScrape(t *testing.T) {
	metrics := newCollector(t)
	exposed := expose(t, metrics)
	s := memstore.New()
	newClient := func(opts ...mongolock.ClientOption) *mongolock.Client {
		c, err := mongolock.NewWithStore(s, append(opts, quiet)...)
		require.NoError(t, err)
		return c
	}
	holder, first, last := newClient(), newClient(), newClient(mongolock.WithObserver(metrics))
	held, err := holder.Acquire(t.Context(), "k")
	require.NoError(t, err)
	var all sync.WaitGroup
	for _, c := range []*mongolock.Client{first, last} {
		all.Go(func() {
			l, err := c.Acquire(t.Context(), "k")
			if assert.NoError(t, err) {
				assert.NoError(t, l.Release())
			}
		})
		require.Eventually(t, func() bool { return c.Stats().InLine == 1 }, 5*time.Second, time.Millisecond)
	}
	exposed.wants(map[string]float64{"mongolock_keys_in_line{}": 1, "mongolock_ahead_in_line{}": 1})
	require.NoError(t, held.Release())
	all.Wait()
	exposed.wants(map[string]float64{"mongolock_keys_in_line{}": 0, "mongolock_ahead_in_line{}": 0})
	require.NoError(t, errors.Join(holder.Close(), first.Close(), last.Close()))
}

func TestTheCommandsOfALockAreCounted(t *testing.T) {
	for name, collections := range map[string][]string{"its collection": {"locks"}, "all": nil} {
		t.Run(name, func(t *testing.T) {
			metrics := newCollector(t)
			exposed := expose(t, metrics)
			monitored := func(o *options.ClientOptions) { o.SetMonitor(metrics.CommandMonitor(collections...)) }
			db := memmongo.New().Client(t, monitored).Database("d")
			client, err := mongolock.New(db.Collection("locks"), quiet)
			require.NoError(t, err)
			lease, err := client.Acquire(t.Context(), "k")
			require.NoError(t, err)
			require.NoError(t, lease.Release())
			require.NoError(t, client.Close())
			_, err = db.Collection("others").InsertOne(t.Context(), map[string]int{"n": 1})
			require.NoError(t, err)
			exposed.wants(map[string]float64{"mongolock_commands_total{locks,findAndModify}": 2, "mongolock_commands_total{locks,createIndexes}": 1})
			_, others := exposed.scrape()["mongolock_commands_total{others,insert}"]
			assert.Equal(t, collections == nil, others)
		})
	}
}

func TestACommandIsThatOfItsCollection(t *testing.T) {
	metrics := newCollector(t)
	exposed := expose(t, metrics)
	monitor := metrics.CommandMonitor("locks")
	for name, command := range map[string]bson.D{
		"find": {{Key: "find", Value: "locks"}}, "getMore": {{Key: "getMore", Value: int64(7)}, {Key: "collection", Value: "locks.wake"}},
		"ping": {{Key: "ping", Value: 1}}, "insert": {{Key: "insert", Value: "locks2"}},
	} {
		raw, err := bson.Marshal(command)
		require.NoError(t, err)
		monitor.Started(t.Context(), &event.CommandStartedEvent{CommandName: name, Command: raw})
	}
	exposed.wants(map[string]float64{"mongolock_commands_total{locks,find}": 1, "mongolock_commands_total{locks.wake,getMore}": 1})
	is := exposed.scrape()
	assert.NotContains(t, is, "mongolock_commands_total{,ping}")
	assert.NotContains(t, is, "mongolock_commands_total{locks2,insert}")
}

func TestOutcomesAreCounted(t *testing.T) {
	metrics := newCollector(t)
	exposed := expose(t, metrics)
	locks := mongolocktest.New(t, mongolock.WithObserver(metrics), quiet)
	ctx := t.Context()

	release := locks.Hold("k")
	_, err := locks.TryAcquire(ctx, "k")
	require.ErrorIs(t, err, mongolock.ErrHeld)
	_, err = locks.Acquire(ctx, "k", mongolock.MaxWait(50*time.Millisecond))
	require.ErrorIs(t, err, mongolock.ErrHeld)
	release()

	lost, err := locks.Acquire(ctx, "lost")
	require.NoError(t, err)
	locks.Lose("lost")
	assert.ErrorIs(t, lost.Release(), mongolock.ErrLost)
	limited, err := locks.Acquire(ctx, "limited", mongolock.MaxHold(time.Millisecond))
	require.NoError(t, err)
	<-limited.Done()
	_ = limited.Release()
	stalled, err := locks.Acquire(ctx, "stalled", mongolock.MaxStall(time.Millisecond))
	require.NoError(t, err)
	<-stalled.Done()
	_ = stalled.Release()
	broken, err := locks.Acquire(ctx, "broken")
	require.NoError(t, err)
	_, err = locks.Break(ctx, "broken", "because", -1)
	require.NoError(t, err)
	assert.ErrorIs(t, broken.Renew(ctx), mongolock.ErrBroken)
	_ = broken.Release()
	renewed, err := locks.Acquire(ctx, "renewed")
	require.NoError(t, err)
	require.NoError(t, errors.Join(renewed.Renew(ctx), renewed.Release()))

	locks.Fail(errors.New("down"))
	_, err = locks.TryAcquire(ctx, "unknown")
	require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
	exposed.wants(map[string]float64{"mongolock_cleanups{}": 1, "mongolock_acquire_duration_seconds{unknown}": 1})
	locks.Fail(nil)
	require.Eventually(t, func() bool { return locks.Stats().CleanUps == 0 }, 10*time.Second, time.Millisecond)

	exposed.wants(map[string]float64{
		"mongolock_acquire_duration_seconds{held}":    1,
		"mongolock_acquire_duration_seconds{timeout}": 1,
		"mongolock_hold_duration_seconds{lost}":       4,
		"mongolock_leases_lost_total{lost}":           1,
		"mongolock_leases_lost_total{max_hold}":       1,
		"mongolock_leases_lost_total{stalled}":        1,
		"mongolock_leases_lost_total{broken}":         1,
		"mongolock_leases_renewed_total{}":            1,
		"mongolock_cleanups{}":                        0,
	})
}

// The first loss must be an increase, and so there is a zero before it.
// One call renews one of two leases, and fails for the other, whose record is gone. A refresh of a path fails.
func TestRenewalsThatFailAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, in := newCollector(t), memstore.New()
		client := lab.Client(t, in, mongolock.WithObserver(metrics), mongolock.TTL(9*time.Second))
		for _, key := range []string{"a", "b"} {
			_, err := client.Acquire(t.Context(), key)
			require.NoError(t, err)
		}
		in.Delete("b")
		time.Sleep(3500 * time.Millisecond) // virtual
		tree, err := pathlock.New(pathlock.InMemory(), "files", pathlock.WithObserver(metrics))
		require.NoError(t, err)
		_, err = tree.Refresh(t.Context(), "unknown")
		require.ErrorIs(t, err, pathlock.ErrUnknownToken)
		registry, renewed := prometheus.NewRegistry(), map[string]float64{}
		require.NoError(t, registry.Register(metrics))
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.Metric {
				if f.GetName() == "mongolock_leases_renewed_total" {
					renewed[labels(m)] = value(f.GetType(), m)
				}
			}
		}
		assert.Equal(t, map[string]float64{"{}": 1, "{pathlock}": 0}, renewed)
		require.NoError(t, tree.Close())
		require.NoError(t, client.Close())
	})
}

func TestCountersOfAPackageExistBeforeTheyCount(t *testing.T) {
	metrics := newCollector(t)
	exposed := expose(t, metrics)
	lab.Client(t, memstore.New(), mongolock.WithObserver(metrics))
	answer, err := http.Get(exposed.url)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	for _, line := range []string{
		`mongolock_leases_lost_total{cause="lost",package="mongolock"} 0`,
		`mongolock_acquire_duration_seconds_count{outcome="failed",package="mongolock"} 0`,
		`mongolock_due_times_missed_total{package="mongolock"} 0`,
	} {
		assert.Contains(t, string(text), line)
	}
}

func TestKeysAreNoLabelsUnlessAFunctionNamesThem(t *testing.T) {
	for name, opts := range map[string][]promlock.Option{
		"without": nil,
		"with":    {promlock.KeyLabel(func(of mongolock.Operation) string { kind, _, _ := strings.Cut(of.Key, ":"); return kind })},
	} {
		t.Run(name, func(t *testing.T) {
			metrics := newCollector(t, opts...)
			exposed := expose(t, metrics)
			client := lab.Client(t, memstore.New(), mongolock.WithObserver(metrics))
			for i := range 10 {
				lease, err := client.Acquire(t.Context(), fmt.Sprintf("order:%d", i))
				require.NoError(t, err)
				require.NoError(t, lease.Release())
			}
			is := exposed.scrape()
			for metric := range is {
				assert.NotContains(t, metric, "order:")
			}
			want := map[string]float64{"mongolock_hold_duration_seconds{released}": 10}
			if opts != nil {
				want = map[string]float64{"mongolock_hold_duration_seconds{order,released}": 10, "mongolock_acquire_duration_seconds{order,granted}": 10}
			}
			exposed.wants(want)
		})
	}
}

func TestAKeyThatIsCutWithinARuneIsMended(t *testing.T) {
	cut := promlock.KeyLabel(func(of mongolock.Operation) string { return of.Key[:2] })
	require.NotPanics(t, func() { newCollector(t, cut).Begin(t.Context(), mongolock.Operation{Op: mongolock.OpHold, Key: "kö"}) })
	metrics := newCollector(t, cut)
	exposed := expose(t, metrics)
	client := lab.Client(t, memstore.New(), mongolock.WithObserver(metrics))
	lease, err := client.Acquire(t.Context(), "kö")
	require.NoError(t, err)
	require.NoError(t, lease.Release())
	exposed.wants(map[string]float64{"mongolock_hold_duration_seconds{k\uFFFD,released}": 1})
}

func TestEveryPackageIsCountedUnderItsName(t *testing.T) {
	metrics := newCollector(t)
	exposed := expose(t, metrics)
	client := lab.Client(t, memstore.New(), mongolock.WithObserver(metrics))
	require.NoError(t, leader.Run(t.Context(), client, "billing", func(context.Context, leader.Term) error {
		exposed.wants(map[string]float64{"mongolock_runs{leader}": 1, "mongolock_leases_held{}": 1})
		return nil
	}))
	exposed.wants(map[string]float64{"mongolock_runs{leader}": 0})

	jobs, err := schedule.InMemory(schedule.WithObserver(metrics), schedule.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, jobs.Add("report", schedule.Every(50*time.Millisecond), func(context.Context, schedule.Run) error {
		cancel()
		return nil
	}))
	require.NoError(t, jobs.Run(ctx))

	tree, err := pathlock.New(pathlock.InMemory(), "files", pathlock.WithObserver(metrics))
	require.NoError(t, err)
	defer tree.Close()
	l, err := tree.Lock(t.Context(), pathlock.Request{Path: "/a"})
	require.NoError(t, err)
	_, err = tree.Refresh(t.Context(), l.Token)
	require.NoError(t, err)
	require.NoError(t, tree.Release(t.Context(), l.Token))
	_, err = tree.Refresh(t.Context(), l.Token)
	require.ErrorIs(t, err, pathlock.ErrUnknownToken)

	exposed.wants(map[string]float64{
		"mongolock_hold_duration_seconds{released,leader}":       1,
		"mongolock_run_duration_seconds{granted,leader}":         1,
		"mongolock_hold_duration_seconds{released,schedule}":     1,
		"mongolock_run_duration_seconds{granted,schedule}":       1,
		"mongolock_acquire_duration_seconds{granted,pathlock}":   1,
		"mongolock_renew_duration_seconds{lost,pathlock}":        1,
		"mongolock_leases_renewed_total{pathlock}":               1,
		"mongolock_release_duration_seconds{granted,pathlock}":   1,
		"mongolock_clients{idle,pathlock}":                       1,
		"mongolock_clients{idle}":                                1,
		"mongolock_acquire_duration_seconds{granted,leader}":     1,
		"mongolock_release_duration_seconds{granted,leader}":     1,
		"mongolock_release_duration_seconds{granted,schedule}":   1,
		"mongolock_acquire_duration_seconds{granted,schedule}":   1,
		"mongolock_acquire_duration_seconds{cancelled,schedule}": 0,
	})
}

func TestSeveralClientsAreAddedUp(t *testing.T) {
	metrics := newCollector(t)
	exposed := expose(t, metrics)
	for i := range 3 {
		client := lab.Client(t, memstore.New(), mongolock.WithObserver(metrics))
		_, err := client.Acquire(t.Context(), "k")
		require.NoError(t, err)
		exposed.wants(map[string]float64{"mongolock_leases_held{}": float64(i + 1), "mongolock_clients{idle}": float64(i + 1)})
	}
}

func TestWrongOptionsAreRefusedByName(t *testing.T) {
	_, err := promlock.New(nil, promlock.KeyLabel(nil), promlock.Buckets("fly", 1), promlock.Buckets(mongolock.OpHold), promlock.Buckets(mongolock.OpRun, 2, 1))
	for _, want := range []string{"a nil Option", "KeyLabel(nil)", "Buckets(fly): no operation", "Buckets(hold): no bounds", "Buckets(run): the bounds must increase"} {
		assert.ErrorContains(t, err, want)
	}
}
