// Package jobs keeps the documents of jobs, for package schedule alone: in memory, which is the
// reference, and on MongoDB. One suite, in package schedule, proves both.
package jobs

import (
	"context"
	"errors"
	"time"
)

// A Store keeps the documents of jobs. Its duties are those of package store's
// contract: each call is atomic to every other; expiry is judged by the store's clock
// alone; a call changes only what its ID names; an ID is claimed once; a call returns
// soon after its context ends and starts nothing that outlives it; strings come back
// byte for byte.
type Store interface {
	// Claim takes a due time, or answers ErrNotDue. After any other error that does not match
	// store.ErrNotApplied the outcome of the claim is unknown. A run that ran out makes room
	// for the next due time at the latest when a Read has shown it.
	Claim(ctx context.Context, c Claim) (Claimed, error)

	// Renew prolongs a run, and never shortens it. Left counts from the start of the call.
	// Renew answers store.ErrGone if there is no such run, if it ran out, or if another took
	// its place.
	Renew(ctx context.Context, r Ref, ttl time.Duration) (left time.Duration, err error)

	// Finish ends a run and enters it in the job's past. It answers store.ErrGone as Renew
	// does, but it ends a run that ran out if no other has taken its place.
	Finish(ctx context.Context, e End) error

	// Leave makes a run expire at once, with its outcome, so that another process repeats it.
	// It answers store.ErrGone as Finish does.
	Leave(ctx context.Context, e End) error

	// Undo gives back the due time of a claim whose outcome is unknown, or that came too late
	// to be run. It can then be claimed again, unless it was decided otherwise in the
	// meantime. Settled means that the claim is not there and never will be.
	Undo(ctx context.Context, c Claim) (settled bool, err error)

	// Read reads jobs and answers one State each, in the order of the names. Known is false
	// for a job that has no document. A document that is not of this package is an error
	// that matches store.ErrForeign; the other states are good.
	Read(ctx context.Context, names []string, detail Detail) ([]State, error)

	// Register makes the document of a job that has none. The due times up to now are decided.
	Register(ctx context.Context, name, plan string, now, next time.Time) error

	// Change changes what a job is to do. It reports false if there is no such job, or if it is
	// not in a state in which the change has a meaning.
	Change(ctx context.Context, name string, change Change) (changed bool, err error)

	// Asked returns which of the jobs were to run now (AskRun) after since, and when.
	Asked(ctx context.Context, names []string, since time.Time) (map[string]time.Time, error)

	// Names lists all jobs, sorted.
	Names(ctx context.Context) ([]string, error)

	// Forget deletes a job's document. A run under way loses its lease.
	Forget(ctx context.Context, name string) error

	// Now returns the store's time, as far as it is known without asking.
	Now() time.Time
}

// ErrNotDue is the answer to a claim of a due time that is decided already, or whose job is busy
// or paused.
var ErrNotDue = errors.New("schedule: the due time is taken, a run is under way, or the job is paused")

// Detail says how much Read reads.
type Detail bool

// With the past, which may be large, Read also returns the store's clock as it is then. Without
// the past, Now is only good for timers if no run is under way.
const (
	WithoutPast Detail = false
	WithPast    Detail = true
)

// A Change is what Change does to a job.
type Change int

// The changes.
const (
	AskRun Change = iota // now becomes a due time; not of a paused job
	Pause                // its claims are refused
	Resume               // they are granted again; the due times up to now are decided; of a paused job only
)

// A Ref names a run.
type Ref struct {
	Job, ID string
	Shared  bool // as in its Claim
}

// A Claim asks for a due time of a job.
type Claim struct {
	Ref
	Due   time.Time
	Next  time.Time // the due time after it, for people
	TTL   time.Duration
	Owner string // for people
	Plan  string // for people
	Keep  int    // how many ended runs the job remembers

	From time.Time // if not zero: only if the due times up to it are decided
	Wait bool      // not while a run that died waits to be repeated

	// Ahead is set if decided lies far in the future because a clock was wrong. The claim is
	// then granted if decided is exactly that, and takes it back to Due.
	Ahead time.Time

	// Dead is set if the claim repeats a run that ran out, and takes its place. The due time is
	// that run's, and decided stays as it is.
	Dead    *Run
	Attempt int // 1, or one more than that of Dead
}

// Claimed answers a Claim.
type Claimed struct {
	Left   time.Duration // how long the claim is honoured, from the start of the call
	Began  time.Time     // by the store's clock
	Before time.Time     // the last due time that was claimed before; zero: none is known
	Slot   int           // where Finish enters the run
	Dead   []Run         // runs that ran out, whose processes have died

	// The last pause that ended. The due times after Paused, up to Resumed, were left out on purpose.
	Paused, Resumed time.Time

	Asked time.Time // when the job was last told to run at once
}

// An End says how a run ended.
type End struct {
	Ref
	Run  Run   // with Outcome and Error; the store sets Ended
	Slot int   // from the Claimed
	Dead []Run // from the Claimed: runs to enter as died
	Keep int   // as in its Claim
}

// A Run is a run as a store knows it. Package schedule shows it to people.
type Run struct {
	Job, ID        string
	Due            time.Time
	Attempt        int
	Owner          string
	Began, Ended   time.Time
	Outcome, Error string
	ExpireAt       time.Time // of a run that is under way or waits to be repeated
	Slot           int
	Alone          bool // as Read shows it: it keeps the job busy
}

// The outcome of a run that ran out without one.
const died = "died"

// outcomeOfDead returns how a run that ran out is entered in the past.
func (r Run) outcomeOfDead() string {
	if r.Outcome != "" {
		return r.Outcome
	}
	return died
}

// A State is what the store knows about a job.
type State struct {
	Job     string
	Known   bool  // it has a document
	Foreign error // its document is not of this package: why; it matches store.ErrForeign
	Plan    string
	Decided time.Time // every due time up to it is decided
	Next    time.Time // the due time after it, by the plan of the last claim
	Asked   time.Time // when the job was last told to run at once
	Paused  bool
	Busy    string // the ID of the run under way
	Runs    []Run  // under way, sorted by due time; also those that ran out
	Past    []Run  // ended, the latest first
	Now     time.Time
}
