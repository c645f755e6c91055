package otellock_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/mongolock/mongolock"
	otellock "github.com/mongolock/mongolock/adapters/otel"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

var quiet = mongolock.WithLogger(slog.New(slog.DiscardHandler))

// A lab is an Observer whose spans and metrics a test can read.
type lab struct {
	*testing.T
	*otellock.Observer
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer
	reader *metric.ManualReader
}

func newLab(t *testing.T, opts ...otellock.Option) *lab {
	t.Helper()
	l := &lab{T: t, spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(l.spans))
	l.tracer = tracers.Tracer("the program")
	meters := metric.NewMeterProvider(metric.WithReader(l.reader))
	var err error
	l.Observer, err = otellock.New(append([]otellock.Option{otellock.WithTracerProvider(tracers), otellock.WithMeterProvider(meters)}, opts...)...)
	require.NoError(t, err)
	return l
}

// span returns the one span of that name, as soon as it is there: some are ended aside.
func (l *lab) span(name string) tracetest.SpanStub {
	l.Helper()
	var found []tracetest.SpanStub
	assert.Eventually(l, func() bool {
		found = slices.DeleteFunc(l.spans.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name != name })
		return len(found) > 0
	}, 10*time.Second, time.Millisecond)
	require.Len(l, found, 1, "spans named %q", name)
	return found[0]
}

func attributes(s tracetest.SpanStub) map[attribute.Key]any {
	all := make(map[attribute.Key]any)
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.AsInterface()
	}
	return all
}

// metrics reads all metrics that are not zero, by name and the values of their attributes.
// Of a histogram it has the count.
func (l *lab) metrics() map[string]float64 {
	l.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(l, l.reader.Collect(context.Background(), &data))
	all := make(map[string]float64)
	add := func(name string, attrs attribute.Set, v float64) {
		var values []string
		for _, a := range attrs.ToSlice() {
			if a.Value.String() != "mongolock" { // the system of most
				values = append(values, a.Value.String())
			}
		}
		if v != 0 {
			all[name+"{"+strings.Join(values, ",")+"}"] = v
		}
	}
	for _, scope := range data.ScopeMetrics {
		assert.Equal(l, otellock.Scope, scope.Scope.Name)
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Count))
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			}
		}
	}
	return all
}

func (l *lab) wants(want map[string]float64) {
	l.Helper()
	is := l.metrics()
	for name, v := range want {
		assert.InDelta(l, v, is[name], 0, "%s; there are %v", name, is)
	}
}

func (l *lab) client(s store.Store, opts ...mongolock.ClientOption) *mongolock.Client {
	l.Helper()
	client, err := mongolock.NewWithStore(s, append(opts, quiet)...)
	require.NoError(l, err)
	return client
}

