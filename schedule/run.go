package schedule

import (
	"log/slog"
	"time"

	"github.com/mongolock/mongolock"
)

// Outcome is how a run ended.
type Outcome string

// The outcomes. A run under way has none.
const (
	Done     Outcome = "done"     // the function returned nil
	Failed   Outcome = "failed"   // it returned an error
	Panicked Outcome = "panicked" // it panicked; the process went down, unless somebody caught it
	Lost     Outcome = "lost"     // its lease ended under it
	Died     Outcome = "died"     // nothing was heard of it any more
)

// A Run is one run of a job: the one under way, as the function is given it, or
// one of the job's past.
type Run struct {
	Job     string    `json:"job"`
	ID      string    `json:"id"`
	Fire    time.Time `json:"fire"`    // what it runs for; the same in every process, whenever it began
	Attempt int       `json:"attempt"` // 1; more if earlier ones died and OnDeath(AtOnce) is set
	Owner   string    `json:"owner"`
	Began   time.Time `json:"began"` // by the store's clock, as all of these
	Ended   time.Time `json:"ended,omitzero"`
	Outcome Outcome   `json:"outcome,omitempty"`
	Error   string    `json:"error,omitempty"`

	ExpireAt time.Time `json:"expireAt,omitzero"` // of one under way: until when its process is believed to live
	Slot     int       `json:"-"`                 // the store's

	// Lease is the run's own, and set only for the function under it.
	Lease *mongolock.Lease `json:"-"`
}

// Token rises with every run of the job. A resource that refuses a lower one than
// it has seen is safe from a process that was paused (package fence).
func (r Run) Token() int64 { return r.Fire.UnixMilli()<<8 | int64(r.Attempt&0xff) }

// Took is how long it took; zero if it has not ended.
func (r Run) Took() time.Duration {
	if r.Ended.IsZero() {
		return 0
	}
	return r.Ended.Sub(r.Began)
}

// LogValue is what a log line says of it.
func (r Run) LogValue() slog.Value {
	return slog.GroupValue(slog.String("job", r.Job), slog.Time("fire", r.Fire), slog.Int("attempt", r.Attempt))
}
