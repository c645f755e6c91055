package fence

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// stampPipeline adds a last stage that sets the token, so that it holds after a
// $replaceWith too. A stage that names the field is refused, because it would have no
// effect.
func (w *write) stampPipeline(stages []any) (any, error) {
	if len(stages) == 0 {
		return nil, errors.New("fence: the update is empty")
	}
	for i, stage := range stages {
		elements, err := elementsOf(stage)
		if err != nil {
			return nil, fmt.Errorf("fence: stage %d of the update: %w", i, err)
		}
		if len(elements) != 1 || !strings.HasPrefix(elements[0].Key, "$") {
			return nil, fmt.Errorf("fence: stage %d of the update: must be one operator", i)
		}
		if slices.ContainsFunc(paths(elements[0]), w.touches) {
			return nil, w.errTouched(elements[0].Key)
		}
	}
	return append(bson.A(slices.Clone(stages)), bson.D{{Key: "$set", Value: w.stamp()}}), nil
}

// paths returns the fields that a stage changes by name.
func paths(stage bson.E) (found []string) {
	switch stage.Key {
	case "$unset":
		if s := text(stage.Value); s != "" {
			return []string{s}
		}
		list, _ := pipeline(operand(stage.Value))
		for _, path := range list {
			found = append(found, text(path))
		}
	case "$set", "$addFields", "$project":
		fields, _ := elementsOf(operand(stage.Value))
		for _, f := range fields {
			found = append(found, f.Key)
		}
	}
	return found
}

// pipeline returns the members of v if the driver treats it as an array.
func pipeline(v any) ([]any, bool) {
	var array bson.RawArray
	switch v := v.(type) {
	case bson.D, bson.Raw, bson.Marshaler:
		return nil, false
	case bson.RawArray:
		array = v
	case bson.RawValue:
		var ok bool
		if array, ok = v.ArrayOK(); !ok {
			return nil, false
		}
	default:
		list := reflect.ValueOf(v)
		if k := list.Kind(); k != reflect.Slice && k != reflect.Array {
			return nil, false
		}
		members := make([]any, list.Len())
		for i := range members {
			members[i] = list.Index(i).Interface()
		}
		return members, true
	}
	values, err := array.Values()
	if err != nil {
		return nil, false
	}
	members := make([]any, len(values))
	for i := range values {
		members[i] = operand(values[i])
	}
	return members, true
}
