package command

import (
	"slices"

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
