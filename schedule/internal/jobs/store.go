// Package jobs keeps the documents of jobs, for package schedule alone: in memory, which is the
// reference, and on MongoDB. One suite, in package schedule, proves both. docs/internals/schedule.md
// describes the document and its commands.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// A Store keeps the documents of jobs. Its duties are those of package store's
// contract: each call is atomic to every other; expiry is judged by the store's clock
// alone; a call changes only what its ID names; an ID is claimed once; a call returns
// soon after its context ends and starts nothing that outlives it; strings come back
// byte for byte.
type Store interface {
	// Claim takes a due time, or repeats a run, or answers ErrNotDue. After any other error that
	// does not match store.ErrNotApplied the outcome is unknown. That a run is over is known at
	// the latest when a Read has shown it.
	Claim(ctx context.Context, c Claim) (Claimed, error)

	// Renew prolongs a run, and never shortens it. With begun it is noted that the function was
	// called, and that what the claim dropped is told. Left counts from the start of the call.
	// Renew answers store.ErrGone if there is no such run, if it ran out, or if another took its place.
	Renew(ctx context.Context, r Ref, ttl time.Duration, begun bool) (left time.Duration, err error)

	// End enters a run in the job's past. If it is to be repeated (Run.Again), the run is left
	// instead: it is over at once, and stays. End answers store.ErrGone as Renew does, but it
	// ends a run that ran out if no other has taken its place.
	End(ctx context.Context, e End) error

	// Undo leaves a claim of unknown outcome, or one that came too late to be run, as Unbegun. With
	// Back the due time of the last claim is not decided any more. Settled means that the claim is
	// not there, or is left, and never will be otherwise.
	Undo(ctx context.Context, c Claim) (settled bool, err error)

	// Read reads jobs and answers one State each, in the order of the names. Known is false
	// for a job that has no document. A document that is not of this package is an error
	// that matches store.ErrForeign; the other states are good.
	Read(ctx context.Context, names []string, detail Detail) ([]State, error)

	// Register makes the document of a job that has none, with a plan that holds after now. It returns the
	// job, whoever has made it, as Read does without the past.
	Register(ctx context.Context, name, plan string, now time.Time) (State, error)

	// Plan replaces the plans of a job, or answers ErrNotDue if by now its edition is not the one that was seen,
	// or something else is decided.
	Plan(ctx context.Context, seen State, plans []Span) error

	// Change changes what a job is to do. It reports false if there is no such job, or if it is
	// not in a state in which the change has a meaning.
	Change(ctx context.Context, name string, change Change) (changed bool, err error)

	// Changed returns which of the jobs were changed after since, by Plan or Change, and when.
	Changed(ctx context.Context, names []string, since time.Time) (map[string]time.Time, error)

	// Names lists all jobs, sorted.
	Names(ctx context.Context) ([]string, error)

	// Now returns the store's time, as far as it is known without asking.
	Now() time.Time
}

// ErrNotDue is the answer to a claim of a due time that is decided already, or whose job is busy
// or paused, or has other plans.
var ErrNotDue = errors.New("schedule: the due time is taken, a run is under way, or the job is paused or changed")

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
	Resume               // they are granted again, and a span without due times stands for the pause; of a paused job only
	Forget               // its document is deleted; a run under way loses its lease
)

// A Ref names a run.
type Ref struct{ Job, ID string }

// A Span is a plan, and the time after which it holds, up to that of the next one. An empty plan is a
// pause that is over.
type Span struct {
	Plan string    `bson:"plan"`
	From time.Time `bson:"from"`
}

// A Drop is a number of due times that a claim has dropped.
type Drop struct {
	First time.Time `bson:"first"`
	Last  time.Time `bson:"last"`
	Count int       `bson:"count"`
	Why   string    `bson:"why"`
}

// A Claim asks for a due time of a job, or to repeat a run.
type Claim struct {
	Ref
	Run   Run // Due, Attempt, Deaths, Fails, Drops, Verdict; Owner and Began of a verdict on a run that died
	TTL   time.Duration
	Keep  int  // how many ended runs the job remembers
	Alone bool // not while another run is open

	// A due time is granted if the job has that edition, and Mark ≤ decided < First.
	Edition     int64
	Mark, First time.Time

	Asked time.Time // with a verdict: only if RunNow was last called then
	Ahead time.Time // granted if decided is exactly that, because a clock was wrong; decided is taken back to the due time
	Back  bool      // for Undo: the due time has not come

	Dead  *Run  // the run to be repeated, which is over
	Enter bool  // it goes to the past
	Seq   int64 // with Enter: only if that is the number of the last claim
}

