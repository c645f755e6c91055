package schedule

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
)

// A Func is the work of a job. Its context ends with the run's lease, and when the context of
// Scheduler.Run ends. An error is entered in the job's past and logged. A panic is entered too
// and ends the run; then the panic goes on and ends the process.
type Func func(ctx context.Context, run Run) error

// A Scheduler runs the jobs of one process. Make one for each process and collection, with New
// or NewWithStore.
type Scheduler struct {
	config
	store  Store
	engine *engine
	wake   chan struct{} // something is due before the timer fires

	mu      sync.Mutex // protects the fields below and those of the jobs; never held across a store call
	jobs    map[string]*job
	fresh   []*job // not looked up yet
	queue   queue
	running bool
	client  *mongolock.Client // while the Scheduler is running
	guard   *guarded          // of its observer; set before a run begins
}

// A job is one job of this process.
type job struct {
	name string
	plan Plan
	fn   Func
	jobConfig

	// The following belong to the one goroutine that has the job's item of the queue.
	fire   time.Time // the fire to claim next
	mark   time.Time // with All: every fire up to it is decided, as far as is known
	sure   bool      // mark comes from the document, or from this process's own last claim
	queued bool      // fire came due during a run, and runs however old it is
	doubts []string  // IDs of claims whose outcome is unknown
	looked time.Time // the last look after a lost claim, of a job that is due often
	pause  *backoff.Backoff

	// The following are protected by Scheduler.mu.
	looking bool      // a look is scheduled
	stale   bool      // the document must be read before the next claim
	passed  time.Time // the last fire whose claim was refused, until it was looked at
	ahead   time.Time // the next claim takes decided back from there; zero: it does not
	told    time.Time // the decided that a log line said lies in the future
	removed bool
}

// forget drops what an earlier Run has left to do.
func (j *job) forget() {
	j.doubts, j.queued, j.looked, j.pause = nil, false, time.Time{}, nil
	j.looking, j.stale, j.passed, j.ahead, j.told = false, false, time.Time{}, time.Time{}, time.Time{}
}

// NewWithStore makes a Scheduler on a Store, such as NewMemory() in tests.
func NewWithStore(s Store, opts ...Option) (*Scheduler, error) {
	conf, err := newConfig(opts)
	if s == nil {
		err = errors.Join(errors.New("schedule: NewWithStore: the store is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	return &Scheduler{config: conf, store: s, engine: newEngine(s), wake: make(chan struct{}, 1), jobs: make(map[string]*job)}, nil
}

const maxName = 512 // bytes

// Add puts a job on the schedule of this process. The name is the job's identity: all
// processes that share a job give it the same name, plan and options. A process cannot
// have two jobs of one name (ErrDuplicate). Add may be called while Run is running.
func (s *Scheduler) Add(name string, plan Plan, fn Func, opts ...JobOption) error {
	conf, err := newJobConfig(opts)
	errs := []error{checkName("Add", name), checkPlan(plan), err}
	if fn == nil {
		errs = append(errs, errors.New("schedule: Add: fn is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	j := &job{name: name, plan: plan, fn: fn, jobConfig: conf}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[name] != nil {
		return fmt.Errorf("%w: Add(%q)", ErrDuplicate, name)
	}
	s.jobs[name] = j
	s.fresh = append(s.fresh, j)
	s.nudge()
	return nil
}

// Remove takes a job off the schedule of this process, and reports whether it was there.
// A run under way goes on. The job's document stays; Forget deletes it.
func (s *Scheduler) Remove(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[name]
	if j == nil {
		return false
	}
	delete(s.jobs, name)
	j.removed = true
	s.fresh = slices.DeleteFunc(s.fresh, func(f *job) bool { return f == j })
	s.queue = slices.DeleteFunc(s.queue, func(i item) bool { return i.job == j })
	heap.Init(&s.queue)
	return true
}

// Forget deletes what the database knows about a job: its past, and which fires were
// claimed. A run under way loses its lease. Forget is for jobs that no process has any
// more.
func (s *Scheduler) Forget(ctx context.Context, name string) error {
	if err := checkName("Forget", name); err != nil {
		return err
	}
	return wrap("forget", name, s.store.Forget(ctx, name))
}

// Job returns what the database knows about a job, whichever process runs it: when it is
// due next, its runs under way, its past. Known is false if no fire of it was ever
// claimed.
func (s *Scheduler) Job(ctx context.Context, name string) (State, error) {
	if err := checkName("Job", name); err != nil {
		return State{}, err
	}
	all, err := s.store.Look(ctx, []string{name}, WithPast)
	if err != nil {
		return State{}, wrap("look at", name, err)
	}
	return all[0], nil
}

// Jobs yields all jobs that the database knows, sorted by name. An error ends the
// iteration.
func (s *Scheduler) Jobs(ctx context.Context) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		names, err := s.store.Names(ctx)
		if err != nil {
			yield(State{}, wrap("list", "", err))
			return
		}
		for chunk := range slices.Chunk(names, chunkSize) {
			all, err := s.store.Look(ctx, chunk, WithPast)
			if err != nil {
				yield(State{}, wrap("list", "", err))
				return
			}
			for _, state := range all {
				if state.Known && !yield(state, nil) {
					return
				}
			}
		}
	}
}

const chunkSize = 1000

func checkName(call, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("schedule: %s: the job's name is empty", call)
	case len(name) > maxName:
		return fmt.Errorf("schedule: %s: the job's name has %d bytes: at most %d", call, len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("schedule: %s(%q): the job's name is not valid UTF-8", call, name)
	}
	return nil
}

func wrap(op, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case name == "":
		return fmt.Errorf("schedule: %s: %w", op, err)
	}
	return fmt.Errorf("schedule: %s %q: %w", op, name, err)
}

// nudge makes the loop look at the queue again.
func (s *Scheduler) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
