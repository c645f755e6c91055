package mongobase

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Change collects the operators of an update command. Its methods return it with more in it.
type Change bson.D

// Add adds fields to an operator.
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

// Set sets a field.
func (u Change) Set(path string, value any) Change {
	return u.Add("$set", bson.E{Key: path, Value: value})
}

// Unset removes fields.
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
// an embedded document, it writes beside it.
func (b *Base) Stamped(update bson.D) bson.D {
	if !b.Flat() {
		return update
	}
	update = slices.Clone(update)
	for i, o := range update {
		if o.Key != "$currentDate" {
			continue
		}
		dates := slices.Clone(o.Value.(bson.D))
		for k := range dates {
			dates[k].Key = Beside(dates[k].Key)
		}
		update[i].Value = dates
	}
	return update
}
