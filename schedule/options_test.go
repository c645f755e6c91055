package schedule_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

func nothing(context.Context, schedule.Run) error { return nil }

func scheduler(t testing.TB, opts ...schedule.Option) *schedule.Scheduler {
	t.Helper()
	s, err := schedule.NewWithStore(jobs.NewMemory(), append([]schedule.Option{schedule.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(t, err)
	return s
}

func TestWrongArgumentsAreRefusedByName(t *testing.T) {
	minute := schedule.Every(time.Minute)
	for want, add := range map[string]func(*schedule.Scheduler) error{
		"Every(0s): the period must be positive":                               func(s *schedule.Scheduler) error { return s.Add("j", schedule.Every(0), nothing) },
		"Every(-1s): the period must be positive":                              func(s *schedule.Scheduler) error { return s.Add("j", schedule.Every(-time.Second), nothing) },
		"Every(1ms): the period must be at least 10ms":                         func(s *schedule.Scheduler) error { return s.Add("j", schedule.Every(time.Millisecond), nothing) },
		"Every(1.0000005s): the period must be a whole number of milliseconds": func(s *schedule.Scheduler) error { return s.Add("j", schedule.Every(time.Second+500), nothing) },
		"the plan is nil":                                func(s *schedule.Scheduler) error { return s.Add("j", nil, nothing) },
		"fn is nil":                                      func(s *schedule.Scheduler) error { return s.Add("j", minute, nil) },
		"Add: the job's name is empty":                   func(s *schedule.Scheduler) error { return s.Add("", minute, nothing) },
		"the job's name has 513 bytes: at most 512":      func(s *schedule.Scheduler) error { return s.Add(strings.Repeat("j", 513), minute, nothing) },
		`Add("\xff"): the job's name is not valid UTF-8`: func(s *schedule.Scheduler) error { return s.Add("\xff", minute, nothing) },
		"MaxLate(0s): must be at least a millisecond":    func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.MaxLate(0)) },
		"With(Shared()): a due time is claimed by one process": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.Shared()))
		},
		"With(OneOf(3)): a due time is claimed by one process": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.OneOf(3)))
		},
		"With(MinHold(1s)): a due time is claimed once": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.MinHold(time.Second)))
		},
		`With(Note("n")): a job's runs have no note`: func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.Note("n")))
		},
		"With(MaxWait(1s)): a claim does not wait": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.MaxWait(time.Second)))
		},
		"At(1960-01-01": func(s *schedule.Scheduler) error {
			return s.Add("j", schedule.At(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)), nothing)
		},
		"Retry(0, 1s): both must be positive": func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.Retry(0, time.Second)) },
		"Retry(2, 0s): both must be positive": func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.Retry(2, 0)) },
		"AtMostOnce() and Retry(2, 1s) exclude each other": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.Retry(2, time.Second), schedule.AtMostOnce())
		},
		"Keep(0): must be between 1 and 1,000": func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.Keep(0)) },
		"With: mongolock: a nil":               func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, schedule.With(nil)) },
		"TTL(1ns): must be between": func(s *schedule.Scheduler) error {
			return s.Add("j", minute, nothing, schedule.With(mongolock.TTL(1)))
		},
		"a nil JobOption":                 func(s *schedule.Scheduler) error { return s.Add("j", minute, nothing, nil) },
		"Job: the job's name is empty":    func(s *schedule.Scheduler) error { _, err := s.Job(t.Context(), ""); return err },
		"Forget: the job's name is empty": func(s *schedule.Scheduler) error { return s.Forget(t.Context(), "") },
	} {
		assert.ErrorContains(t, add(scheduler(t)), want)
	}
	for want, opt := range map[string]schedule.Option{
		"WithWorkers(0): must be at least 1":    schedule.WithWorkers(0),
		"WithJitter(-1s): must not be negative": schedule.WithJitter(-time.Second),
		"WithGrace(-1s): must not be negative":  schedule.WithGrace(-time.Second),
		`WithOwner(""): must be 1 to 256 bytes`: schedule.WithOwner(""),
		"WithLogger(nil): must not be nil":      schedule.WithLogger(nil),
		"WithEvents(nil): must not be nil":      schedule.WithEvents(nil),
		"a nil Option":                          nil,
	} {
		_, err := schedule.NewWithStore(jobs.NewMemory(), opt)
		assert.ErrorContains(t, err, want)
	}
	_, err := schedule.New(nil)
	assert.ErrorContains(t, err, "the collection is nil")
}

