package docdb

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// stamps are the times that an update draws from the server while its document is built, not
// while it is written. An insert that is held up keeps them, as on a real server.
type stamps struct {
	now  time.Time
	tick func() bson.Timestamp // draws a new cluster time
}

// updated returns d after an update, which has operators or is a whole new document.
func updated(d, update bson.D, s stamps, inserting bool) (bson.D, error) {
	if len(update) == 0 || !strings.HasPrefix(update[0].Key, "$") {
		return replaced(d, update)
	}
	if err := conflicts(update); err != nil {
		return nil, err
	}
	for _, op := range update {
		if op.Key == "$setOnInsert" && !inserting {
			continue
		}
		fields, ok := op.Value.(bson.D)
		if !ok {
			return nil, failure{9, fmt.Sprintf("modifiers operate on fields but %s has no document", op.Key)}
		}
		for _, f := range fields {
			var err error
			if d, err = modified(d, op.Key, f, s); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

func replaced(d, by bson.D) (bson.D, error) {
	id, has := get(d, "_id")
	if other, named := get(by, "_id"); named && has && compare(id, other) != 0 {
		return nil, failure{66, "the _id field cannot be changed"}
	}
	next := bson.D{}
	if has {
		next = append(next, bson.E{Key: "_id", Value: id})
	}
	return append(next, without(by, "_id")...), nil
}

// conflicts refuses an update that names one path twice, or a path and a part of it, or a path that
// no field can have. An operator without fields is refused as by MongoDB 4.4. One that stands twice is
// refused, too: MongoDB takes both, and a server that reads them into a map takes the last.
func conflicts(update bson.D) error {
	if len(update) == 0 || !strings.HasPrefix(update[0].Key, "$") {
		return nil
	}
	var seen []string
	for i, op := range update {
		if slices.ContainsFunc(update[:i], func(o bson.E) bool { return o.Key == op.Key }) {
			return failure{9, op.Key + " stands twice"}
		}
		fields, is := op.Value.(bson.D)
		if is && len(fields) == 0 {
			return failure{9, op.Key + " is empty: a field must be named"}
		}
		for _, f := range fields {
			if err := nameable(f.Key); err != nil {
				return err
			}
			for _, other := range seen {
				if f.Key == other || strings.HasPrefix(f.Key, other+".") || strings.HasPrefix(other, f.Key+".") {
					return failure{40, fmt.Sprintf("updating the path %q would create a conflict at %q", f.Key, other)}
				}
			}
			seen = append(seen, f.Key)
		}
	}
	return nil
}

// nameable refuses a path that cannot be stored.
func nameable(path string) error {
	for part := range strings.SplitSeq(path, ".") {
		switch {
		case part == "":
			return failure{56, fmt.Sprintf("the update path %q contains an empty field name", path)}
		case part[0] == '$':
			return failure{52, fmt.Sprintf("the dollar ($) prefixed field %q in %q is not valid for storage", part, path)}
		}
	}
	return nil
}

func modified(d bson.D, op string, f bson.E, s stamps) (bson.D, error) {
	old, there := get(d, f.Key)
	switch op {
	case "$set", "$setOnInsert":
		if f.Key == "_id" && there && compare(old, f.Value) != 0 {
			return nil, failure{66, "the _id field cannot be changed"}
		}
		return with(d, f.Key, f.Value)
	case "$unset":
		return without(d, f.Key), nil
	case "$max":
		if there && compare(old, f.Value) >= 0 {
			return d, nil
		}
		return with(d, f.Key, f.Value)
	case "$min":
		if there && compare(old, f.Value) <= 0 {
			return d, nil
		}
		return with(d, f.Key, f.Value)
	case "$push":
		all, _ := old.(bson.A)
		if there && all == nil {
			return nil, badValue("the field %s must be an array", f.Key)
		}
		return with(d, f.Key, append(slices.Clone(all), f.Value))
	case "$addToSet":
		all, _ := old.(bson.A)
		if there && all == nil {
			return nil, badValue("the field %s must be an array", f.Key)
		}
		if slices.ContainsFunc(all, func(v any) bool { return compare(v, f.Value) == 0 }) {
			return d, nil
		}
		return with(d, f.Key, append(slices.Clone(all), f.Value))
	case "$pull", "$pullAll":
		return pulled(d, op, f)
	case "$inc":
		sum, err := sum(old, there, f)
		if err != nil {
			return nil, err
		}
		return with(d, f.Key, sum)
	case "$currentDate":
		kind, err := dateKind(f.Value)
		if err != nil {
			return nil, err
		}
		if kind == "timestamp" {
			return with(d, f.Key, s.tick())
		}
		return with(d, f.Key, date(s.now))
	}
	return nil, failure{9, "unknown modifier: " + op}
}

// pulled takes values out of an array. A $pull by a condition is refused.
func pulled(d bson.D, op string, f bson.E) (bson.D, error) {
	gone := bson.A{f.Value}
	if op == "$pullAll" {
		var ok bool
		if gone, ok = f.Value.(bson.A); !ok {
			return nil, badValue("$pullAll needs an array")
		}
	} else if _, is := f.Value.(bson.D); is {
		return nil, badValue("$pull by a condition")
	}
	old, there := get(d, f.Key)
	if !there {
		return d, nil
	}
	all, ok := old.(bson.A)
	if !ok {
		return nil, badValue("the field %s must be an array", f.Key)
	}
	return with(d, f.Key, slices.DeleteFunc(slices.Clone(all), func(v any) bool {
		return slices.ContainsFunc(gone, func(g any) bool { return compare(v, g) == 0 })
	}))
}

func sum(old any, there bool, f bson.E) (any, error) {
	if !there {
		return f.Value, nil
	}
	a, ok := number(old)
	b, also := number(f.Value)
	if !ok || !also {
		return nil, failure{14, fmt.Sprintf("cannot apply $inc to the field %s, which is not a number", f.Key)}
	}
	if x, is := old.(int32); is {
		if y, is := f.Value.(int32); is {
			return x + y, nil
		}
	}
	if _, double := old.(float64); double {
		return a + b, nil
	}
	return int64(a + b), nil
}

func dateKind(v any) (string, error) {
	switch v := v.(type) {
	case bool:
		return "date", nil
	case bson.D:
		if kind, _ := get(v, "$type"); kind == "date" || kind == "timestamp" {
			return kind.(string), nil
		}
	}
	return "", badValue("$currentDate takes a boolean or a $type")
}