func TestAnAcquisitionsWaitIsWithinItsSpanAndItsHoldIsLinkedToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s := memstore.New()
		client, rival := l.client(s, mongolock.WithObserver(l)), l.client(s)
		theirs, err := rival.Acquire(t.Context(), "k")
		require.NoError(t, err)
		time.AfterFunc(5*time.Second, func() { _ = theirs.Release() })

		ctx, request := l.tracer.Start(t.Context(), "POST /report")
		lease, err := client.Acquire(ctx, "k")
		require.NoError(t, err)
		time.Sleep(15 * time.Second) // virtual: with a renewal after ten
		require.NoError(t, lease.Release())
		request.End()

		root, acquire, wait, hold, release, renew := l.span("POST /report"), l.span("lock acquire"), l.span("lock wait"), l.span("lock hold"), l.span("lock release"), l.span("lock renew")
		assert.Equal(t, root.SpanContext.SpanID(), acquire.Parent.SpanID(), "the acquisition is within the request")
		assert.Equal(t, acquire.SpanContext.SpanID(), wait.Parent.SpanID(), "the wait is within the acquisition")
		assert.Equal(t, root.SpanContext.SpanID(), hold.Parent.SpanID(), "the hold is within the request, beside the acquisition")
		require.Len(t, hold.Links, 1)
		assert.Equal(t, acquire.SpanContext.SpanID(), hold.Links[0].SpanContext.SpanID())
		assert.Equal(t, hold.SpanContext.SpanID(), release.Parent.SpanID())
		assert.False(t, renew.Parent.IsValid(), "a renewal is a trace of its own")
		require.Len(t, renew.Links, 1)
		assert.Equal(t, hold.SpanContext.SpanID(), renew.Links[0].SpanContext.SpanID())
		assert.Equal(t, 5*time.Second, acquire.EndTime.Sub(acquire.StartTime))
		assert.Equal(t, 15*time.Second, hold.EndTime.Sub(hold.StartTime))

		assert.Equal(t, map[attribute.Key]any{
			otellock.AttrSystem: "mongolock", otellock.AttrOperation: "acquire", otellock.AttrMode: "exclusive",
			otellock.AttrKey: "k", otellock.AttrOutcome: "granted", otellock.AttrToken: lease.Token(),
		}, attributes(acquire))
		assert.Equal(t, "released", attributes(hold)[otellock.AttrOutcome])
		assert.Equal(t, int64(1), attributes(renew)[otellock.AttrCount])
		require.NoError(t, errors.Join(client.Close(), rival.Close()))
	})
}

func TestTheCommandsOfALockAreCounted(t *testing.T) {
	for name, collections := range map[string][]string{"its collection": {"locks"}, "all": nil} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			monitor := l.CommandMonitor(collections...)
			for name, command := range map[string]bson.D{
				"find": {{Key: "find", Value: "locks"}}, "getMore": {{Key: "getMore", Value: int64(7)}, {Key: "collection", Value: "locks.wake"}},
				"insert": {{Key: "insert", Value: "locks2"}},
			} {
				raw, err := bson.Marshal(command)
				require.NoError(t, err)
				monitor.Started(t.Context(), &event.CommandStartedEvent{CommandName: name, Command: raw})
			}
			others := 0.0
			if collections == nil {
				others = 1
			}
			l.wants(map[string]float64{"lock.commands{locks,find}": 1, "lock.commands{locks.wake,getMore}": 1, "lock.commands{locks2,insert}": others})
		})
	}
}

func TestAHandOverIsWithinTheAcquisitionThatItServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		client := l.client(memstore.New(), mongolock.WithObserver(l))
		first, err := client.Acquire(t.Context(), "k")
		require.NoError(t, err)
		l.spans.Reset()
		ctx, request := l.tracer.Start(t.Context(), "the next request")
		time.AfterFunc(time.Second, func() { _ = first.Release() })
		next, err := client.Acquire(ctx, "k")
		require.NoError(t, err)
		synctest.Wait()
		l.wants(map[string]float64{"lock.leases{held}": 1})
		assert.Equal(t, l.span("lock acquire").SpanContext.SpanID(), l.span("lock transfer").Parent.SpanID())
		l.spans.Reset()
		require.NoError(t, next.Release())
		request.End()
		assert.Equal(t, l.span("the next request").SpanContext.SpanID(), l.span("lock hold").Parent.SpanID())
		require.NoError(t, client.Close())
	})
}

