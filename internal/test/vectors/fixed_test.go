package vectors

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A vector has the same text however often it is made. Its dates count from a fixed one, in steps
// of ten seconds. Revisions and beats are numbers of their order, as large as real ones: a
// client that takes them for doubles does not pass.
const (
	aRev  = 1_000_000_000_000_000
	aBeat = 1_900_000_000_000_000_000
	tick  = 10 * time.Second
)

var base = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// A fixer puts fixed values in the place of those that chance and time have drawn.
type fixer struct {
	began  time.Time
	before []bson.D // the documents in which the step began: dates that differ from theirs are the server's
	of     any      // the ID of the document that is being fixed
	revs   []int64
	beats  []int64 // in order
	epochs []bson.ObjectID
}

// learn takes note of the revisions, beats and epochs in a value.
func (f *fixer) learn(v any) {
	walk(v, "", func(name string, v any) {
		switch v := v.(type) {
		case int64:
			switch {
			case name == "rev" && v > 1 && !slices.ContainsFunc(f.revs, func(r int64) bool { return follows(r, v) }):
				f.revs = append(f.revs, v)
			case name == "beat" && !slices.Contains(f.beats, v):
				f.beats = append(f.beats, v)
				slices.Sort(f.beats)
			}
		case bson.ObjectID:
			if name == "epoch" && !slices.Contains(f.epochs, v) {
				f.epochs = append(f.epochs, v)
			}
		}
	})
}

// follows reports whether a revision is another one, grown.
func follows(r, later int64) bool { return later >= r && later-r < 100 }

func walk(v any, name string, visit func(name string, v any)) {
	switch v := v.(type) {
	case bson.D:
		for _, e := range v {
			walk(e.Value, under(name, e.Key), visit)
		}
	case bson.A:
		for _, one := range v {
			walk(one, name, visit)
		}
	default:
		visit(name[strings.LastIndexByte(name, '.')+1:], v)
	}
}

// under returns the path of a field. An operator is none.
func under(path, field string) string {
	switch {
	case strings.HasPrefix(field, "$"):
		return path
	case path == "":
		return field
	}
	return path + "." + field
}

// command returns what a client sends.
func (f *fixer) command(v any) any { return f.fix(v, "", false) }

// document returns what a server has: a date that it set itself in this step is any date.
func (f *fixer) document(v any) any { return f.fix(v, "", true) }

func (f *fixer) fix(v any, path string, stored bool) any {
	switch v := v.(type) {
	case bson.D:
		if path == "" {
			f.of = at(v, "_id")
		}
		fixed := make(bson.D, len(v))
		for i, e := range v {
			fixed[i] = bson.E{Key: e.Key, Value: f.fix(e.Value, under(path, e.Key), stored)}
		}
		return fixed
	case bson.A:
		fixed := make(bson.A, len(v))
		for i, one := range v {
			fixed[i] = f.fix(one, path, stored)
		}
		return fixed
	case int64:
		name := path[strings.LastIndexByte(path, '.')+1:]
		if i := slices.IndexFunc(f.revs, func(r int64) bool { return follows(r, v) }); name == "rev" && i >= 0 {
			return aRev*int64(i+1) + v - f.revs[i]
		}
		if name == "ttl" { // of a holder that stays it is what is left of a time
			step := tick.Milliseconds()
			return (v + step/2) / step * step
		}
		if i := slices.Index(f.beats, v); name == "beat" && i >= 0 {
			return aBeat + int64(i+1)
		}
	case bson.ObjectID:
		if i := slices.Index(f.epochs, v); i >= 0 {
			id, _ := bson.ObjectIDFromHex(fmt.Sprintf("%024x", i+1))
			return id
		}
	case bson.DateTime:
		return f.date(v, path, stored)
	}
	return v
}

func (f *fixer) date(v bson.DateTime, path string, stored bool) any {
	if stored && serverSets(path) && !f.had(path, v) {
		return bson.D{{Key: "$$type", Value: "date"}}
	}
	if v == 0 {
		return v
	}
	return bson.NewDateTimeFromTime(base.Add(v.Time().Sub(f.began).Round(tick)))
}

// had reports whether the document had that date when the step began.
func (f *fixer) had(path string, v bson.DateTime) bool {
	return slices.ContainsFunc(f.before, func(d bson.D) bool { return assert.ObjectsAreEqual(f.of, at(d, "_id")) && at(d, path) == v })
}

func serverSets(path string) bool {
	return path == "at" || path == "freed" || strings.HasPrefix(path, "waits.") && (strings.HasSuffix(path, ".since") || strings.HasSuffix(path, ".seen"))
}

// at returns the value at a path.
func at(d bson.D, path string) any {
	field, rest, nested := strings.Cut(path, ".")
	for _, e := range d {
		if e.Key != field {
			continue
		}
		if in, ok := e.Value.(bson.D); ok && nested {
			return at(in, rest)
		}
		return e.Value
	}
	return nil
}
