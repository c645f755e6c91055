package promlock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/schedule"
)

// readFor bounds how long a scrape reads the database: less than the ten seconds that Prometheus gives one by default.
const readFor = 5 * time.Second

// A signal makes metrics of what a collection says when it is scraped.
type signal struct {
	always prometheus.Labels
	descs  []*prometheus.Desc
	unread *prometheus.Desc
	read   func(ctx context.Context, gauge func(d *prometheus.Desc, v float64, labels ...string)) (faults int)
}

func newSignal(collection string) *signal {
	s := &signal{always: prometheus.Labels{"collection": strings.ToValidUTF8(collection, "\uFFFD")}}
	s.unread = s.desc("signal_unread", "Above 0 if this scrape could not read the collection, a document or a job's plan.")
	return s
}

func (s *signal) desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("mongolock_"+name, help, labels, s.always)
	s.descs = append(s.descs, d)
	return d
}

// Describe implements prometheus.Collector.
func (s *signal) Describe(to chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *signal) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readFor)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(s.unread, float64(s.read(ctx, gauge)))
}

// Jobs makes metrics of all jobs in a Scheduler's collection, also of those that no process has. Register it in one
// process or in several, beside the Collector. The Scheduler need not run.
//
//	prometheus.MustRegister(promlock.Jobs("jobs", jobs))
//
// The collection is the value of a label. Each scrape reads the jobs with their past, three commands for up to a
// thousand, and nothing is read between scrapes. What cannot be read in five seconds is counted by
// mongolock_signal_unread.
func Jobs(collection string, jobs *schedule.Scheduler) prometheus.Collector {
	s := newSignal(collection)
	overdue := s.desc("job_overdue_seconds", "How long the job has waited for a process; not there if its plan cannot be read.", "name")
	failing := s.desc("job_failing", "1 if the job's last run did not succeed.", "name")
	paused := s.desc("job_paused", "1 if the job is paused.", "name")
	tried := s.desc("job_tried_timestamp_seconds", "When a run was last claimed.", "name")
	succeeded := s.desc("job_succeeded_timestamp_seconds", "When a run last succeeded.", "name")
	next := s.desc("job_next_timestamp_seconds", "When the job is due next.", "name")
	s.read = func(ctx context.Context, gauge func(*prometheus.Desc, float64, ...string)) (faults int) {
		for j, err := range jobs.Jobs(ctx) {
			name := strings.ToValidUTF8(j.Job, "\uFFFD")
			switch {
			case err != nil:
				faults++
				continue
			case j.PlanErr != nil:
				faults++
			default:
				gauge(overdue, j.Overdue().Seconds(), name)
			}
			gauge(failing, oneIf(j.Failing()), name)
			gauge(paused, oneIf(j.Paused), name)
			for d, at := range map[*prometheus.Desc]time.Time{tried: j.Tried, succeeded: j.Succeeded, next: j.Next} {
				if !at.IsZero() {
					gauge(d, float64(at.UnixMilli())/1000, name)
				}
			}
		}
		return faults
	}
	return s
}

// Documents makes metrics of the documents that workers claim, whether or not one is up, as [doclock.Locks.Backlog] counts them.
//
//	prometheus.MustRegister(promlock.Documents("outbox", func(ctx context.Context) (doclock.Backlog, error) {
//		return outbox.Backlog(ctx, bson.D{{Key: "state", Value: "new"}}, "created")
//	}))
//
// Each scrape sends what Backlog does: three counts, a find, and a hello if the last one is old. The rest is as in [Jobs].
func Documents(collection string, backlog func(context.Context) (doclock.Backlog, error)) prometheus.Collector {
	s := newSignal(collection)
	claimable := s.desc("documents_claimable", "Documents that a worker could claim.")
	claimed := s.desc("documents_claimed", "Documents that a worker has.")
	dead := s.desc("documents_dead", "Documents that were set aside after too many attempts.")
	oldest := s.desc("documents_oldest_seconds", "How old the oldest document is that a worker could claim.")
	s.read = func(ctx context.Context, gauge func(*prometheus.Desc, float64, ...string)) (faults int) {
		b, err := backlog(ctx)
		if err != nil && !errors.Is(err, doclock.ErrDecode) {
			return 1
		}
		gauge(claimable, float64(b.Claimable))
		gauge(claimed, float64(b.Claimed))
		gauge(dead, float64(b.Dead))
		if err != nil { // no date
			return 1
		}
		gauge(oldest, b.Age().Seconds())
		return 0
	}
	return s
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