func TestAllBadOptionsAreNamedAtOnce(t *testing.T) {
	_, err := schedule.New(nil, nil, schedule.WithWorkers(0), schedule.WithOwner(""))
	for _, want := range []string{"the collection is nil", "a nil Option", "WithWorkers(0)", `WithOwner("")`} {
		assert.ErrorContains(t, err, want)
	}
	err = scheduler(t).Add("", nil, nil, nil, schedule.Keep(0))
	for _, want := range []string{"the job's name is empty", "the plan is nil", "fn is nil", "a nil JobOption", "Keep(0)"} {
		assert.ErrorContains(t, err, want)
	}
}

func TestTwoJobsOfOneNameAreRefused(t *testing.T) {
	s := scheduler(t)
	require.NoError(t, s.Add("job", schedule.Every(time.Minute), nothing))
	err := s.Add("job", schedule.Every(time.Hour), nothing)
	require.ErrorIs(t, err, schedule.ErrDuplicate)
	assert.ErrorContains(t, err, `"job"`)
	assert.True(t, s.Remove("job"))
	assert.False(t, s.Remove("job"), "a second time")
	assert.NoError(t, s.Add("job", schedule.Every(time.Hour), nothing))
}

// A settings is one combination of what a job may be told.
type settings struct{ each, maxLate, beside, once bool }

func everySettings() (all []settings) {
	for i := range 16 {
		all = append(all, settings{each: i&1 != 0, maxLate: i&2 != 0, beside: i&4 != 0, once: i&8 != 0})
	}
	return all
}

func (s settings) String() string {
	return fmt.Sprintf("%+v", struct{ each, maxLate, beside, once bool }(s))
}

func (s settings) options() []schedule.JobOption {
	opts := []schedule.JobOption{schedule.With(mongolock.TTL(30 * time.Second))}
	if s.each {
		opts = append(opts, schedule.Each())
	}
	if s.maxLate {
		opts = append(opts, schedule.MaxLate(5*time.Minute))
	}
	if s.beside {
		opts = append(opts, schedule.Beside())
	}
	if s.once {
		opts = append(opts, schedule.AtMostOnce())
	}
	return opts
}

// A night is a cluster whose processes share an hourly job, and what became of its due times.
type night struct {
	*cluster
	settings
	mu      sync.Mutex
	dropped []string // by events
	counted int      // by the observer
	log     strings.Builder
}

// Begin counts the due times that observers are told of.
func (n *night) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	return ctx, func(out mongolock.Outcome) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if of.Op == mongolock.OpMiss {
			n.counted += out.Count
		}
	}
}

func (n *night) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(line)
}

// up starts a process. A run of one o'clock takes as long as that, all others take a minute.
func (n *night) up(nr int, long time.Duration) *process {
	p := n.process(nr, schedule.WithObserver(n), schedule.WithLogger(slog.New(slog.NewTextHandler(n, nil))),
		schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Dropped {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.dropped = append(n.dropped, fmt.Sprintf("%d from %v to %v", e.Count, n.clock(e.First.Sub(n.begin)), n.clock(e.Due.Sub(n.begin))))
			}
		}))
	p.job("job", schedule.Every(time.Hour), func(ctx context.Context, r schedule.Run) error {
		takes := time.Minute
		if r.Due.Sub(n.begin) == time.Hour && r.Attempt == 1 {
			takes = long
		}
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, n.options()...)
	return p.start()
}

// clock writes a time of the night, to the minute.
func (*night) clock(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Hours()), int(d.Minutes())%60)
}

// ran lists the runs: when they were due and when they began.
func (n *night) ran() (all []string) {
	runs := n.took()
	slices.SortStableFunc(runs, func(a, b ran) int { return cmp.Or(cmp.Compare(a.at, b.at), a.Due.Compare(b.Due)) })
	for _, r := range runs {
		if s := fmt.Sprintf("%s at %s", n.clock(r.Due.Sub(n.begin)), n.clock(r.at)); r.Attempt == 1 {
			all = append(all, s)
		} else {
			all = append(all, fmt.Sprintf("%s attempt %d", s, r.Attempt))
		}
	}
	return all
}

// told asserts that each due time that was dropped was told once: by an event, a log line and
// the observer.
func (n *night) told(count int, want ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	assert.Equal(n, want, n.dropped, "events")
	assert.Equal(n, count, n.counted, "due times that the observer was told of")
	assert.Equal(n, len(want), strings.Count(n.log.String(), "schedule: due times were dropped"), "log lines")
}

