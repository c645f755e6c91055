package otellock

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/schedule"
)

// readFor bounds how long a collection of metrics reads the database.
const readFor = 5 * time.Second

// signals are the instruments of what a collection says of its jobs or documents.
type signals struct {
	meter                           metric.Meter
	overdue, tried, succeeded, next metric.Float64ObservableGauge
	documentsOldest                 metric.Float64ObservableGauge
	failing, paused, unread         metric.Int64ObservableGauge
	documents                       metric.Int64ObservableUpDownCounter
}

func (s *signals) make(m metric.Meter) error {
	s.meter = m
	var errs []error
	seconds := func(name, help string) metric.Float64ObservableGauge {
		g, err := m.Float64ObservableGauge(name, metric.WithDescription(help), metric.WithUnit("s"))
		errs = append(errs, err)
		return g
	}
	number := func(name, unit, help string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithDescription(help), metric.WithUnit(unit))
		errs = append(errs, err)
		return g
	}
	s.overdue = seconds("lock.job.overdue", "How long the job has waited for a process; not there if its plan cannot be read.")
	s.tried = seconds("lock.job.tried", "When a run was last claimed, in Unix time.")
	s.succeeded = seconds("lock.job.succeeded", "When a run last succeeded, in Unix time.")
	s.next = seconds("lock.job.next", "When the job is due next, in Unix time.")
	s.failing = number("lock.job.failing", "1", "1 if the job's last run did not succeed.")
	s.paused = number("lock.job.paused", "1", "1 if the job is paused.")
	s.documentsOldest = seconds("lock.documents.oldest", "How old the oldest document is that a worker could claim.")
	s.unread = number("lock.signal.unread", "{fault}", "Above 0 if the collection, a document or a job's plan could not be read.")
	var err error
	s.documents, err = m.Int64ObservableUpDownCounter("lock.documents", metric.WithDescription("Documents that a worker could claim, that one has, and that were set aside."), metric.WithUnit("{document}"))
	return errors.Join(append(errs, err)...)
}

// register has read called when metrics are collected.
func (s *signals) register(collection string, read func(ctx context.Context, to metric.Observer, in attribute.KeyValue) (faults int), of ...metric.Observable) (metric.Registration, error) {
	in := AttrCollection.String(strings.ToValidUTF8(collection, "\uFFFD"))
	return s.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, readFor)
		defer cancel()
		to.ObserveInt64(s.unread, int64(read(ctx, to, in)), metric.WithAttributes(in))
		return nil
	}, append(of, s.unread)...)
}

// Jobs makes metrics of all jobs in a Scheduler's collection, also of those that no process has, until the Registration
// ends. One process or several call it. The Scheduler need not run.
//
// The collection is the value of an attribute. Each collection of metrics reads the jobs with their past, three commands for
// up to a thousand, and nothing is read in between. What cannot be read in five seconds is counted by lock.signal.unread.
func (o *Observer) Jobs(collection string, jobs *schedule.Scheduler) (metric.Registration, error) {
	s := &o.signals
	return s.register(collection, func(ctx context.Context, to metric.Observer, in attribute.KeyValue) (faults int) {
		for j, err := range jobs.Jobs(ctx) {
			with := metric.WithAttributes(in, AttrJob.String(strings.ToValidUTF8(j.Job, "\uFFFD")))
			switch {
			case err != nil:
				faults++
				continue
			case j.PlanErr != nil:
				faults++
			default:
				to.ObserveFloat64(s.overdue, j.Overdue().Seconds(), with)
			}
			to.ObserveInt64(s.failing, oneIf(j.Failing()), with)
			to.ObserveInt64(s.paused, oneIf(j.Paused), with)
			for g, at := range map[metric.Float64Observable]time.Time{s.tried: j.Tried, s.succeeded: j.Succeeded, s.next: j.Next} {
				if !at.IsZero() {
					to.ObserveFloat64(g, float64(at.UnixMilli())/1000, with)
				}
			}
		}
		return faults
	}, s.overdue, s.tried, s.succeeded, s.next, s.failing, s.paused)
}

// Documents makes metrics of the documents that workers claim, whether or not one is up, as [doclock.Locks.Backlog] counts
// them. That takes three counts, a find, and a hello if the last one is old. The rest is as in [Observer.Jobs].
func (o *Observer) Documents(collection string, backlog func(context.Context) (doclock.Backlog, error)) (metric.Registration, error) {
	s := &o.signals
	return s.register(collection, func(ctx context.Context, to metric.Observer, in attribute.KeyValue) (faults int) {
		b, err := backlog(ctx)
		if err != nil && !errors.Is(err, doclock.ErrDecode) {
			return 1
		}
		for state, n := range map[string]int{"claimable": b.Claimable, "claimed": b.Claimed, "dead": b.Dead} {
			to.ObserveInt64(s.documents, int64(n), metric.WithAttributes(in, AttrState.String(state)))
		}
		if err != nil { // no date
			return 1
		}
		to.ObserveFloat64(s.documentsOldest, b.Age().Seconds(), metric.WithAttributes(in))
		return 0
	}, s.documents, s.documentsOldest)
}

func oneIf(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
