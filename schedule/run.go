package schedule

import (
	"log/slog"
	"time"

	"github.com/mongolock/mongolock"
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
)

// A Run is one run of a job: the one under way, as the function gets it, or one from
// the job's past.
type Run struct {
	Job     string    `json:"job"`
	ID      string    `json:"id"`
	Fire    time.Time `json:"fire"`    // the time the job was due; the same in every process, whenever the run began
	Attempt int       `json:"attempt"` // 1; more if earlier attempts died and OnDeath(AtOnce) is set
	Owner   string    `json:"owner"`
	Began   time.Time `json:"began"` // all times are by the store's clock
	Ended   time.Time `json:"ended,omitzero"`
	Outcome Outcome   `json:"outcome,omitempty"`
	Error   string    `json:"error,omitempty"`

	ExpireAt time.Time `json:"expireAt,omitzero"` // of a run under way: until when its process is believed alive
	Slot     int       `json:"-"`                 // for the store

	// Lease is the run's own lease. It is set only in the Run that the function gets.
	Lease *mongolock.Lease `json:"-"`
}

// Token is a fencing token: it rises with every run of the job. A resource that refuses
// a lower token than it has seen is safe from a process that was paused (package fence).
// The package comment says what a wrong clock does to tokens.
func (r Run) Token() int64 { return r.Fire.UnixMilli()<<8 | int64(r.Attempt&0xff) }

// Took returns how long the run took, or zero if it has not ended.
func (r Run) Took() time.Duration {
	if r.Ended.IsZero() {
		return 0
	}
	return r.Ended.Sub(r.Began)
}

// LogValue returns what a log line shows of the run: job, fire and attempt.
func (r Run) LogValue() slog.Value {
	return slog.GroupValue(slog.String("job", r.Job), slog.Time("fire", r.Fire), slog.Int("attempt", r.Attempt))
}
