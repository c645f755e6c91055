package schedule

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/mongolock/mongolock"
)

// Overlap says what happens to a fire that comes due while a run of its job is under way.
type Overlap string

// The values of OnOverlap.
const (
	Skip     Overlap = "skip"      // the fire does not run; the default
	QueueOne Overlap = "queue one" // after the run, the last of these fires runs
	QueueAll Overlap = "queue all" // after the run, each of these fires runs; needs OnMissed(All) as well
	Allow    Overlap = "allow"     // the fire runs beside the other run
)

// Missed says what happens to fires that come due while no process can claim them.
type Missed string

// The values of OnMissed.
const (
	None Missed = "none" // they are forgotten; the default
	One  Missed = "one"  // the last of them runs
	All  Missed = "all"  // each of them runs, one after the other
)

// Death says what happens to a fire whose run died with its process, or lost its lease.
type Death string

// The values of OnDeath.
const (
	NextFire Death = "next fire" // it is not repeated, the job goes on with a later fire; the default
	AtOnce   Death = "at once"   // it is repeated as soon as the lease has run out, in at most three attempts
)

// mostAttempts bounds the attempts at one fire: a job that kills its process must not
// kill every process.
const mostAttempts = 3

// A JobOption changes one job. All processes that have the job give it the same options.
type JobOption interface{ applyJob(*jobConfig) error }

// An Option changes a Scheduler.
type Option interface{ apply(*config) error }

type jobConfig struct {
	overlap Overlap
	missed  Missed
	death   Death
	keep    int
	lease   []mongolock.Option
}

type config struct {
	owner    string
	logger   *slog.Logger
	events   func(Event)
	observer mongolock.Observer
	workers  int
	jitter   time.Duration
	grace    time.Duration
}

type (
	jobOption func(*jobConfig) error
	option    func(*config) error
)

func (o jobOption) applyJob(c *jobConfig) error { return o(c) }
func (o option) apply(c *config) error          { return o(c) }

// OnOverlap says what happens to a fire that comes due while a run of the job is under way:
// Skip by default. So OnMissed(All) alone does not run every fire. Together with
// OnOverlap(QueueAll) it does, one after the other.
//
// QueueAll is refused without OnMissed(All). Queued fires run in any of the processes, so each
// claim has to ask that the fire before it is decided, and that is what All does. And if all
// processes stop, the fires that they had queued are missed ones.
func OnOverlap(o Overlap) JobOption {
	return jobOption(func(c *jobConfig) error {
		c.overlap = o
		return oneOf("OnOverlap", o, Skip, QueueOne, QueueAll, Allow)
	})
}

// OnMissed says what happens to fires that come due while no process can claim them, because
// none is up or none reaches the database: None by default. A fire is missed if no process
// claims it before the next one is due, and with None also if it is more than a minute old.
// Jitter and the wait for a worker do not count towards the minute. An event (MissedFires) and
// a log line report missed fires that will not run.
func OnMissed(m Missed) JobOption {
	return jobOption(func(c *jobConfig) error {
		c.missed = m
		return oneOf("OnMissed", m, None, One, All)
	})
}

// OnDeath says what happens to a fire whose run died: NextFire by default. AtOnce is for jobs
// whose work may be done twice, because it cannot be known how far the dead run came. With
// AtOnce each process looks at the job whenever the run under way would run out.
func OnDeath(d Death) JobOption {
	return jobOption(func(c *jobConfig) error {
		c.death = d
		return oneOf("OnDeath", d, NextFire, AtOnce)
	})
}

// Keep sets how many ended runs the job remembers: 1 to 1,000, 10 by default.
func Keep(n int) JobOption {
	return jobOption(func(c *jobConfig) error {
		c.keep = n
		if n < 1 || n > 1000 {
			return fmt.Errorf("schedule: Keep(%d): must be between 1 and 1,000", n)
		}
		return nil
	})
}

// Lease sets the options of the leases of the job's runs. mongolock.TTL, 30 s by default, is
// how long a run is believed alive after its process died. mongolock.MaxHold ends the context
// of a run that takes too long. mongolock.NoRenewal is allowed too.
func Lease(opts ...mongolock.Option) JobOption {
	return jobOption(func(c *jobConfig) error {
		c.lease = opts
		as := make([]mongolock.ClientOption, len(opts))
		for i, o := range opts {
			if o == nil {
				return errors.New("schedule: Lease: a nil Option")
			}
			as[i] = o
		}
		_, err := mongolock.NewWithStore(newEngine(nil), as...) // this checks them, and sends nothing
		return err
	})
}

