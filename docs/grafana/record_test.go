package grafana_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	promlock "github.com/mongolock/mongolock/adapters/prometheus"
)

// How often Prometheus reads the metrics, and for how long a recording goes on.
const (
	scrapeEvery = 15 * time.Second
	recordFor   = 30 * time.Minute
)

// A recording is what Prometheus would have stored of one process: a storage.Queryable.
type recording struct {
	series map[string]*recorded
	ends   time.Time
}

type recorded struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// record lets a trouble take its course in virtual time, under a scraper.
func record(t *testing.T, trouble func(l *lab)) *recording {
	t.Helper()
	metrics, err := promlock.New()
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := newLab(ctx, t, metrics)
	if trouble != nil {
		trouble(l)
	}
	l.health()
	r := &recording{series: make(map[string]*recorded)}
	for end := time.Now().Add(recordFor); time.Now().Before(end); time.Sleep(scrapeEvery) {
		families, err := registry.Gather()
		require.NoError(t, err)
		r.add(families)
	}
	r.ends = time.Now().Add(-scrapeEvery)
	cancel()
	l.end()
	return r
}

// onMongo is one scrape of a client on MongoDB that has sent nothing yet: the driver finds no
// server at that address.
func onMongo(t *testing.T) *recording {
	t.Helper()
	metrics, err := promlock.New()
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	driver, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	defer driver.Disconnect(t.Context())
	client, err := mongolock.New(driver.Database("db").Collection("locks"), mongolock.WithObserver(metrics))
	require.NoError(t, err)
	defer client.Close()
	families, err := registry.Gather()
	require.NoError(t, err)
	r := &recording{series: make(map[string]*recorded)}
	r.add(families)
	return r
}

// add stores what one scrape read.
func (r *recording) add(families []*dto.MetricFamily) {
	for _, f := range families {
		for _, m := range f.Metric {
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				r.sample(f.GetName()+"_count", m, float64(h.GetSampleCount()))
				r.sample(f.GetName()+"_sum", m, h.GetSampleSum())
				for _, b := range h.Bucket {
					r.sample(f.GetName()+"_bucket", m, float64(b.GetCumulativeCount()), "le", fmt.Sprint(b.GetUpperBound()))
				}
				r.sample(f.GetName()+"_bucket", m, float64(h.GetSampleCount()), "le", "+Inf")
			case dto.MetricType_COUNTER:
				r.sample(f.GetName(), m, m.GetCounter().GetValue())
			default:
				r.sample(f.GetName(), m, m.GetGauge().GetValue())
			}
		}
	}
}

func (r *recording) sample(name string, m *dto.Metric, v float64, more ...string) {
	all := append([]string{model.MetricNameLabel, name, "job", "program", "instance", "host-a:9090"}, more...)
	for _, l := range m.Label {
		all = append(all, l.GetName(), l.GetValue())
	}
	set := labels.FromStrings(all...)
	s := r.series[set.String()]
	if s == nil {
		s = &recorded{labels: set}
		r.series[set.String()] = s
	}
	s.samples = append(s.samples, number{time.Now().UnixMilli(), v})
}

// at evaluates an expression at a time of the recording.
func (r *recording) at(t *testing.T, expr string, when time.Time) promql.Vector {
	t.Helper()
	query, err := engine.NewInstantQuery(t.Context(), r, nil, expr, when)
	require.NoError(t, err)
	defer query.Close()
	result := query.Exec(t.Context())
	require.NoError(t, result.Err, expr)
	vector, err := result.Vector()
	require.NoError(t, err)
	return slices.Clone(vector)
}

var engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Hour, LookbackDelta: 5 * time.Minute})

// Querier implements storage.Queryable.
func (r *recording) Querier(int64, int64) (storage.Querier, error) { return querier{r}, nil }

type querier struct{ *recording }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &seriesSet{at: -1}
	for _, s := range q.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			found.all = append(found.all, storage.NewListSeries(s.labels, s.samples))
		}
	}
	slices.SortFunc(found.all, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return found
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }

type seriesSet struct {
	all []storage.Series
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// A number is one sample.
type number struct {
	t int64
	v float64
}

func (n number) T() int64                      { return n.t }
func (n number) F() float64                    { return n.v }
func (n number) H() *histogram.Histogram       { return nil }
func (n number) FH() *histogram.FloatHistogram { return nil }
func (n number) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (n number) Copy() chunks.Sample           { return n }
