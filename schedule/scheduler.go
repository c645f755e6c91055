package schedule

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/store"
)

// A Func is the work of a job. Its context ends with the run's lease, and when the context of
// Scheduler.Run ends. An error is entered in the job's past and logged. A panic is entered too
// and ends the run; then the panic goes on and ends the process.
type Func func(ctx context.Context, run Run) error

// A Scheduler runs the jobs of one process. Make one for each process and collection, with New.
type Scheduler struct {
	config
	store boundedStore
	runs  *leaseStore
	wake  chan struct{} // something is due before the timer ends

	mu      sync.Mutex // protects the fields below and those of the jobs; never held across a store call
	jobs    map[string]*job
	fresh   []*job // not read yet
	queue   queue
	running bool
	client  *mongolock.Client  // while the Scheduler is running
	told    mongolock.Observer // the client's; set before a run begins
}

// A job is one job of this process.
type job struct {
	name string
	plan Plan // as Add was told; the one that holds is in plans
	fn   Func
	jobConfig

	asked atomic.Int64 // when the job was last told to run at once, in Unix milliseconds

	// The following belong to the one goroutine that has the job's item of the queue.
	plans   spans        // what the document says
	edition int64        // of plans
	due     time.Time    // the due time to claim next
	mark    time.Time    // every due time up to it is decided, as far as is known
	sure    bool         // mark comes from the document, or from this process's own last claim
	known   [2]time.Time // the last mark that was sure, and the first due time refused since then
	losses  int          // claims that were refused since then
	ahead   time.Time    // the next claim takes decided back from there; zero: it does not
	told    time.Time    // the decided that a log line said lies in the future
	looked  time.Time    // the last read after a lost claim, of a job that is due often
	pause   *backoff.Backoff

	// The following are protected by Scheduler.mu.
	reading  bool      // a read is scheduled
	stale    bool      // the document must be read before the next claim
	proposed bool      // the document has, or had, this process's plan
	changed  time.Time // the last change of the job that this process has seen
	removed  bool
}

// forget drops what an earlier Run has left to do.
func (j *job) forget() {
	j.asked.Store(0)
	j.plans, j.edition, j.mark, j.sure, j.ahead, j.told, j.looked, j.pause = nil, 0, time.Time{}, false, time.Time{}, time.Time{}, time.Time{}, nil
	j.reading, j.stale, j.proposed, j.changed = false, false, false, time.Time{}
}

// newWithStore makes a Scheduler on a store.
func newWithStore(s jobs.Store, opts ...Option) (*Scheduler, error) {
	conf, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	return &Scheduler{config: conf, store: boundedStore{s}, runs: newLeaseStore(s), wake: make(chan struct{}, 1), jobs: make(map[string]*job)}, nil
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
// A run that is under way, or being claimed, goes on. The job's document stays; Forget deletes it.
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

// Forget deletes what the database knows about a job: its past, and which due times were
// claimed. A run under way loses its lease. Forget is for jobs that no process has any
// more, and returns ErrUnknown for one that the database does not know.
func (s *Scheduler) Forget(ctx context.Context, name string) error {
	return s.change(ctx, "Forget", name, jobs.Forget, "")
}

// Job returns what the database knows about a job, whichever process runs it: when it is
// due next, its runs under way, its past. Known is false if no process has had it on its
// schedule.
func (s *Scheduler) Job(ctx context.Context, name string) (State, error) {
	if err := checkName("Job", name); err != nil {
		return State{}, err
	}
	all, err := s.runs.store.Read(ctx, []string{name}, jobs.WithPast) // the caller bounds it
	if err != nil {
		return State{}, wrap("read", name, err)
	}
	return stateOf(all[0], s.planOf(name)), nil
}

// Jobs yields all jobs that the database knows, sorted by name. An error that
// matches store.ErrForeign is about documents that are not jobs; any other ends the iteration.
func (s *Scheduler) Jobs(ctx context.Context) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		names, err := s.store.Names(ctx)
		if err != nil {
			yield(State{}, wrap("list", "", err))
			return
		}
		for chunk := range slices.Chunk(names, chunkSize) {
			all, err := s.runs.store.Read(ctx, chunk, jobs.WithPast) // a thousand pasts may be large
			if err != nil && !errors.Is(err, store.ErrForeign) {
				yield(State{}, wrap("list", "", err))
				return
			}
			for _, state := range all {
				if state.Known && !yield(stateOf(state, s.planOf(state.Job)), nil) {
					return
				}
			}
			if err != nil && !yield(State{}, wrap("list", "", err)) {
				return
			}
		}
	}
}

const chunkSize = 1000

// planOf returns the plan that this process has for a job, or nil.
func (s *Scheduler) planOf(name string) Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[name]; j != nil {
		return j.plan
	}
	return nil
}

// RunNow makes now a due time of a job. A process that has the job claims it within 30 s, mostly sooner
// if it has just started, or when the run under way has ended. A due time that comes in between will do as well. RunNow refuses a
// job that is paused. If it is paused before the claim, Resume drops the due time.
func (s *Scheduler) RunNow(ctx context.Context, name string) error {
	return s.change(ctx, "RunNow", name, jobs.AskRun, "the job is paused")
}

// Pause keeps a job from running, in all processes, until Resume. A run under way goes on.
func (s *Scheduler) Pause(ctx context.Context, name string) error {
	return s.change(ctx, "Pause", name, jobs.Pause, "")
}

// Resume ends a Pause. The job goes on with the next due time: those during the pause are not
// run, and do not count as dropped. One that was late when the pause began is dropped, and told by
// the next claim. Of a job that is not paused Resume returns an error.
func (s *Scheduler) Resume(ctx context.Context, name string) error {
	return s.change(ctx, "Resume", name, jobs.Resume, "the job is not paused")
}

// change changes a job in the database. If that has no meaning for the job as it is, why says so.
func (s *Scheduler) change(ctx context.Context, call, name string, change jobs.Change, why string) error {
	if err := checkName(call, name); err != nil {
		return err
	}
	changed, err := s.store.Change(ctx, name, change)
	switch {
	case err != nil:
		return wrap(call, name, err)
	case !changed:
		switch state, err := s.Job(ctx, name); {
		case err != nil:
			return err
		case state.Known && why != "":
			return fmt.Errorf("schedule: %s(%q): %s", call, name, why)
		}
		return fmt.Errorf("%w: %s(%q)", ErrUnknown, call, name)
	}
	s.mu.Lock()
	j := s.jobs[name]
	s.mu.Unlock()
	if j != nil {
		s.readAt(j, s.store.Now())
	}
	return nil
}

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