// WithOwner sets the name of this process that people see: 1 to 256 bytes of UTF-8, by
// default host/pid.
func WithOwner(name string) Option {
	return option(func(c *config) error {
		if c.owner = name; name == "" || len(name) > 256 || !utf8.ValidString(name) {
			return fmt.Errorf("schedule: WithOwner(%q): must be 1 to 256 bytes of UTF-8", name)
		}
		return nil
	})
}

// WithLogger sets the logger, slog.Default() by default. A failed job is logged as a warning,
// and so is a claim that the database did not answer.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error {
		if c.logger = l; l == nil {
			return errors.New("schedule: WithLogger(nil): must not be nil")
		}
		return nil
	})
}

// WithEvents sets a function that is told what becomes of each fire in this process. It
// is called from several goroutines, and each waits until it returns.
func WithEvents(f func(Event)) Option {
	return option(func(c *config) error {
		if c.events = f; f == nil {
			return errors.New("schedule: WithEvents(nil): must not be nil")
		}
		return nil
	})
}

// WithObserver sets an observer, for metrics and traces. It sees the claims, leases and
// runs of this process (OpAcquire, OpHold, OpRun), and the fires that will not run
// (OpMiss). Their key is the job's name.
func WithObserver(o mongolock.Observer) Option {
	return option(func(c *config) error {
		if c.observer = o; o == nil {
			return errors.New("schedule: WithObserver(nil): must not be nil")
		}
		return nil
	})
}

// WithWorkers bounds how many runs and claims this process has under way: 64 by default.
// A fire that comes due beyond that waits for a worker, and another process may claim it
// meanwhile. If the next fire of the job comes due first, the one that waits is missed.
func WithWorkers(n int) Option {
	return option(func(c *config) error {
		if c.workers = n; n < 1 {
			return fmt.Errorf("schedule: WithWorkers(%d): must be at least 1", n)
		}
		return nil
	})
}

// WithJitter makes this process wait for a random time of up to d before it claims a
// fire. It never waits until the next fire is due. Many processes then take turns, and do
// not all send their claims in the same millisecond. The default is no jitter.
func WithJitter(d time.Duration) Option {
	return option(func(c *config) error {
		if c.jitter = d; d < 0 {
			return fmt.Errorf("schedule: WithJitter(%v): must not be negative", d)
		}
		return nil
	})
}

// WithGrace lets runs go on for d after Run's context has ended, before their contexts
// end too. The default is no grace.
func WithGrace(d time.Duration) Option {
	return option(func(c *config) error {
		if c.grace = d; d < 0 {
			return fmt.Errorf("schedule: WithGrace(%v): must not be negative", d)
		}
		return nil
	})
}

func oneOf[T ~string](name string, is T, known ...T) error {
	if slices.Contains(known, is) {
		return nil
	}
	return fmt.Errorf("schedule: %s(%q): must be one of %q", name, is, known)
}

func newConfig(opts []Option) (config, error) {
	c := config{logger: slog.Default(), workers: 64, owner: defaultOwner()}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("schedule: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(&c))
	}
	return c, errors.Join(errs...)
}

func newJobConfig(opts []JobOption) (jobConfig, error) {
	c := jobConfig{overlap: Skip, missed: None, death: NextFire, keep: 10}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("schedule: a nil JobOption"))
			continue
		}
		errs = append(errs, o.applyJob(&c))
	}
	if c.overlap == QueueAll && c.missed != All {
		errs = append(errs, fmt.Errorf("schedule: OnOverlap(%q): needs OnMissed(%q) beside it", QueueAll, All))
	}
	return c, errors.Join(errs...)
}

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || !utf8.ValidString(host) {
		host = "unknown"
	}
	return fmt.Sprintf("%.200s/%d", host, os.Getpid())
}

// clip cuts an error's text to what a job's document carries, at the end of a character.
func clip(s string) string {
	const most = 1024
	s = cleaned(s)
	for len(s) > most {
		_, last := utf8.DecodeLastRuneInString(s[:most+1])
		s = s[:most+1-last]
	}
	return s
}

func cleaned(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return fmt.Sprintf("%q", s)
}
