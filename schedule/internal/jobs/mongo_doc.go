package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// shape is the version of the document, and marks it as this package's. Every filter asks for
// it, which is also how an upsert writes it.
const shape = 1

var (
	ours  = bson.E{Key: "schedule", Value: shape}
	stamp = bson.E{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}}
)

func named(job string) bson.D { return bson.D{{Key: "_id", Value: job}, ours} }

// open matches the job's document while the run is open.
func (r Ref) open() bson.D {
	return append(named(r.Job), bson.E{Key: "runs." + r.ID, Value: bson.D{{Key: "$exists", Value: true}}})
}

// A document is what docs/internals/schedule.md describes.
type document struct {
	State    `bson:",inline"`
	PausedAt time.Time         `bson:"pausedAt"`
	Runs     map[string]record `bson:"runs"`
	Past     map[string]Run    `bson:"past"`
	Keep     int               `bson:"keep"`
	At       time.Time         `bson:"at"`
}

// A record is a run that is open.
type record struct {
	Run   `bson:",inline"`
	TTL   int64         `bson:"ttl"`
	Beat  int64         `bson:"beat"`
	Epoch bson.ObjectID `bson:"epoch"`
}

// marks returns what is needed to judge which open runs are over. One that was left is over by any clock.
func (d document) marks() []server.HolderState {
	all := make([]server.HolderState, 0, len(d.Runs))
	for id, r := range d.Runs {
		mark := server.HolderState{ID: id, Beat: r.Beat, Epoch: r.Epoch, TTL: time.Duration(r.TTL) * time.Millisecond, ExpireAt: r.ExpireAt}
		if r.Outcome != "" {
			mark.TTL = 0
		}
		all = append(all, mark)
	}
	return all
}

func errNoJob(id any) error {
	return fmt.Errorf("the document %v is not a job, or that of a newer version: %w", id, store.ErrForeign)
}

// readDocument reads a job's document. It returns ErrForeign for a document of another origin.
func readDocument(raw bson.Raw) (document, error) {
	var d document
	if !server.Is(raw.Lookup("schedule"), shape) {
		return d, errNoJob(raw.Lookup("_id"))
	}
	if err := bson.Unmarshal(raw, &d); err != nil {
		return d, fmt.Errorf("the document %v is marked as a job, but has another shape (%w): %w", raw.Lookup("_id"), err, store.ErrForeign)
	}
	if err := d.check(raw); err != nil {
		return d, fmt.Errorf("the document %v of a job was changed by hand: %w: %w", raw.Lookup("_id"), err, store.ErrForeign)
	}
	return d, nil
}

// check says what makes a document one that no claim would ever match.
func (d document) check(raw bson.Raw) error {
	if decided := raw.Lookup("decided"); decided.Type != bson.TypeDateTime || decided.DateTime() < 0 {
		return fmt.Errorf("decided is %v: must be a date since 1970", decided)
	}
	if open := raw.Lookup("open"); !server.Is(open, int64(len(d.Runs))) {
		return fmt.Errorf("open is %v: there are %d runs", open, len(d.Runs))
	}
	if edition := raw.Lookup("edition"); len(d.Plans) == 0 || d.Edition < 1 || !server.Is(edition, d.Edition) {
		return fmt.Errorf("plans is %v, and edition %v", raw.Lookup("plans"), edition)
	}
	for id, r := range d.Runs {
		switch beat := raw.Lookup("runs", id, "beat"); {
		case raw.Lookup("runs", id, "expireAt").Type != bson.TypeDateTime:
			return fmt.Errorf("runs.%s.expireAt is not a date", id)
		case r.Due.IsZero():
			return fmt.Errorf("runs.%s.due is no date", id)
		case !server.Is(beat, r.Beat):
			return fmt.Errorf("runs.%s.beat is %v: must be an integer", id, beat)
		}
	}
	if paused := raw.Lookup("paused"); paused.Value != nil && !d.Paused {
		return fmt.Errorf("paused is %v: must be true, or not there", paused)
	}
	return nil
}

func (d document) state() State {
	s := d.State
	s.Known = true
	for id, r := range d.Runs {
		r.Job, r.ID = d.Job, id
		s.Runs = append(s.Runs, r.Run)
	}
	slices.SortFunc(s.Runs, byDue)
	ended := slices.SortedFunc(maps.Values(d.Past), func(a, b Run) int { return cmp.Or(b.Ended.Compare(a.Ended), byDue(b, a)) })
	s.Past = ended[:min(len(ended), max(1, d.Keep))]
	for i := range s.Past {
		s.Past[i].Job = d.Job
	}
	return s
}

// enter returns what enters a run in the past: the ring has a slot for each number modulo keep.
func enter(r Run, number int64, keep int) bson.E {
	r = r.past()
	r.Number = number
	return bson.E{Key: fmt.Sprintf("past.%d", number%int64(max(1, keep))), Value: r}
}

func date(t time.Time) bson.DateTime { return server.Date(t) }