func inEverySettings(t *testing.T, body func(n *night)) {
	for _, s := range everySettings() {
		t.Run(s.String(), func(t *testing.T) {
			inCluster(t, func(c *cluster) { body(&night{cluster: c, settings: s}) })
		})
	}
}

// What becomes of the due times that come while a run is under way.
func TestDueTimesDuringARun(t *testing.T) {
	inEverySettings(t, func(n *night) {
		one, two := n.up(1, 150*time.Minute), n.up(2, 150*time.Minute)
		n.until(5*time.Hour + 30*time.Minute)
		one.end()
		two.end()
		switch ran := n.ran(); {
		case n.beside:
			assert.Equal(n, []string{"1:00 at 1:00", "2:00 at 2:00", "3:00 at 3:00", "4:00 at 4:00", "5:00 at 5:00"}, ran)
			n.told(0)
		case n.maxLate:
			assert.Equal(n, []string{"1:00 at 1:00", "4:00 at 4:00", "5:00 at 5:00"}, ran)
			n.told(2, "2 from 2:00 to 3:00")
		case n.each:
			assert.Equal(n, []string{"1:00 at 1:00", "2:00 at 3:30", "3:00 at 3:31", "4:00 at 4:00", "5:00 at 5:00"}, ran)
			n.told(0)
		default:
			assert.Equal(n, []string{"1:00 at 1:00", "3:00 at 3:30", "4:00 at 4:00", "5:00 at 5:00"}, ran)
			n.told(1, "1 from 2:00 to 2:00")
		}
	})
}

// What becomes of the due times at which no process was up. Each of three processes that start
// then could tell of them, and so could each restart.
func TestDueTimesWhileNoProcessIsUp(t *testing.T) {
	inEverySettings(t, func(n *night) {
		p := n.up(1, time.Minute)
		n.until(2*time.Hour + 30*time.Minute)
		p.end() // no process is up at three, four and five
		n.until(5*time.Hour + 15*time.Minute)
		for nr := range 3 {
			q := n.up(nr, time.Minute)
			n.sleep(10 * time.Second)
			if nr == 0 {
				n.sleep(5 * time.Minute)
			}
			defer q.end()
		}
		n.until(6*time.Hour + 30*time.Minute)
		before := []string{"1:00 at 1:00", "2:00 at 2:00"}
		ran := n.ran()
		switch {
		case n.maxLate:
			assert.Equal(n, append(before, "6:00 at 6:00"), ran)
			n.told(3, "3 from 3:00 to 5:00")
		case n.each && n.beside:
			assert.Equal(n, append(before, "3:00 at 5:15", "4:00 at 5:15", "5:00 at 5:15", "6:00 at 6:00"), ran)
			n.told(0)
		case n.each:
			assert.Equal(n, append(before, "3:00 at 5:15", "4:00 at 5:16", "5:00 at 5:17", "6:00 at 6:00"), ran)
			n.told(0)
		default:
			assert.Equal(n, append(before, "5:00 at 5:15", "6:00 at 6:00"), ran)
			n.told(2, "2 from 3:00 to 4:00")
		}
	})
}

// What becomes of a run whose process dies, and of the due time that came while it was under way.
func TestARunThatDiesAndADueTimeThatItKept(t *testing.T) {
	inEverySettings(t, func(n *night) {
		first := n.up(1, 3*time.Hour)
		n.until(time.Hour + time.Minute)
		second := n.up(2, time.Minute)
		n.until(2*time.Hour + 3*time.Minute + 10*time.Second)
		first.link.Cut() // its run of 1:00 runs out within 30 s, by 2:03:40
		n.until(4*time.Hour + 30*time.Minute)
		first.stop()
		<-first.over
		second.end()
		want := []string{"1:00 at 1:00"}
		switch {
		case n.beside && n.once:
			want = append(want, "2:00 at 2:00")
		case n.beside:
			want = append(want, "2:00 at 2:00", "1:00 at 2:03 attempt 2")
		case n.once:
			want = append(want, "2:00 at 2:03")
		default:
			want = append(want, "1:00 at 2:03 attempt 2", "2:00 at 2:04")
		}
		assert.Equal(n, append(want, "3:00 at 3:00", "4:00 at 4:00"), n.ran())
		if n.once {
			n.told(1, "1 from 1:00 to 1:00") // what became of it is not known, and nobody repeats it
		} else {
			n.told(0)
		}
		outcomes := map[string]schedule.Outcome{}
		for _, r := range n.state("job").Past {
			outcomes[fmt.Sprint(n.clock(r.Due.Sub(n.begin)), " ", r.Attempt)] = schedule.Outcome(r.Outcome)
		}
		assert.Equal(n, schedule.Died, outcomes["1:00 1"])
		assert.Equal(n, schedule.Succeeded, outcomes["2:00 1"])
	})
}

