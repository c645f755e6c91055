package jobstest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// A History is what became of a job: each change of its document, and each call of its function, in their order.
type History struct {
	Name               string
	Begin              time.Time
	Each, Beside, Once bool
	MaxLate            time.Duration // 0: none
	Retries            int
	Backoff, TTL       time.Duration
	Due                map[string][]time.Time // of each plan
	Steps              []Step
}

// A Step is a change of a job's document, or a function that is called for a run, or returns.
type Step struct {
	At     time.Time
	Before *Document `json:"-"`
	After  *Document
	TTL    time.Duration // of a claim
	Run    string
	Over   bool
}

// A Document is that of a job.
type Document struct {
	jobs.State `bson:",inline"`
	PausedAt   time.Time           `bson:"pausedAt"`
	Runs       map[string]jobs.Run `bson:"runs"`
	Beats      map[string]int64    `bson:"-"`    // of runs on MongoDB
	Past       map[string]jobs.Run `bson:"past"` // at least the run that has just ended
}

// A Recorder notes how calls change jobs in a store that does not wait.
type Recorder struct {
	Store

	mu    sync.Mutex
	steps map[string][]Step
	last  map[string]*Document
}

// NewRecorder returns a way to a store.
func NewRecorder(to jobs.Store) *Recorder {
	r := &Recorder{steps: map[string][]Step{}, last: map[string]*Document{}}
	r.Store = Store{To: to, Through: r.through}
	return r
}

func (r *Recorder) through(_ context.Context, c Call, send func() error) error {
	if c.Job == "" {
		return send()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := send()
	all, _ := r.To.Read(context.Background(), []string{c.Job}, jobs.Detail(c.Op == "end"))
	if err != nil || len(all) == 0 || !all[0].Known {
		return err
	}
	after := &Document{State: all[0], Runs: map[string]jobs.Run{}, Past: map[string]jobs.Run{}}
	for _, run := range all[0].Runs {
		after.Runs[run.ID] = run
	}
	for _, run := range all[0].Past[:min(1, len(all[0].Past))] {
		after.Past[run.ID] = run
	}
	before := r.last[c.Job]
	if before == nil {
		before = &Document{}
	}
	r.steps[c.Job] = append(r.steps[c.Job], Step{At: time.Now(), Before: before, After: after, TTL: c.Claim.TTL})
	r.last[c.Job] = after
	return nil
}

// Called notes that the function of a job is called for a run, or has returned.
func (r *Recorder) Called(job, run string, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps[job] = append(r.steps[job], Step{At: time.Now(), Run: run, Over: over})
}

// Steps returns what became of a job so far.
func (r *Recorder) Steps(job string) []Step {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.steps[job])
}
