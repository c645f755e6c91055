package otellock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

// The bounds of histograms: of operations that take round trips and waits, and of work.
var (
	short = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	long  = []float64{.01, .1, 1, 10, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}
)

// meters holds the instruments.
type meters struct {
	operation, wait, hold, run  metric.Float64Histogram
	lost, renewed, missed       metric.Int64Counter
	commands                    metric.Int64Counter
	runs                        metric.Int64UpDownCounter
	leases, waiters, candidates metric.Int64ObservableUpDownCounter
	inLine, cleanUps, clients   metric.Int64ObservableUpDownCounter
	ahead                       metric.Int64ObservableGauge
	oldestWait, oldestRenewal   metric.Float64ObservableGauge
	signals
}

// measure makes the instruments.
func (o *Observer) measure(m metric.Meter) error {
	var errs []error
	histogram := func(name, help string, bounds []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithDescription(help), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	counter := func(name, unit, help string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(help), metric.WithUnit(unit))
		errs = append(errs, err)
		return c
	}
	number := func(name, unit, help string) metric.Int64ObservableUpDownCounter {
		n, err := m.Int64ObservableUpDownCounter(name, metric.WithDescription(help), metric.WithUnit(unit))
		errs = append(errs, err)
		return n
	}
	age := func(name, help string) metric.Float64ObservableGauge {
		g, err := m.Float64ObservableGauge(name, metric.WithDescription(help), metric.WithUnit("s"))
		errs = append(errs, err)
		return g
	}
	most := func(name, unit, help string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithDescription(help), metric.WithUnit(unit))
		errs = append(errs, err)
		return g
	}
	o.operation = histogram("lock.operation.duration", "How long operations took: acquire (waits included), renew, release, transfer.", short)
	o.wait = histogram("lock.wait.duration", "How long calls waited that did not get their key at once.", short)
	o.hold = histogram("lock.hold.duration", "How long leases were held that have ended.", long)
	o.run = histogram("lock.run.duration", "How long the functions of jobs, terms and once took.", long)
	o.lost = counter("lock.leases.lost", "{lease}", "Leases that ended and that their holders did not end.")
	o.renewed = counter("lock.leases.renewed", "{lease}", "Renewals of single leases that were granted.")
	o.missed = counter("lock.due_times.missed", "{due_time}", "Due times of jobs that were dropped, and will not run.")
	o.commands = counter("lock.commands", "{command}", "Commands to the database: see CommandMonitor.")
	var err error
	o.runs, err = m.Int64UpDownCounter("lock.runs", metric.WithDescription("Functions of jobs, terms and once that run now. A leader has one, of system leader."), metric.WithUnit("{run}"))
	errs = append(errs, err)
	o.leases = number("lock.leases", "{lease}", "Leases that are held, and those that have ended and are not given back yet.")
	o.waiters = number("lock.waiters", "{call}", "Calls of Acquire that have not been answered, candidates for leader aside.")
	o.candidates = number("lock.candidates", "{candidate}", "Candidates that wait to be elected.")
	o.inLine = number("lock.line.keys", "{key}", "Keys in whose line this process stands, candidates aside.")
	o.ahead = most("lock.line.ahead", "{waiter}", "The most waiters that come before this process in the line of one key.")
	o.cleanUps = number("lock.cleanups", "{claim}", "Claims of unknown outcome that are being cleaned up.")
	o.clients = number("lock.clients", "{client}", "Clients, schedulers and trees that are open.")
	o.oldestWait = age("lock.wait.oldest", "How long the longest waiter has waited, candidates aside.")
	o.oldestRenewal = age("lock.renewal.oldest", "How long ago the lease was renewed that has waited longest for its next renewal.")
	if err := errors.Join(append(errs, o.signals.make(m))...); err != nil {
		return err
	}
	_, err = m.RegisterCallback(o.observe, o.leases, o.waiters, o.candidates, o.inLine, o.ahead, o.cleanUps, o.clients,
		o.oldestWait, o.oldestRenewal)
	return err
}

