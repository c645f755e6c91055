package schedule

import (
	"context"
	"errors"
	"time"
)

// A Store keeps the documents of jobs. Duties, as of package store's contract:
// each call is one step to all others; expiry is judged by the store's clock alone;
// what an ID names is changed and nothing else; an ID is claimed once; a call
// returns soon after its context ends and starts nothing that outlives it; strings
// come back byte for byte. [NewMemory] is the reference, [New] uses the one on
// MongoDB; one suite (store_test.go) proves both.
type Store interface {
	// Claim takes a fire: a Claimed, or ErrNotDue. Any other error that does not
	// match store.ErrNotApplied is of unknown outcome.
	Claim(ctx context.Context, c Claim) (Claimed, error)

	// Renew prolongs a run, never shortens it: left counts from the start of the call.
	// store.ErrGone if there is no such run, or it ran out, or another took its place.
	Renew(ctx context.Context, r Ref, ttl time.Duration) (left time.Duration, err error)

	// Finish ends a run and enters it in the job's past; store.ErrGone like Renew, but
	// one that ran out and is still in its place is ended.
	Finish(ctx context.Context, e End) error

	// Undo gives back a claim of unknown outcome, or one that came too late to be run:
	// the fire can be claimed again, unless it was decided otherwise since. Settled
	// means that the claim is not there and will not be.
	Undo(ctx context.Context, c Claim) (settled bool, err error)

	// Look reads jobs: one State each, in order; that of an unknown one has Known false.
	// Of a stranger's document the error tells (store.ErrForeign).
	Look(ctx context.Context, names []string) ([]State, error)

	// Names lists all jobs there are, in order.
	Names(ctx context.Context) ([]string, error)

	// Forget removes what is known of a job. A run under way loses its lease.
	Forget(ctx context.Context, name string) error

	// Now is the store's clock as well as it is known, without asking.
	Now() time.Time
}

// ErrNotDue answers a claim of a fire that was decided before, or whose job is busy.
var ErrNotDue = errors.New("schedule: the fire is taken, or the job is at work")

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

	From time.Time // if not zero: only if the fires up to here are decided
	Wait bool      // not while a run that died waits to be repeated

	// In the place of a run that ran out, whose fire this is. Then no other is decided.
	Dead    *Run
	Attempt int // 1, or one more than that of the dead run
}

// Claimed answers a Claim.
type Claimed struct {
	Left  time.Duration // honoured for so long, counted from the start of the call
	Began time.Time     // by the store's clock
	Slot  int           // where Finish is to enter the run
	Dead  []Run         // runs of which no more will be heard
}

// End is how a run ended.
type End struct {
	Ref
	Run     Run       // with Outcome and Error; its Ended is the store's to say
	Slot    int       // from the Claimed
	Dead    []Run     // from the Claimed: entered as died
	Keep    int       // as in its Claim
	Decided time.Time // if not zero: the fires up to it are decided
}

// State is a job as the store has it.
type State struct {
	Job     string
	Known   bool
	Plan    string
	Decided time.Time // every fire up to it is decided
	Next    time.Time // the fire after it, as far as is known
	Busy    string    // the ID of the run under way
	Runs    []Run     // under way, those that ran out included; by Fire
	Past    []Run     // ended, the last one first
	Now     time.Time // the store's clock
}
