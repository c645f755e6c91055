package server

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Date returns a time as a BSON date. The zero time, before which no holder runs out, becomes
// the epoch.
func Date(t time.Time) bson.DateTime { return bson.DateTime(max(t.UnixMilli(), 0)) }

// Time returns a date that a server sent, if it is one.
func Time(v bson.RawValue) (time.Time, bool) {
	ms, ok := v.DateTimeOK()
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMilli(ms).UTC(), true
}

// Millis returns a duration as documents have it: in milliseconds, rounded up, and at least
// one.
func Millis(d time.Duration) int64 { return max(1, int64((d+time.Millisecond-1)/time.Millisecond)) }

// Is reports whether v equals a number as a filter understands it: the mark of a
// document may come back as another type.
func Is(v bson.RawValue, number int64) bool {
	if f, ok := v.DoubleOK(); ok {
		return f < 1<<63 && f == float64(number)
	}
	n, ok := v.AsInt64OK()
	return ok && n == number
}

// Clip returns a value for a message, cut to that many runes.
func Clip(v bson.RawValue, most int) string {
	s := v.String()
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

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
