package schedule

import (
	"log/slog"
	"slices"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// Outcome says how a run ended. The names are those of package once.
type Outcome string

// The outcomes. A run that is under way has no outcome yet.
const (
	Succeeded Outcome = "succeeded" // the function returned nil
	Failed    Outcome = "failed"    // the function returned an error
	Panicked  Outcome = "panicked"  // the function panicked; the process exited, unless something recovered
	Stopped   Outcome = "stopped"   // the function returned an error after its context had ended, because the process was stopping
	Died      Outcome = "died"      // the process died, or lost the run's lease, before it recorded an end
	Unbegun   Outcome = "unbegun"   // of a run that waits to be repeated: its claim was undone before the function was called
	TooLate   Outcome = "too late"  // the function was not called: the due time had passed by more than MaxLate
)

// A Run is one run of a job: the one under way, as the function gets it, or one from
// the job's past.
type Run struct {
	Job     string    `json:"job"`
	ID      string    `json:"id"`
	Due     time.Time `json:"due"`     // the time the job was due; the same in every process, whenever the run began
	Attempt int       `json:"attempt"` // 1; more if earlier attempts were stopped or died
	Owner   string    `json:"owner"`
	Began   time.Time `json:"began"` // all times are by the store's clock
	Ended   time.Time `json:"ended,omitzero"`
	Outcome Outcome   `json:"outcome,omitempty"`
	Error   string    `json:"error,omitempty"`

	ExpireAt time.Time `json:"expireAt,omitzero"` // of a run under way: until when its process is believed alive
	Again    time.Time `json:"again,omitzero"`    // of a run that has an outcome and is to be repeated: from when on
	Number   int64     `json:"number,omitempty"`  // of the claim among those of the job; zero for a run of another process that is under way

	// Lease is the run's own lease. It is set only in the Run that the function gets, and released when
	// that returns.
	Lease *mongolock.Lease `json:"-"`
}

// Token is a fencing token, the run's Number: it rises with every run of the job. A resource that refuses
// a lower token than it has seen is safe from a process that was paused (package fence).
func (r Run) Token() int64 { return r.Number }

// Took returns how long the run took, or zero if it has not ended.
func (r Run) Took() time.Duration {
	if r.Ended.IsZero() {
		return 0
	}
	return r.Ended.Sub(r.Began)
}

// LogValue returns what a log line shows of the run: job, due time and attempt.
func (r Run) LogValue() slog.Value {
	return slog.GroupValue(slog.String("job", r.Job), slog.Time("due", r.Due), slog.Int("attempt", r.Attempt))
}

// runOf makes a Run of what the store knows.
func runOf(r jobs.Run) Run {
	return Run{Job: r.Job, ID: r.ID, Due: r.Due, Attempt: r.Attempt, Owner: r.Owner, Began: r.Began, Ended: r.Ended,
		Outcome: Outcome(r.Outcome), Error: r.Error, ExpireAt: r.ExpireAt, Again: r.Again, Number: r.Number}
}

// A State is what the database knows about a job.
type State struct {
	Job     string    `json:"job"`
	Known   bool      `json:"known"` // a process has had it on its schedule
	Paused  bool      `json:"paused"`
	Plan    string    `json:"plan"`
	Decided time.Time `json:"decided,omitzero"` // every due time up to it is decided
	Next    time.Time `json:"next,omitzero"`    // the due time after it; zero if there is none, or with PlanErr
	PlanErr error     `json:"-"`                // the plan cannot be read here; it matches ErrPlan
	Runs    []Run     `json:"runs"`             // under way, sorted by due time; also those that wait to be repeated
	Past    []Run     `json:"past"`             // ended, the latest first
	Now     time.Time `json:"now"`              // the database's clock

	Tried     time.Time `json:"tried,omitzero"`     // when a run was last claimed
	Succeeded time.Time `json:"succeeded,omitzero"` // when a run last ended well
}

// Overdue returns for how long the job has been waiting for a process. What waits is its next due time, also for the
// end of a run under way, or a run that is over and was not repeated. If nothing does, or the job is paused, it is zero.
func (s State) Overdue() time.Duration {
	if s.Paused {
		return 0
	}
	since := s.Now
	if !s.Next.IsZero() {
		since = earlier(since, s.Next)
	}
	for _, r := range s.Runs { // of one that is left ExpireAt is past
		since = earlier(since, later(later(r.Began, r.ExpireAt), later(r.Ended, r.Again)))
	}
	return s.Now.Sub(since)
}

// Failing reports whether the last run that ended did not succeed. One that was stopped, and is repeated, does not count.
func (s State) Failing() bool {
	if slices.ContainsFunc(s.Runs, func(r Run) bool { return r.Outcome == Failed || r.Outcome == Panicked }) {
		return true
	}
	return len(s.Past) > 0 && s.Past[0].Outcome != Succeeded && (s.Past[0].Outcome != Stopped || len(s.Runs) == 0)
}

func stateOf(s jobs.State, own Plan) State {
	state := State{Job: s.Job, Known: s.Known, Paused: s.Paused, Decided: s.Decided, Now: s.Now, Tried: s.Tried, Succeeded: s.Succeeded}
	if s.Known {
		state.Plan = s.Plans[len(s.Plans)-1].Plan
		var plans spans
		if plans, state.PlanErr = readPlans(s.Plans, own, s.Decided); state.PlanErr == nil {
			state.Next = plans.Next(later(s.Decided, plans.resumed()))
			if s.Asked.After(s.Decided) && (state.Next.IsZero() || s.Asked.Before(state.Next)) {
				state.Next = s.Asked
			}
		}
	}
	for _, r := range s.Runs {
		state.Runs = append(state.Runs, runOf(r))
	}
	for _, r := range s.Past {
		state.Past = append(state.Past, runOf(r))
	}
	return state
}
