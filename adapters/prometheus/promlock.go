// Package promlock makes metrics for Prometheus of the operations of package mongolock and the
// packages built on it.
//
//	metrics, err := promlock.New()
//	prometheus.MustRegister(metrics)
//	client, err := mongolock.New(coll, mongolock.WithObserver(metrics))
//
// One Collector is enough for a process: it takes any number of clients, schedulers, trees and
// locks on documents, and adds them up by package. The leases that a client holds are read when
// the metrics are scraped; operations are counted as they happen.
//
// Keys are not labels, because a program may have any number of them. [KeyLabel] maps the keys
// that you want to see to a few names of yours.
//
// The commands that the locks send are counted by a monitor of the driver: [Collector.CommandMonitor].
//
// The README lists the metrics. docs/grafana has a dashboard and alert rules for
// them.
package promlock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongolock/mongolock"
)

// A Collector is an observer of clients and a collector of metrics. It is safe for
// concurrent use.
type Collector struct {
	key func(mongolock.Operation) string // nil: no label

	durations map[mongolock.Op]*prometheus.HistogramVec
	lost      *prometheus.CounterVec
	renewed   *prometheus.CounterVec
	handoffs  *prometheus.CounterVec
	missed    *prometheus.CounterVec
	runs      *prometheus.GaugeVec
	commands  *prometheus.CounterVec

	known sync.Map // packages whose counters exist

	mu      sync.Mutex // protects what follows
	sources map[*source]bool
	ended   map[string]bool // packages of which a client was closed
}

// A source is an open client, or something like it.
type source struct{ stats func() mongolock.Stats }

// An Option changes a Collector.
type Option interface{ apply(*config) error }

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

type config struct {
	key     func(mongolock.Operation) string
	buckets map[mongolock.Op][]float64
}

// KeyLabel adds the label key to the metrics of acquisitions, waits, holds, lost leases, runs and
// missed due times. Its value is what name returns for the operation. That should be one of few values,
// such as the part of the key before an ID. Each value costs some sixty time series.
func KeyLabel(name func(mongolock.Operation) string) Option {
	return option(func(c *config) error {
		if c.key = name; name == nil {
			return errors.New("promlock: KeyLabel(nil): must not be nil")
		}
		return nil
	})
}

// Buckets sets the upper bounds, in seconds, of the histogram of an operation's duration.
func Buckets(op mongolock.Op, bounds ...float64) Option {
	return option(func(c *config) error {
		_, known := c.buckets[op]
		switch {
		case !known:
			return errors.New("promlock: Buckets(" + string(op) + "): no operation with a duration")
		case len(bounds) == 0:
			return errors.New("promlock: Buckets(" + string(op) + "): no bounds")
		}
		for i := 1; i < len(bounds); i++ {
			if bounds[i] <= bounds[i-1] {
				return errors.New("promlock: Buckets(" + string(op) + "): the bounds must increase")
			}
		}
		c.buckets[op] = bounds
		return nil
	})
}

// The default bounds: of operations that take round trips and waits, and of work.
var (
	short = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	long  = []float64{.01, .1, 1, 10, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}
)

// New makes a Collector. All options are checked together.
func New(opts ...Option) (*Collector, error) {
	conf := config{buckets: map[mongolock.Op][]float64{
		mongolock.OpAcquire: short, mongolock.OpWait: short, mongolock.OpRenew: short, mongolock.OpRelease: short, mongolock.OpTransfer: short,
		mongolock.OpHold: long, mongolock.OpRun: long,
	}}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("promlock: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(&conf))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c := &Collector{
		key:       conf.key,
		durations: make(map[mongolock.Op]*prometheus.HistogramVec),
		sources:   make(map[*source]bool),
		ended:     make(map[string]bool),
	}
	for op, bounds := range conf.buckets {
		c.durations[op] = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mongolock_" + string(op) + "_duration_seconds", Help: helps[op], Buckets: bounds,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}, c.labels(op, "outcome"))
	}
	c.lost = counter("leases_lost", "Leases that ended and that their holders did not end, by cause: max_hold, stalled, broken, or lost.", c.labels(mongolock.OpHold, "cause"))
	c.renewed = counter("leases_renewed", "Renewals of single leases that were granted.", []string{"package"})
	c.handoffs = counter("handoffs", "Attempts to hand a lease over to a waiter of the same process, or to resume one.", []string{"package", "outcome"})
	c.missed = counter("due_times_missed", "Due times of jobs that were dropped, and will not run.", c.labels(mongolock.OpMiss))
	c.runs = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "mongolock_runs", Help: "Functions of jobs, terms and once that run now. A leader has one, of package leader.",
	}, c.labels(mongolock.OpRun))
	c.commands = counter("commands", "Commands to the database, by collection and name: see CommandMonitor.", []string{"collection", "command"})
	return c, nil
}

