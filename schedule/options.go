package schedule

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

const (
	// mostDeaths bounds the attempts at one due time that die: a job that kills its process
	// must not kill every process. A run that was stopped does not count.
	mostDeaths = 3

	// mostBackoff bounds the pause before a Retry.
	mostBackoff = 24 * time.Hour
)

// A JobOption changes one job. All processes that have the job give it the same options.
type JobOption interface{ applyJob(*jobConfig) error }

// An Option changes a Scheduler.
type Option interface{ apply(*config) error }

type jobConfig struct {
	each    bool
	beside  bool
	once    bool
	maxLate time.Duration // 0: no bound
	retries int
	backoff time.Duration
	keep    int
	lease   []mongolock.AcquireOption
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

// Each makes each due time run, one after the other. By default the late ones make way: of the
// due times at which the job could not run, because an earlier run was under way, no process was
// up, none reached the database or no worker was free, the latest runs as soon as it can, and
// those before it are dropped.
func Each() JobOption { return jobOption(func(c *jobConfig) error { c.each = true; return nil }) }

// MaxLate drops a due time at which the job could not begin within d, for whatever reason. The
// job's past shows it as TooLate, unless later ones were too late as well. Jitter does not count, and
// RunNow has a minute more. By default no due time is too late.
func MaxLate(d time.Duration) JobOption {
	return jobOption(func(c *jobConfig) error {
		if c.maxLate = d; d < time.Millisecond {
			return fmt.Errorf("schedule: MaxLate(%v): must be at least a millisecond", d)
		}
		return nil
	})
}

// Beside makes a due time run beside the runs under way. By default it waits until they have
// ended.
func Beside() JobOption {
	return jobOption(func(c *jobConfig) error { c.beside = true; return nil })
}

// AtMostOnce makes a due time run at most once. By default a run that was Stopped or Died is
// repeated, by a process that is up, because its work may be undone. It may also be done:
// AtMostOnce is for a job whose work must not be done twice, rather not at all. A run that died
// is repeated twice at most, so that a job that kills its process does not kill all of them.
func AtMostOnce() JobOption {
	return jobOption(func(c *jobConfig) error { c.once = true; return nil })
}

// Retry has a run that returned an error, or panicked, repeated n times: after backoff, twice that, and so on,
// at most a day, by whichever process is up. No later due time runs meanwhile, unless Beside. With MaxLate a
// repetition that would begin too late is left out. AtMostOnce and Retry exclude each other.
func Retry(n int, backoff time.Duration) JobOption {
	return jobOption(func(c *jobConfig) error {
		if c.retries, c.backoff = n, backoff; n < 1 || backoff <= 0 {
			return fmt.Errorf("schedule: Retry(%d, %v): both must be positive", n, backoff)
		}
		return nil
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

// With sets options of the leases of the job's runs. mongolock.TTL, 30 s by default, is how long
// a run is believed alive after its process died. MaxHold and MaxStall end the context of a run
// that takes too long. Shared, OneOf, MinHold, MaxWait and Note are refused by name: a
// due time is claimed once, by one process, and not waited for, and its run has no note.
func With(opts ...mongolock.AcquireOption) JobOption {
	return jobOption(func(c *jobConfig) error {
		c.lease = append(c.lease, opts...)
		terms, err := inside.TermsOf(nil, "schedule", c.lease)
		switch {
		case err != nil:
			return fmt.Errorf("schedule: With: %w", err)
		case terms.Mode == store.Shared:
			return errors.New("schedule: With(Shared()): a due time is claimed by one process; Beside lets runs overlap")
		case terms.Mode != store.Exclusive:
			return fmt.Errorf("schedule: With(OneOf(%d)): a due time is claimed by one process; Beside lets runs overlap", terms.Limit)
		case terms.MinHold > 0:
			return fmt.Errorf("schedule: With(MinHold(%v)): a due time is claimed once, however short its run is", terms.MinHold)
		case terms.MaxWait > 0:
			return fmt.Errorf("schedule: With(MaxWait(%v)): a claim does not wait", terms.MaxWait)
		case terms.Note != "":
			return fmt.Errorf("schedule: With(Note(%q)): a job's runs have no note", terms.Note)
		}
		return nil
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

// WithEvents sets a function that is told what becomes of each due time in this process. It
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
// runs of this process (OpAcquire, OpHold, OpRun), and how many due times were dropped
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
// A due time that comes beyond that waits for a worker, and another process may claim it
// meanwhile.
func WithWorkers(n int) Option {
	return option(func(c *config) error {
		if c.workers = n; n < 1 {
			return fmt.Errorf("schedule: WithWorkers(%d): must be at least 1", n)
		}
		return nil
	})
}

// WithJitter makes this process wait for a random time of up to d before it claims a
// due time. It never waits until the next one. Many processes then take turns, and do
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
	c := jobConfig{keep: 10}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("schedule: a nil JobOption"))
			continue
		}
		errs = append(errs, o.applyJob(&c))
	}
	if c.once && c.retries > 0 {
		errs = append(errs, fmt.Errorf("schedule: AtMostOnce() and Retry(%d, %v) exclude each other", c.retries, c.backoff))
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
