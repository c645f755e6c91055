package docdb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A failure is the error of a command.
type failure struct {
	code    int32
	message string
}

func (f failure) Error() string { return fmt.Sprintf("%s (%d)", f.message, f.code) }

func badValue(format string, args ...any) error { return failure{2, fmt.Sprintf(format, args...)} }

// matches reports whether a document matches a filter.
func matches(d, filter bson.D) (bool, error) {
	for _, e := range filter {
		ok, err := clause(d, e)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func clause(d bson.D, e bson.E) (bool, error) {
	if !strings.HasPrefix(e.Key, "$") {
		if value, there := get(d, e.Key); there { // as mostly: there is no array on the way
			return condition(value, true, e.Value)
		}
		return anywhere(reach(d, e.Key), e.Value)
	}
	parts, ok := e.Value.(bson.A)
	if !ok || len(parts) == 0 {
		return false, badValue("%s needs an array", e.Key)
	}
	for _, p := range parts {
		part, ok := p.(bson.D)
		if !ok {
			return false, badValue("%s needs an array of documents", e.Key)
		}
		is, err := matches(d, part)
		switch {
		case err != nil:
			return false, err
		case e.Key == "$or" && is:
			return true, nil
		case e.Key == "$and" && !is:
			return false, nil
		case e.Key != "$or" && e.Key != "$and":
			return false, badValue("unknown top level operator: %s", e.Key)
		}
	}
	return e.Key == "$and", nil
}

// reach returns the values at a path. It leads into the documents of an array, and to its
// elements by their numbers.
func reach(v any, path string) (found []any) {
	name, rest, deeper := strings.Cut(path, ".")
	step := func(v any) {
		if deeper {
			found = append(found, reach(v, rest)...)
		} else {
			found = append(found, v)
		}
	}
	switch v := v.(type) {
	case bson.D:
		for _, e := range v {
			if e.Key == name {
				step(e.Value)
			}
		}
	case bson.A:
		if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(v) {
			step(v[n])
		}
		for _, one := range v {
			if d, is := one.(bson.D); is {
				found = append(found, reach(d, path)...)
			}
		}
	}
	return found
}

// anywhere tests the values at a path: one of them has to meet a condition, and each one that
// says what must not be.
func anywhere(values []any, want any) (bool, error) {
	switch operators, ok := want.(bson.D); {
	case len(values) == 0:
		return condition(nil, false, want)
	case len(values) == 1:
		return condition(values[0], true, want)
	case ok && len(operators) > 0 && strings.HasPrefix(operators[0].Key, "$"):
		for _, op := range operators {
			all := op.Key == "$ne" || op.Key == "$not" || op.Key == "$nin"
			ok, err := some(values, all, func(v any) (bool, error) { return operator(v, true, op) })
			if !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	return some(values, false, func(v any) (bool, error) { return equal(v, true, want), nil })
}

// some reports whether a test is true of one of some values, or of all.
func some(values []any, all bool, test func(any) (bool, error)) (bool, error) {
	for _, v := range values {
		if is, err := test(v); err != nil || is != all {
			return is, err
		}
	}
	return all, nil
}

// condition tests one value: against a document of operators, or for equality.
func condition(value any, there bool, want any) (bool, error) {
	operators, ok := want.(bson.D)
	if !ok || len(operators) == 0 || !strings.HasPrefix(operators[0].Key, "$") {
		return equal(value, there, want), nil
	}
	for _, op := range operators {
		ok, err := operator(value, there, op)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func equal(value any, there bool, want any) bool {
	if want == nil {
		return !there || value == nil
	}
	if !there {
		return false
	}
	if all, is := value.(bson.A); is { // or one of its values
		for _, v := range all {
			if compare(v, want) == 0 {
				return true
			}
		}
	}
	return compare(value, want) == 0
}

func operator(value any, there bool, op bson.E) (bool, error) {
	if op.Key == "$type" && there && class(value) == classes[op.Value] { // of an array itself, too
		return true, nil
	}
	if all, is := value.(bson.A); is && op.Key != "$exists" && op.Key != "$ne" && op.Key != "$not" && op.Key != "$nin" && op.Key != "$in" && op.Key != "$eq" { // any of its values
		for _, v := range all {
			if ok, err := operator(v, true, op); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}
	same := there && class(value) == class(op.Value)
	switch op.Key {
	case "$eq":
		return equal(value, there, op.Value), nil
	case "$ne":
		return !equal(value, there, op.Value), nil
	case "$lt":
		return same && compare(value, op.Value) < 0, nil
	case "$lte":
		return same && compare(value, op.Value) <= 0, nil
	case "$gt":
		return same && compare(value, op.Value) > 0, nil
	case "$gte":
		return same && compare(value, op.Value) >= 0, nil
	case "$exists":
		return there == truth(op.Value), nil
	case "$type":
		if classes[op.Value] == 0 {
			return false, badValue("unknown type: %v", op.Value)
		}
		return there && class(value) == classes[op.Value], nil
	case "$not":
		inner, ok := op.Value.(bson.D)
		if !ok {
			return false, badValue("$not needs a document")
		}
		is, err := condition(value, there, inner)
		return !is, err
	case "$nin":
		is, err := operator(value, there, bson.E{Key: "$in", Value: op.Value})
		return !is && err == nil, err
	case "$in":
		list, ok := op.Value.(bson.A)
		if !ok {
			return false, badValue("$in needs an array")
		}
		for _, v := range list {
			if equal(value, there, v) {
				return true, nil
			}
		}
		return false, nil
	}
	return false, badValue("unknown operator: %s", op.Key)
}

func truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case nil:
		return false
	}
	n, is := number(v)
	return !is || n != 0
}

// equalities adds the fields whose values a filter states: an upsert writes them.
func equalities(filter bson.D, into bson.D) (bson.D, error) {
	var stated []string
	return inferred(filter, into, &stated)
}

func inferred(filter bson.D, into bson.D, stated *[]string) (_ bson.D, err error) {
	for _, e := range filter {
		value := e.Value
		if e.Key == "$and" {
			for _, part := range e.Value.(bson.A) {
				if into, err = inferred(part.(bson.D), into, stated); err != nil {
					return nil, err
				}
			}
			continue
		}
		if strings.HasPrefix(e.Key, "$") {
			continue
		}
		if d, ok := value.(bson.D); ok && len(d) > 0 && strings.HasPrefix(d[0].Key, "$") {
			if len(d) != 1 || d[0].Key != "$eq" {
				continue
			}
			value = d[0].Value
		}
		within := func(path string) bool {
			return strings.HasPrefix(e.Key+".", path+".") || strings.HasPrefix(path, e.Key+".")
		}
		if slices.ContainsFunc(*stated, within) {
			return nil, failure{54, fmt.Sprintf("cannot infer query fields to set, path %q is matched twice", e.Key)} // NotSingleValueField
		}
		*stated = append(*stated, e.Key)
		if into, err = with(into, e.Key, value); err != nil {
			return nil, err
		}
	}
	return into, nil
}