func TestARenewalOfSeveralLeasesIsOneSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		client := l.client(memstore.New(), mongolock.WithObserver(l))
		for _, key := range []string{"a", "b", "c"} {
			_, err := client.Acquire(t.Context(), key)
			require.NoError(t, err)
		}
		time.Sleep(11 * time.Second) // virtual: a renewal is due after ten
		renew := l.span("lock renew")
		assert.False(t, renew.Parent.IsValid())
		assert.Empty(t, renew.Links)
		assert.Equal(t, map[attribute.Key]any{
			otellock.AttrSystem: "mongolock", otellock.AttrOperation: "renew", otellock.AttrOutcome: "granted", otellock.AttrCount: int64(3),
		}, attributes(renew))
		l.wants(map[string]float64{"lock.leases.renewed{}": 3, "lock.operation.duration{renew,granted}": 1, "lock.leases{held}": 3})
		require.NoError(t, client.Close())
		hold := l.spans.GetSpans()[len(l.spans.GetSpans())-1]
		assert.False(t, hold.Parent.IsValid() && hold.Name == "lock hold", "without a caller's span a hold is a root")
	})
}

// One call renews one of two leases, and fails for the other, whose record is gone.
func TestALeaseThatIsRenewedBesideOneThatIsLostIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, in := newLab(t), memstore.New()
		client := l.client(in, mongolock.WithObserver(l))
		for _, key := range []string{"a", "b"} {
			_, err := client.Acquire(t.Context(), key)
			require.NoError(t, err)
		}
		in.Delete("b")
		time.Sleep(11 * time.Second) // virtual: a renewal is due after ten
		l.wants(map[string]float64{"lock.leases.renewed{}": 1})
		require.NoError(t, client.Close())
	})
}

func TestARefusalIsNoErrorAndALossIs(t *testing.T) {
	l := newLab(t)
	locks := mongolocktest.New(t, mongolock.WithObserver(l), quiet)
	release := locks.Hold("k")
	_, err := locks.TryAcquire(t.Context(), "k")
	require.ErrorIs(t, err, mongolock.ErrHeld)
	acquire := l.span("lock acquire")
	assert.Equal(t, codes.Unset, acquire.Status.Code)
	assert.Equal(t, "held", attributes(acquire)[otellock.AttrOutcome])
	assert.NotContains(t, attributes(acquire), otellock.AttrErrorType)
	release()
	l.spans.Reset()

	lost, err := locks.Acquire(t.Context(), "lost")
	require.NoError(t, err)
	locks.Lose("lost")
	_ = lost.Release()
	hold := l.span("lock hold")
	assert.Equal(t, codes.Error, hold.Status.Code)
	assert.Equal(t, "lost", attributes(hold)[otellock.AttrErrorType])
	assert.NotEmpty(t, hold.Status.Description)
	l.wants(map[string]float64{"lock.leases.lost{lost}": 1, "lock.hold.duration{lost}": 1})
	l.spans.Reset()

	locks.Fail(errors.New("down"))
	_, err = locks.TryAcquire(t.Context(), "unknown")
	require.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
	l.wants(map[string]float64{"lock.cleanups{}": 1, "lock.operation.duration{acquire,unknown}": 1})
	locks.Fail(nil)
	assert.Equal(t, codes.Error, l.span("lock acquire").Status.Code)
}

func TestNumbersAreReadWhenMetricsAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.wants(nil) // nothing is observed, and nothing fails
		s := memstore.New()
		client, rival := l.client(s, mongolock.WithObserver(l)), l.client(s)
		theirs, err := rival.Acquire(t.Context(), "k")
		require.NoError(t, err)
		other := l.client(s)
		for _, c := range []*mongolock.Client{other, client} {
			go func() {
				lease, err := c.Acquire(t.Context(), "k")
				assert.NoError(t, err)
				_ = lease.Release()
			}()
			synctest.Wait()
		}
		time.Sleep(10 * time.Second) // virtual: the waiter waits
		l.wants(map[string]float64{"lock.waiters{}": 1, "lock.line.keys{}": 1, "lock.line.ahead{}": 1, "lock.wait.oldest{}": 10, "lock.clients{live}": 1})
		require.NoError(t, theirs.Release())
		time.Sleep(time.Second) // virtual: until it was served
		l.wants(map[string]float64{"lock.waiters{}": 0, "lock.line.keys{}": 0, "lock.line.ahead{}": 0, "lock.wait.duration{granted}": 1})
		require.NoError(t, errors.Join(client.Close(), rival.Close(), other.Close()))
		l.wants(map[string]float64{"lock.clients{live}": 0})
	})
}