// ended records an operation.
func (o *Observer) ended(ctx context.Context, of mongolock.Operation, out mongolock.Outcome, took time.Duration) {
	system, named := AttrSystem.String(of.Package), metric.WithAttributes(o.named(of)...)
	outcome := mongolock.OutcomeOf(out.Err)
	attrs := append(o.named(of), AttrOutcome.String(outcome))
	var histogram metric.Float64Histogram
	switch of.Op {
	case mongolock.OpAcquire, mongolock.OpRelease, mongolock.OpTransfer:
		histogram, attrs = o.operation, append(attrs, AttrOperation.String(string(of.Op)))
	case mongolock.OpRenew:
		histogram, attrs = o.operation, append(attrs, AttrOperation.String(string(of.Op)))
		o.renewed.Add(ctx, int64(out.Count), metric.WithAttributes(system))
	case mongolock.OpWait:
		histogram = o.wait
	case mongolock.OpHold:
		histogram = o.hold
		if outcome == mongolock.OutcomeLost {
			o.lost.Add(ctx, 1, named, metric.WithAttributes(AttrLossCause.String(cause(out.Err))))
		}
	case mongolock.OpRun:
		histogram = o.run
		o.runs.Add(ctx, -1, named)
	case mongolock.OpMiss:
		o.missed.Add(ctx, int64(out.Count), named)
		return
	default: // of a newer version
		return
	}
	histogram.Record(ctx, took.Seconds(), metric.WithAttributes(attrs...))
}

// named returns the package of an operation, and its key if its metrics have one.
func (o *Observer) named(of mongolock.Operation) []attribute.KeyValue {
	all := []attribute.KeyValue{AttrSystem.String(of.Package)}
	if o.metricKey == nil {
		return all
	}
	switch of.Op {
	case mongolock.OpAcquire, mongolock.OpWait, mongolock.OpHold, mongolock.OpRun, mongolock.OpMiss:
		all = append(all, AttrKey.String(strings.ToValidUTF8(o.metricKey(of), "\uFFFD")))
	}
	return all
}

func cause(err error) string {
	switch {
	case errors.Is(err, mongolock.ErrMaxHold):
		return "max_hold"
	case errors.Is(err, mongolock.ErrStalled):
		return "stalled"
	case errors.Is(err, mongolock.ErrBroken):
		return "broken"
	}
	return "lost"
}

// sources holds the clients that are open.
type sources struct {
	mu    sync.Mutex // protects what follows
	open  map[*source]bool
	ended map[string]bool // packages of which a client was closed
}

type source struct{ stats func() mongolock.Stats }

// Watch implements mongolock.StatsObserver.
func (s *sources) Watch(stats func() mongolock.Stats) (stop func()) {
	src := &source{stats}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open, s.ended = make(map[*source]bool), make(map[string]bool)
	}
	s.open[src] = true
	return func() {
		pkg := stats().Package
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[src] {
			delete(s.open, src)
			s.ended[pkg] = true
		}
	}
}

// observe reports the numbers of all clients, added up by package.
func (o *Observer) observe(_ context.Context, to metric.Observer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	all, feeds := make(map[string]mongolock.Stats), make(map[[2]string]int64)
	for pkg := range o.sources.ended {
		all[pkg] = mongolock.Stats{}
	}
	for s := range o.open {
		is := s.stats()
		all[is.Package] = all[is.Package].Plus(is)
		feeds[[2]string{is.Package, string(is.Feed)}]++
	}
	for pkg, s := range all {
		system := AttrSystem.String(pkg)
		with := metric.WithAttributes(system)
		to.ObserveInt64(o.leases, int64(s.Held), metric.WithAttributes(system, AttrState.String("held")))
		to.ObserveInt64(o.leases, int64(s.Unreleased), metric.WithAttributes(system, AttrState.String("unreleased")))
		to.ObserveInt64(o.waiters, int64(s.Waiters-s.Candidates), with)
		to.ObserveInt64(o.candidates, int64(s.Candidates), with)
		to.ObserveInt64(o.inLine, int64(s.InLine), with)
		to.ObserveInt64(o.ahead, int64(s.Ahead), with)
		to.ObserveInt64(o.cleanUps, int64(s.CleanUps), with)
		to.ObserveFloat64(o.oldestWait, s.OldestWait.Seconds(), with)
		to.ObserveFloat64(o.oldestRenewal, s.OldestRenewal.Seconds(), with)
		for _, state := range []store.FeedState{store.FeedNone, store.FeedIdle, store.FeedOpening, store.FeedLive} {
			to.ObserveInt64(o.clients, feeds[[2]string{pkg, string(state)}], metric.WithAttributes(system, AttrFeedState.String(string(state))))
		}
	}
	return nil
}

var _ mongolock.StatsObserver = (*Observer)(nil)