// Claimed answers a Claim.
type Claimed struct {
	Left   time.Duration // how long the claim is honoured, from the start of the call
	Began  time.Time     // by the store's clock
	Number int64         // of the claim among those of the job
}

// An End says how a run ended.
type End struct {
	Ref
	Run  Run // with Outcome, Error and Again; the store sets Ended
	Keep int // as in its Claim
}

// A Run is a run as a store knows it. Package schedule shows it to people.
type Run struct {
	Job      string    `bson:"-"`
	ID       string    `bson:"id,omitempty"`
	Due      time.Time `bson:"due"`
	Attempt  int       `bson:"attempt"`
	Deaths   int       `bson:"deaths,omitempty"` // attempts that ran out before this one
	Fails    int       `bson:"fails,omitempty"`  // attempts that failed before this one
	Owner    string    `bson:"owner"`
	Began    time.Time `bson:"began"`
	Number   int64     `bson:"number,omitempty"` // of its claim; zero if it is not known
	ExpireAt time.Time `bson:"expireAt,omitempty"`
	Begun    bool      `bson:"begun,omitempty"`   // the function was called for certain
	Verdict  string    `bson:"verdict,omitempty"` // why it is not to be called
	Drops    []Drop    `bson:"drops,omitempty"`   // that may not be told yet

	Outcome string    `bson:"outcome,omitempty"`
	Error   string    `bson:"error,omitempty"`
	Ended   time.Time `bson:"ended,omitempty"`
	Again   time.Time `bson:"again,omitempty"` // from when on a run that was left is to be repeated
}

// Outcomes of which a store knows.
const (
	Unbegun   = "unbegun" // the claim was undone
	Died      = "died"
	Succeeded = "succeeded"
)

// asDead returns the run as its repetition enters it in the past.
func (r Run) asDead() Run {
	if r.Outcome == "" {
		r.Outcome, r.Ended = Died, r.ExpireAt
	}
	return r
}

// left returns the run as one that is over, and stays.
func (r Run) left(outcome, text string, now, again time.Time) Run {
	r.Outcome, r.Error, r.Ended, r.Again, r.ExpireAt = outcome, text, now, again, time.UnixMilli(0).UTC()
	return r
}

// past returns the run as the past has it.
func (r Run) past() Run {
	r.ExpireAt, r.Drops, r.Again = time.Time{}, nil, time.Time{}
	return r
}

// A State is what the store knows about a job.
type State struct {
	Job     string    `bson:"_id"`
	Known   bool      `bson:"-"` // it has a document
	Foreign error     `bson:"-"` // its document is not of this package: why; it matches store.ErrForeign
	Plans   []Span    `bson:"plans"`
	Edition int64     `bson:"edition"`
	Decided time.Time `bson:"decided"` // every due time up to it is decided
	Asked   time.Time `bson:"asked"`   // when RunNow was last called
	Changed time.Time `bson:"changed"`
	Paused  bool      `bson:"paused"`
	Seq     int64     `bson:"seq"` // the number of the last claim
	Runs    []Run     `bson:"-"`   // open, sorted by due time
	Past    []Run     `bson:"-"`   // ended, the latest first
	Now     time.Time `bson:"-"`

	Tried     time.Time `bson:"tried"`     // the last claim
	Succeeded time.Time `bson:"succeeded"` // the last end that was a success
}

func byDue(a, b Run) int {
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
}

// resumed returns plans with a pause that is over now.
func resumed(plans []Span, paused, now time.Time) []Span {
	plan := plans[len(plans)-1].Plan
	before := slices.IndexFunc(plans[1:], func(s Span) bool { return !s.From.Before(paused) })
	if before >= 0 {
		plans = plans[:before+1]
	}
	return append(slices.Clone(plans), Span{From: paused}, Span{Plan: plan, From: now})
}
