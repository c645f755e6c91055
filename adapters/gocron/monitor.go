package gocronlock

import (
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
)

// A Kind says what happened to a job.
type Kind string

// The kinds of events.
const (
	Ran         Kind = "ran"         // the job ran on this host; Err is the job's error
	Refused     Kind = "refused"     // gocron did not run the job on this host; Err says why, if this package's Locker refused
	Rescheduled Kind = "rescheduled" // an earlier run of the job on this host was still under way (gocron's singleton mode)
	Lost        Kind = "lost"        // the job's lease was lost while it ran; Err matches mongolock.ErrLost
)

// An Event says what happened to a job on this host.
type Event struct {
	Kind         Kind
	Job          string    // its name, which is the key of its lock
	Began, Ended time.Time // of a run
	Err          error
}

// A Monitor calls a function for each run of a job and for each run that was refused. It
// implements gocron.MonitorStatus. NewMonitor makes one.
//
// gocron counts a refused run as skipped, and does not say why: another host may have the key,
// which is normal, or the database may be away. With WithMonitor the Locker says which.
type Monitor struct {
	tell func(Event)

	mu   sync.Mutex
	told map[string]int // refusals that the Locker has reported, and gocron has not yet, by job
}

var _ gocron.MonitorStatus = (*Monitor)(nil)

// NewMonitor makes a Monitor that calls tell for each event. Several goroutines call tell at
// once, and each of them runs a job: tell should be quick.
func NewMonitor(tell func(Event)) (*Monitor, error) {
	if tell == nil {
		return nil, errors.New("gocronlock: NewMonitor: the function is nil")
	}
	return &Monitor{tell: tell, told: make(map[string]int)}, nil
}

// Options returns the options that give the Monitor to gocron.NewScheduler: gocron reports runs
// by one of its two interfaces, and refusals by the other.
func (m *Monitor) Options() []gocron.SchedulerOption {
	return []gocron.SchedulerOption{gocron.WithMonitor(m), gocron.WithMonitorStatus(m)}
}

// WithMonitor makes the Locker tell m why it refused a run, and that a lease was lost while a
// job ran. Give m to the scheduler too (Monitor.Options).
func WithMonitor(m *Monitor) Option {
	return option(func(l *Locker) error {
		if m == nil {
			return errors.New("gocronlock: WithMonitor(nil): must not be nil")
		}
		l.monitor = m
		return nil
	})
}

// refused reports a refusal of the Locker. gocron reports it again, without the error.
func (m *Monitor) refused(job string, err error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.told[job]++
	m.mu.Unlock()
	m.tell(Event{Kind: Refused, Job: job, Err: err})
}

func (m *Monitor) lost(job string, err error) {
	if m != nil {
		m.tell(Event{Kind: Lost, Job: job, Err: err})
	}
}

// IncrementJob implements gocron.Monitor. gocron also calls it for runs, which
// RecordJobTimingWithStatus reports.
func (m *Monitor) IncrementJob(_ uuid.UUID, name string, _ []string, status gocron.JobStatus) {
	switch status {
	case gocron.Skip:
		if !m.knows(name) {
			m.tell(Event{Kind: Refused, Job: name})
		}
	case gocron.SingletonRescheduled:
		m.tell(Event{Kind: Rescheduled, Job: name})
	case gocron.Success, gocron.Fail:
	}
}

// knows reports whether the Locker has reported this refusal.
func (m *Monitor) knows(job string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.told[job] {
	case 0:
		return false
	case 1:
		delete(m.told, job)
	default:
		m.told[job]--
	}
	return true
}

// RecordJobTiming implements gocron.Monitor. It does nothing, because RecordJobTimingWithStatus
// is told more.
func (*Monitor) RecordJobTiming(time.Time, time.Time, uuid.UUID, string, []string) {}

// RecordJobTimingWithStatus implements gocron.MonitorStatus.
func (m *Monitor) RecordJobTimingWithStatus(began, ended time.Time, _ uuid.UUID, name string, _ []string, _ gocron.JobStatus, err error) {
	m.tell(Event{Kind: Ran, Job: name, Began: began, Ended: ended, Err: err})
}
