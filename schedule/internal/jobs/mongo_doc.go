package jobs

import (
	"cmp"
	"errors"
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

type document struct {
	ID      string               `bson:"_id"`
	Mark    any                  `bson:"schedule"`
	Decided time.Time            `bson:"decided"`
	Ended   time.Time            `bson:"ended"`
	Asked   time.Time            `bson:"asked"`
	Paused  bool                 `bson:"paused"`
	Next    time.Time            `bson:"next"`
	Plan    string               `bson:"plan"`
	Busy    busyRun              `bson:"busy"`
	Runs    map[string]runRecord `bson:"runs"`
	Past    map[string]runRecord `bson:"past"`
	Keep    int                  `bson:"keep"`
	Seq     int                  `bson:"seq"`
	At      time.Time            `bson:"at"`

	PausedAt  time.Time `bson:"pausedAt"`
	ResumedAt time.Time `bson:"resumedAt"`
}

type busyRun struct {
	ID    string    `bson:"id"`
	Until time.Time `bson:"until"`
}

type runRecord struct {
	ID       string    `bson:"id"`
	Due      time.Time `bson:"due"`
	Attempt  int       `bson:"attempt"`
	Owner    string    `bson:"owner"`
	Began    time.Time `bson:"began"`
	ExpireAt time.Time `bson:"expireAt"`
	Ended    time.Time `bson:"ended"`
	Outcome  string    `bson:"outcome"`
	Error    string    `bson:"error"`

	TTL   int64         `bson:"ttl"`
	Beat  int64         `bson:"beat"`
	Epoch bson.ObjectID `bson:"epoch"`
}

// mark returns what is needed to judge whether a run under way is over.
func (r runRecord) mark(id string) server.HolderState {
	return server.HolderState{ID: id, Beat: r.Beat, Epoch: r.Epoch, TTL: time.Duration(r.TTL) * time.Millisecond, ExpireAt: r.ExpireAt}
}

func (d document) marks() []server.HolderState {
	all := make([]server.HolderState, 0, len(d.Runs))
	for id, r := range d.Runs {
		all = append(all, r.mark(id))
	}
	return all
}

// readDocument reads a job's document. It returns ErrForeign for a document of another origin.
func readDocument(raw bson.Raw) (document, error) {
	var d document
	mark, ok := raw.Lookup("schedule").AsInt64OK()
	if !ok || mark != shape {
		return d, fmt.Errorf("the document %v is not a job, or that of a newer version: %w", raw.Lookup("_id"), store.ErrForeign)
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
	if kind := raw.Lookup("decided").Type; kind != bson.TypeDateTime {
		return fmt.Errorf("decided is not a date but %q", kind)
	}
	if id := raw.Lookup("busy", "id"); id.Value != nil || id.Type == bson.TypeNull {
		name, isText := id.StringValueOK()
		if _, under := d.Runs[name]; !isText || !under {
			return fmt.Errorf("busy.id is %v, which is not one of runs", id)
		}
		if raw.Lookup("busy", "until").Type != bson.TypeDateTime {
			return errors.New("busy.until is not a date")
		}
	}
	for id := range d.Runs {
		if raw.Lookup("runs", id, "expireAt").Type != bson.TypeDateTime {
			return fmt.Errorf("runs.%s.expireAt is not a date", id)
		}
	}
	if paused := raw.Lookup("paused"); paused.Value != nil && !d.Paused {
		return fmt.Errorf("paused is %v: must be true, or not there", paused)
	}
	return nil
}

// run turns a record into a Run.
func (r runRecord) run(job, id string) Run {
	run := Run{Job: job, ID: id, Due: r.Due.UTC(), Attempt: r.Attempt, Owner: r.Owner, Began: r.Began.UTC(),
		Outcome: r.Outcome, Error: r.Error}
	if r.Ended.IsZero() {
		run.ExpireAt = r.ExpireAt.UTC()
	} else {
		run.Ended = r.Ended.UTC()
	}
	return run
}

// slot returns where in the ring the run of the n-th claim is entered.
func slot(seq, keep int) int { return seq % max(1, keep) }

// runs lists the runs under way, sorted by due time. A run's slot follows from the number of its
// claim, which the claim itself cannot write. But the runs under way are those of the latest
// claims. (If runs may overlap, a shorter one can have ended in between. If a run dies then, it
// overwrites a record that is not the oldest of the past.)
func (d document) runs() []Run {
	all := make([]Run, 0, len(d.Runs))
	for id, r := range d.Runs {
		run := r.run(d.ID, id)
		run.Alone = id == d.Busy.ID
		all = append(all, run)
	}
	slices.SortFunc(all, byDue)
	for i := range all {
		all[i].Slot = slot(max(0, d.Seq-(len(all)-1-i)), d.Keep)
	}
	return all
}

func (d document) state() State {
	ended := slices.SortedFunc(maps.Values(d.Past), func(a, b runRecord) int {
		return cmp.Or(b.Ended.Compare(a.Ended), byDue(b.run("", b.ID), a.run("", a.ID)))
	})
	s := State{Job: d.ID, Known: true, Plan: d.Plan, Decided: d.Decided.UTC(), Next: d.Next.UTC(), Asked: d.Asked.UTC(), Paused: d.Paused, Busy: d.Busy.ID, Runs: d.runs()}
	for _, r := range ended[:min(len(ended), max(1, d.Keep))] {
		s.Past = append(s.Past, r.run(d.ID, r.ID))
	}
	return s
}

// enter returns the fields of the ring that a run's end sets, all but the time of its end.
func enter(r Run, outcome, text string) bson.D {
	at := at(r.Slot)
	return bson.D{
		{Key: at + "id", Value: r.ID},
		{Key: at + "due", Value: date(r.Due)},
		{Key: at + "attempt", Value: r.Attempt},
		{Key: at + "owner", Value: r.Owner},
		{Key: at + "began", Value: date(r.Began)},
		{Key: at + "outcome", Value: outcome},
		{Key: at + "error", Value: text},
	}
}

// at returns the path of a slot of the ring.
func at(slot int) string { return fmt.Sprintf("past.%d.", slot) }

func date(t time.Time) bson.DateTime { return bson.NewDateTimeFromTime(t) }
