package schedule

import (
	"context"
	"errors"
	"time"
)

// A Store keeps the documents of jobs. Its duties are those of package store's
// contract: each call is atomic to every other; expiry is judged by the store's clock
// alone; a call changes only what its ID names; an ID is claimed once; a call returns
// soon after its context ends and starts nothing that outlives it; strings come back
// byte for byte. [NewMemory] is the reference, [New] uses the one on MongoDB; one suite
// (store_test.go) proves both.
type Store interface {
	// Claim takes a fire, or answers ErrNotDue. After any other error that does not match
	// store.ErrNotApplied the outcome of the claim is unknown. A run that ran out makes room
	// for the next fire at the latest when a Look has shown it.
	Claim(ctx context.Context, c Claim) (Claimed, error)

	// Renew prolongs a run, and never shortens it. Left counts from the start of the call.
	// Renew answers store.ErrGone if there is no such run, if it ran out, or if another took
	// its place.
	Renew(ctx context.Context, r Ref, ttl time.Duration) (left time.Duration, err error)

	// Finish ends a run and enters it in the job's past. It answers store.ErrGone as Renew
	// does, but it ends a run that ran out if no other has taken its place.
	Finish(ctx context.Context, e End) error

	// Undo gives back the fire of a claim whose outcome is unknown, or that came too late
	// to be run. The fire can then be claimed again, unless it was decided otherwise in
	// the meantime. Settled means that the claim is not there and never will be.
	Undo(ctx context.Context, c Claim) (settled bool, err error)

	// Look reads jobs and answers one State each, in the order of the names. Known is false
	// for a job that has no document. A document that is not of this package is an error
	// that matches store.ErrForeign; the other states are good.
	Look(ctx context.Context, names []string, detail Detail) ([]State, error)

	// Names lists all jobs, sorted.
	Names(ctx context.Context) ([]string, error)

	// Forget deletes a job's document. A run under way loses its lease.
	Forget(ctx context.Context, name string) error

	// Now returns the store's time, as far as it is known without asking.
	Now() time.Time
}

// ErrNotDue is the answer to a claim of a fire that is decided already, or whose job is busy.
var ErrNotDue = errors.New("schedule: the fire is taken, or a run is under way")

// Detail says how much Look reads.
type Detail bool

// With the past, which may be large, Look also returns the store's clock as it is then. Without
// the past, Now is only good for timers if no run is under way.
const (
	WithoutPast Detail = false
	WithPast    Detail = true
)

// A Ref names a run.
type Ref struct {
	Job, ID string
	Shared  bool // as in its Claim
}

// A Claim asks for a fire of a job.
type Claim struct {
	Ref
	Fire  time.Time
	Next  time.Time // the fire after it, for people
	TTL   time.Duration
	Owner string // for people
	Plan  string // for people
	Keep  int    // how many ended runs the job remembers

	From time.Time // if not zero: only if the fires up to it are decided
	Wait bool      // not while a run that died waits to be repeated

	// Ahead is set if decided lies far in the future because a clock was wrong. The claim is
	// then granted if decided is exactly that, and takes it back to Fire.
	Ahead time.Time

	// Dead is set if the claim repeats a run that ran out, and takes its place. The fire is
	// that run's, and decided stays as it is.
	Dead    *Run
	Attempt int // 1, or one more than that of Dead
}

// Claimed answers a Claim.
type Claimed struct {
	Left  time.Duration // how long the claim is honoured, from the start of the call
	Began time.Time     // by the store's clock
	Slot  int           // where Finish enters the run
	Dead  []Run         // runs that ran out, whose processes have died
}

// An End says how a run ended.
type End struct {
	Ref
	Run     Run       // with Outcome and Error; the store sets Ended
	Slot    int       // from the Claimed
	Dead    []Run     // from the Claimed: runs to enter as died
	Keep    int       // as in its Claim
	Decided time.Time // if not zero: the fires up to it are decided
}

// A State is what the store knows about a job.
type State struct {
	Job     string
	Known   bool // the job was claimed at least once
	Plan    string
	Decided time.Time // every fire up to it is decided
	Next    time.Time // the fire after it, by the plan of the last claim
	Busy    string    // the ID of the run under way
	Runs    []Run     // under way, sorted by fire; also those that ran out
	Past    []Run     // ended, the latest first
	Now     time.Time // the store's clock
}