func TestEveryPackageIsASystem(t *testing.T) {
	l := newLab(t)
	client := l.client(memstore.New(), mongolock.WithObserver(l))
	defer client.Close()
	require.NoError(t, leader.Run(t.Context(), client, "billing", func(context.Context, leader.Term) error {
		l.wants(map[string]float64{"lock.runs{leader}": 1})
		return nil
	}))
	l.wants(map[string]float64{"lock.runs{leader}": 0})
	jobs, err := schedule.InMemory(schedule.WithObserver(l), schedule.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, jobs.Add("report", schedule.Every(50*time.Millisecond), func(ctx context.Context, _ schedule.Run) error {
		assert.True(t, trace.SpanFromContext(ctx).SpanContext().IsValid(), "the job's own spans are within the run's")
		cancel()
		return nil
	}))
	require.NoError(t, jobs.Run(ctx))
	tree, err := pathlock.New(pathlock.InMemory(), "files", pathlock.WithObserver(l))
	require.NoError(t, err)
	defer tree.Close()
	_, err = tree.Lock(t.Context(), pathlock.Request{Path: "/a"})
	require.NoError(t, err)
	l.wants(map[string]float64{
		"lock.run.duration{granted,leader}":                 1,
		"lock.hold.duration{released,leader}":               1,
		"lock.run.duration{granted,schedule}":               1,
		"lock.operation.duration{acquire,granted,pathlock}": 1,
		"lock.clients{idle,pathlock}":                       1,
	})
}

func TestKeysAreOnSpansAndNotOnMetricsUnlessMapped(t *testing.T) {
	kind := func(of mongolock.Operation) string { kind, _, _ := strings.Cut(of.Key, ":"); return kind }
	none := func(mongolock.Operation) string { return "" }
	for name, c := range map[string]struct {
		opts   []otellock.Option
		span   any
		metric string
	}{
		"by default": {nil, "order:17", "lock.hold.duration{released}"},
		"mapped":     {[]otellock.Option{otellock.SpanKey(kind), otellock.MetricKey(kind)}, "order", "lock.hold.duration{order,released}"},
		"left out":   {[]otellock.Option{otellock.SpanKey(none)}, nil, "lock.hold.duration{released}"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, c.opts...)
			client := l.client(memstore.New(), mongolock.WithObserver(l))
			defer client.Close()
			lease, err := client.Acquire(t.Context(), "order:17")
			require.NoError(t, err)
			require.NoError(t, lease.Release())
			assert.Equal(t, c.span, attributes(l.span("lock hold"))[otellock.AttrKey])
			l.wants(map[string]float64{c.metric: 1})
		})
	}
}

// What Prometheus names by key (promlock.KeyLabel), OpenTelemetry names by key.
func TestTheSameMetricsHaveTheKeyAsThoseOfPrometheus(t *testing.T) {
	l := newLab(t, otellock.MetricKey(func(of mongolock.Operation) string { return of.Key }))
	for _, op := range []mongolock.Op{mongolock.OpAcquire, mongolock.OpWait, mongolock.OpHold, mongolock.OpRun, mongolock.OpMiss, mongolock.OpRenew, mongolock.OpRelease, mongolock.OpTransfer} {
		_, end := l.Begin(t.Context(), mongolock.Operation{Op: op, Package: "mongolock", Key: "k"})
		if op == mongolock.OpRun {
			l.wants(map[string]float64{"lock.runs{k}": 1})
		}
		end(mongolock.Outcome{Err: mongolock.ErrLost, Count: 1})
	}
	l.wants(map[string]float64{
		"lock.operation.duration{k,acquire,lost}": 1, "lock.wait.duration{k,lost}": 1, "lock.hold.duration{k,lost}": 1, "lock.run.duration{k,lost}": 1,
		"lock.leases.lost{k,lost}": 1, "lock.due_times.missed{k}": 1, "lock.runs{k}": 0,
		"lock.operation.duration{renew,lost}": 1, "lock.operation.duration{release,lost}": 1, "lock.operation.duration{transfer,lost}": 1,
	})
}

