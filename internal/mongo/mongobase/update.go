package mongobase

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Change collects the operators of an update command. Its methods return it with more in it.
type Change bson.D

func (u Change) Add(operator string, fields ...bson.E) Change {
	if len(fields) == 0 {
		return u
	}
	for i, o := range u {
		if o.Key == operator {
			u[i].Value = append(o.Value.(bson.D), fields...)
			return u
		}
	}
	return append(u, bson.E{Key: operator, Value: slices.Clone(bson.D(fields))})
}

func (u Change) Join(more Change) Change {
	for _, o := range more {
		u = u.Add(o.Key, o.Value.(bson.D)...)
	}
	return u
}

func (u Change) Set(path string, value any) Change {
	return u.Add("$set", bson.E{Key: path, Value: value})
}

func (u Change) Unset(paths ...string) Change {
	for _, p := range paths {
		u = u.Add("$unset", bson.E{Key: p, Value: ""})
	}
	return u
}

// Flat reports whether the server's clock writes only fields of the document itself, as on
// FerretDB: see Stamped.
func (b *Base) Flat() bool { return b.flat.Load() }

// Beside returns the field that gets the server's time in place of one of an embedded document.
func Beside(path string) string { return strings.ReplaceAll(path, ".", "_") }

// Stamped returns an update as this server takes it: if the server cannot write its clock into
// an embedded document, it writes beside it. A date that is embedded more deeply, as those of
// waiters are, is then written as this process knows that clock: no grant rests on it.
func (b *Base) Stamped(update bson.D) bson.D {
	if !b.Flat() {
		return update
	}
	var beside, read []bson.E
	stamped := make(Change, 0, len(update)+1)
	for _, o := range update {
		if o.Key != "$currentDate" {
			if fields, ok := o.Value.(bson.D); ok {
				o.Value = slices.Clip(fields) // the caller's
			}
			stamped = append(stamped, o)
			continue
		}
		for _, d := range o.Value.(bson.D) {
			if strings.Count(d.Key, ".") > 1 {
				read = append(read, bson.E{Key: d.Key, Value: Date(b.Present())})
			} else {
				beside = append(beside, bson.E{Key: Beside(d.Key), Value: d.Value})
			}
		}
	}
	return bson.D(stamped.Add("$currentDate", beside...).Add("$set", read...))
}
