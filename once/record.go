package once

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// An Outcome is how a run ended. The names are those of package schedule.
type Outcome string

// The outcomes.
const (
	Running   Outcome = "running"   // it has not ended
	Succeeded Outcome = "succeeded" // the function returned nil
	Failed    Outcome = "failed"    // the function returned an error
	Panicked  Outcome = "panicked"  // the function panicked, or ended its goroutine
	Stopped   Outcome = "stopped"   // the function returned because the context of its caller ended
	Died      Outcome = "died"      // the process died, or lost its lease, before it recorded an end
	Undone    Outcome = "undone"    // not a run: Reset was called
)

// An Entry is one run in a record.
type Entry struct {
	Number  int       `bson:"number"  json:"number"` // 1 for the very first run
	Owner   string    `bson:"owner"   json:"owner"`  // the process, as WithOwner names it
	Note    string    `bson:"note,omitempty" json:"note,omitempty"`
	Token   int64     `bson:"token"   json:"token,string"`
	Sum     string    `bson:"sum,omitempty" json:"sum,omitempty"` // the checksum of its Content
	Began   time.Time `bson:"began"   json:"began"`               // by the server's clock
	Ended   time.Time `bson:"ended,omitempty" json:"ended,omitzero"`
	Outcome Outcome   `bson:"outcome" json:"outcome"`
	Error   string    `bson:"error,omitempty" json:"error,omitempty"`
}

// Took returns how long the run took. It is zero if the run has not ended, or if its end is not
// known.
func (e Entry) Took() time.Duration {
	if e.Ended.IsZero() {
		return 0
	}
	return e.Ended.Sub(e.Began)
}

// A Record is the record of a name.
type Record struct {
	Name string  `json:"name"`
	Done bool    `json:"done"` // the work is done: Do runs nothing
	Runs int     `json:"runs"` // so far
	Past []Entry `json:"past"` // the last of them, the newest last; at most 20
}

// maxPast is how many runs a record keeps.
const maxPast = 20

const (
	shape    = int32(1) // the version of a document's shape, and the mark that it is ours
	mark     = "once"
	maxError = 1000 // bytes of an error's text
)

// A document is a Record as it is stored. The lock is beside its fields.
type document struct {
	Name string  `bson:"_id"`
	Mark int32   `bson:"once"`
	Done bool    `bson:"done"`
	Runs int     `bson:"runs"`
	Past []Entry `bson:"past"`
}

func (d *document) record() Record {
	return Record{Name: d.Name, Done: d.Done, Runs: d.Runs, Past: d.Past}
}

// read reads a document of any shape. A null would decode as work that was never begun, and run it again.
func read(raw bson.Raw) (*document, error) {
	foreign := func(field string) error {
		what := "it has no field " + field
		if v := raw.Lookup(field); v.Type != 0 {
			what = fmt.Sprintf("its field %s is %s", field, server.Clip(v, 60))
		}
		return fmt.Errorf("once: %s: %w: %s", server.Clip(raw.Lookup("_id"), 100), store.ErrForeign, what)
	}
	if !server.Is(raw.Lookup(mark), int64(shape)) {
		return nil, foreign(mark)
	}
	for _, field := range []string{"done", "runs", "past"} {
		if t := raw.Lookup(field).Type; t == 0 || t == bson.TypeNull {
			return nil, foreign(field)
		}
	}
	d := new(document)
	if err := bson.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("once: %s: %w: %w", server.Clip(raw.Lookup("_id"), 100), store.ErrForeign, err)
	}
	return d, nil
}

// newest returns the newest entry with one of these outcomes, or nil.
func (d *document) newest(of ...Outcome) *Entry {
	for i := len(d.Past) - 1; i >= 0; i-- {
		if slices.Contains(of, d.Past[i].Outcome) {
			return &d.Past[i]
		}
	}
	return nil
}

// failures returns the number of the newest run that failed; 0 if none did.
func (d *document) failures() int {
	if e := d.newest(Failed, Panicked); e != nil {
		return e.Number
	}
	return 0
}

// settled reports whether there is nothing to run, and what the call returns then: the work is
// done, or a newer run than number failures has failed elsewhere.
func (d *document) settled(sum string, failures int) (bool, error) {
	if d.Done {
		e := d.newest(Succeeded)
		if e != nil && sum != "" && e.Sum != "" && e.Sum != sum {
			return true, &ChangedError{Name: d.Name, Run: *e, Sum: sum}
		}
		return true, nil
	}
	if e := d.newest(Failed, Panicked); e != nil && e.Number > failures {
		return true, &FailedError{Name: d.Name, Run: *e}
	}
	return false, nil
}

// add adds an entry. A run before it that has no end has died.
func (d *document) add(e Entry) {
	past := make([]Entry, 0, len(d.Past)+1)
	for _, was := range d.Past {
		if was.Outcome == Running {
			was.Outcome = Died
		}
		past = append(past, was)
	}
	past = append(past, e)
	d.Past = past[max(0, len(past)-maxPast):]
}

// end sets how the newest run ended.
func (d *document) end(o Outcome, ended time.Time, why error) {
	past := append([]Entry(nil), d.Past...)
	e := &past[len(past)-1]
	e.Outcome, e.Ended = o, ended
	if why != nil {
		e.Error = strings.ToValidUTF8(why.Error(), "�")
		if len(e.Error) > maxError {
			e.Error = strings.ToValidUTF8(e.Error[:maxError], "") + "…"
		}
	}
	d.Past, d.Done = past, o == Succeeded
}

// outcomeOf returns how the run with that token ended; empty if the document no longer has it.
func (d *document) outcomeOf(token int64) Outcome {
	for _, e := range d.Past {
		if e.Token == token {
			return e.Outcome
		}
	}
	return ""
}