func TestAKeyThatIsCutWithinARuneIsMended(t *testing.T) {
	cut := func(of mongolock.Operation) string { return of.Key[:2] }
	l := newLab(t, otellock.SpanKey(cut), otellock.MetricKey(cut))
	_, end := l.Begin(t.Context(), mongolock.Operation{Op: mongolock.OpWait, Package: "mongolock", Key: "kö"})
	end(mongolock.Outcome{})
	l.wants(map[string]float64{"lock.wait.duration{k\uFFFD,granted}": 1})
	assert.Equal(t, "k\uFFFD", attributes(l.span("lock wait"))[otellock.AttrKey])
}

// The errors of this library, and those of databases, name the key.
func TestAnErrorDoesNotTellAKeyThatSpanKeyLeavesOut(t *testing.T) {
	locks := mongolocktest.New(t)
	locks.Fail(errors.New("the database is away"))
	_, err := locks.TryAcquire(t.Context(), "user:jane")
	require.ErrorContains(t, err, "user:jane")
	for want, opts := range map[string][]otellock.Option{
		err.Error():              nil,
		mongolock.OutcomeUnknown: {otellock.SpanKey(func(mongolock.Operation) string { return "user" })},
	} {
		l := newLab(t, opts...)
		_, end := l.Begin(t.Context(), mongolock.Operation{Op: mongolock.OpAcquire, Package: "mongolock", Key: "user:jane"})
		end(mongolock.Outcome{Err: err})
		assert.Equal(t, want, l.span("lock acquire").Status.Description)
	}
}

func TestAnErrorThatIsNotUTF8IsMended(t *testing.T) {
	l := newLab(t)
	_, end := l.Begin(t.Context(), mongolock.Operation{Op: mongolock.OpRun, Package: "schedule", Key: "import"})
	end(mongolock.Outcome{Err: errors.New("no such file: k\xf6ln.csv")})
	assert.Equal(t, "no such file: k\uFFFDln.csv", l.span("lock run").Status.Description)
}

func TestALeadersTermIsATraceOfItsOwnAndSoIsEachPieceOfItsWork(t *testing.T) {
	l := newLab(t)
	client := l.client(memstore.New(), mongolock.WithObserver(l))
	defer client.Close()
	ctx, program := l.tracer.Start(t.Context(), "the program")
	require.NoError(t, leader.Run(ctx, client, "billing", func(ctx context.Context, _ leader.Term) error {
		_, work := l.tracer.Start(ctx, "a piece of work")
		work.End()
		return nil
	}))
	program.End()
	run, work := l.span("lock run"), l.span("a piece of work")
	assert.False(t, run.Parent.IsValid(), "the term is within another trace")
	require.Len(t, run.Links, 1)
	assert.Equal(t, program.SpanContext().SpanID(), run.Links[0].SpanContext.SpanID())
	assert.False(t, work.Parent.IsValid(), "the work is within the trace of the term")
	assert.Equal(t, "billing", attributes(run)[otellock.AttrKey])
}

func TestWrongOptionsAreRefusedByName(t *testing.T) {
	_, err := otellock.New(nil, otellock.WithTracerProvider(nil), otellock.WithMeterProvider(nil), otellock.SpanKey(nil), otellock.MetricKey(nil))
	for _, want := range []string{"a nil Option", "WithTracerProvider(nil)", "WithMeterProvider(nil)", "SpanKey(nil)", "MetricKey(nil)"} {
		assert.ErrorContains(t, err, want)
	}
}