// A process that is told to stop leaves its run as one that is killed does.
func TestARunThatIsStoppedIsRepeatedWhereOneThatDiedIs(t *testing.T) {
	inEverySettings(t, func(n *night) {
		first := n.up(1, 10*time.Minute)
		n.until(time.Hour + time.Minute)
		second := n.up(2, time.Minute)
		n.until(time.Hour + 2*time.Minute)
		first.end()
		n.until(2*time.Hour + 30*time.Minute)
		second.end()
		past := n.state("job").Past
		first1 := past[len(past)-1]
		assert.Equal(n, "stopped", first1.Outcome)
		assert.Equal(n, "context canceled", first1.Error)
		if n.once {
			assert.Equal(n, []string{"1:00 at 1:00", "2:00 at 2:00"}, n.ran())
		} else {
			assert.Equal(n, []string{"1:00 at 1:00", "1:00 at 1:02 attempt 2", "2:00 at 2:00"}, n.ran())
		}
		n.told(0)
	})
}

// Rolling restarts do not use up the attempts: only runs that died count.
func TestANightSurvivesManyRestarts(t *testing.T) {
	inCluster(t, func(c *cluster) {
		n := &night{cluster: c}
		for nr := range 8 {
			p := n.up(nr, time.Hour)
			n.until(time.Hour + time.Duration(nr)*30*time.Second + 10*time.Second)
			p.end()
		}
		p := n.up(9, time.Minute)
		n.sleep(10 * time.Minute)
		p.end()
		assert.Equal(n, "succeeded", n.state("job").Past[0].Outcome)
	})
}

// A job that is due a single time may be late too.
func TestAOneOffTimeThatIsTooLateIsTold(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var told []schedule.Event
		add := func(nr int) *process {
			p := c.process(nr, schedule.WithEvents(func(e schedule.Event) {
				if e.Kind == schedule.Dropped {
					told = append(told, e)
				}
			}))
			return p.add("once", schedule.At(c.begin.Add(time.Hour)), time.Minute, schedule.MaxLate(time.Minute)).
				add("late", schedule.At(c.begin.Add(time.Hour)), time.Minute).start()
		}
		p := add(1)
		c.until(30 * time.Minute)
		p.end()
		c.until(2 * time.Hour)
		p, q := add(2), add(3)
		c.until(1000 * time.Hour)
		p.end()
		q.end()
		runs := c.took()
		if assert.Len(c, runs, 1) {
			assert.Equal(c, "late", runs[0].Job)
			assert.Equal(c, time.Hour, runs[0].Due.Sub(c.begin))
		}
		if assert.Len(c, told, 1) {
			assert.Equal(c, "once", told[0].Job)
			assert.Equal(c, 1, told[0].Count)
		}
		assert.Equal(c, "too late", c.state("once").Past[0].Outcome)
	})
}

// What was late when a job was paused is told when it goes on, and what came during the pause is not.
func TestDueTimesBeforeAndDuringAPause(t *testing.T) {
	inEverySettings(t, func(n *night) {
		p := n.up(1, time.Minute)
		n.until(2*time.Hour + 30*time.Minute)
		p.end() // no process is up at three and four
		n.until(4*time.Hour + 30*time.Minute)
		operator := n.process(9)
		assert.NoError(n, operator.Pause(n.Context(), "job"))
		n.until(5*time.Hour + 30*time.Minute)
		assert.NoError(n, operator.Pause(n.Context(), "job"), "paused again")
		n.until(6*time.Hour + 30*time.Minute)
		assert.NoError(n, operator.Resume(n.Context(), "job"))
		q := n.up(2, time.Minute)
		n.until(8*time.Hour + 30*time.Minute)
		q.end()
		assert.Equal(n, []string{"1:00 at 1:00", "2:00 at 2:00", "7:00 at 7:00", "8:00 at 8:00"}, n.ran())
		n.told(2, "2 from 3:00 to 4:00")
	})
}
