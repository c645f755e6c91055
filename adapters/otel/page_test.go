package otellock_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	otellock "github.com/mongolock/mongolock/adapters/otel"
)

// An inventory is a MeterProvider that notes the kind and the unit of each instrument.
type inventory struct {
	noop.MeterProvider
	all map[string]string
}

func (i inventory) Meter(string, ...metric.MeterOption) metric.Meter { return meter{all: i.all} }

type meter struct {
	noop.Meter
	all map[string]string
}

func (m meter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	m.all[name] = "histogram, " + metric.NewFloat64HistogramConfig(opts...).Unit()
	return m.Meter.Float64Histogram(name, opts...)
}

func (m meter) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	m.all[name] = "counter, " + metric.NewInt64CounterConfig(opts...).Unit()
	return m.Meter.Int64Counter(name, opts...)
}

func (m meter) Int64UpDownCounter(name string, opts ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	m.all[name] = "up-down counter, " + metric.NewInt64UpDownCounterConfig(opts...).Unit()
	return m.Meter.Int64UpDownCounter(name, opts...)
}

func (m meter) Int64ObservableUpDownCounter(name string, opts ...metric.Int64ObservableUpDownCounterOption) (metric.Int64ObservableUpDownCounter, error) {
	m.all[name] = "up-down counter, " + metric.NewInt64ObservableUpDownCounterConfig(opts...).Unit()
	return m.Meter.Int64ObservableUpDownCounter(name, opts...)
}

func (m meter) Int64ObservableGauge(name string, opts ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	m.all[name] = "gauge, " + metric.NewInt64ObservableGaugeConfig(opts...).Unit()
	return m.Meter.Int64ObservableGauge(name, opts...)
}

func (m meter) Float64ObservableGauge(name string, opts ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	m.all[name] = "gauge, " + metric.NewFloat64ObservableGaugeConfig(opts...).Unit()
	return m.Meter.Float64ObservableGauge(name, opts...)
}

// The page is the README of this folder.
func TestThePageListsEveryMetricAndAttribute(t *testing.T) {
	is := inventory{all: make(map[string]string)}
	_, err := otellock.New(otellock.WithMeterProvider(is))
	require.NoError(t, err)
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	rows := make(map[string]string) // the second column
	for line := range strings.Lines(string(text)) {
		if columns := strings.Split(line, " | "); strings.HasPrefix(line, "| `lock.") || strings.HasPrefix(line, "| `error.") {
			rows[strings.Trim(columns[0], "| `")] = columns[1]
		}
	}
	for name, kind := range is.all {
		assert.Equal(t, kind, rows[name], name)
	}
	attributes := []attribute.Key{
		otellock.AttrSystem, otellock.AttrOperation, otellock.AttrOutcome, otellock.AttrKey, otellock.AttrMode, otellock.AttrToken,
		otellock.AttrCount, otellock.AttrLossCause, otellock.AttrState, otellock.AttrJob, otellock.AttrFeedState, otellock.AttrCollection, otellock.AttrCommand, otellock.AttrErrorType,
	}
	for _, a := range attributes {
		assert.Contains(t, rows, string(a))
	}
	assert.Len(t, rows, len(is.all)+len(attributes), "names on the page")
}