var helps = map[mongolock.Op]string{
	mongolock.OpAcquire:  "How long calls took that ask for a key, waits included.",
	mongolock.OpWait:     "How long calls waited that did not get their key at once.",
	mongolock.OpHold:     "How long leases were held that have ended.",
	mongolock.OpRenew:    "How long calls took that renew leases, one or several.",
	mongolock.OpRelease:  "How long attempts took to give a lease back.",
	mongolock.OpTransfer: "How long attempts took to hand a lease over, or to resume one.",
	mongolock.OpRun:      "How long the functions of jobs, terms and once took.",
}

func counter(name, help string, labels []string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mongolock_" + name + "_total", Help: help}, labels)
}

// hasKey reports whether the metrics of an operation have the label key, if any do.
func hasKey(op mongolock.Op) bool {
	switch op {
	case mongolock.OpAcquire, mongolock.OpWait, mongolock.OpHold, mongolock.OpRun, mongolock.OpMiss:
		return true
	}
	return false
}

func (c *Collector) labels(op mongolock.Op, more ...string) []string {
	all := append([]string{"package"}, more...)
	if c.key != nil && hasKey(op) {
		all = append(all, "key")
	}
	return all
}

// values returns the values of the labels of an operation's metrics.
func (c *Collector) values(of mongolock.Operation, more ...string) []string {
	all := append([]string{of.Package}, more...)
	if c.key != nil && hasKey(of.Op) {
		all = append(all, strings.ToValidUTF8(c.key(of), "\uFFFD")) // other text would be a panic of the registry's
	}
	return all
}

// Begin implements mongolock.Observer.
func (c *Collector) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	c.meet(of)
	if of.Op == mongolock.OpRun {
		c.runs.WithLabelValues(c.values(of)...).Inc()
	}
	began := time.Now()
	return ctx, func(out mongolock.Outcome) {
		outcome := mongolock.OutcomeOf(out.Err)
		if d := c.durations[of.Op]; d != nil {
			d.WithLabelValues(c.values(of, outcome)...).Observe(time.Since(began).Seconds())
		}
		switch of.Op {
		case mongolock.OpHold:
			if outcome == mongolock.OutcomeLost {
				c.lost.WithLabelValues(c.values(of, cause(out.Err))...).Inc()
			}
		case mongolock.OpRenew:
			c.renewed.WithLabelValues(of.Package).Add(float64(out.Count))
		case mongolock.OpTransfer:
			c.handoffs.WithLabelValues(of.Package, outcome).Inc()
		case mongolock.OpRun:
			c.runs.WithLabelValues(c.values(of)...).Dec()
		case mongolock.OpMiss:
			c.missed.WithLabelValues(c.values(of)...).Add(float64(out.Count))
		}
	}
}

// The causes of lost leases.
const (
	causeMaxHold = "max_hold"
	causeStalled = "stalled"
	causeBroken  = "broken"
	causeLost    = "lost"
)

func cause(err error) string {
	switch {
	case errors.Is(err, mongolock.ErrMaxHold):
		return causeMaxHold
	case errors.Is(err, mongolock.ErrStalled):
		return causeStalled
	case errors.Is(err, mongolock.ErrBroken):
		return causeBroken
	}
	return causeLost
}
