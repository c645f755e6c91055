package doclock

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/errtext"
)

// ID returns the filter of the document with that _id.
func ID(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }

// maxKey is the engine's limit on the length of a key.
const maxKey = 1024

// keyOf turns a filter into the engine's key, and into its fields in a fixed order. A key is
// the JSON of the fields that name the document: of _id alone if the filter has it, because no
// two documents have the same. Numbers that the server treats as equal have one form in a key.
// So all waiters that name a document by its _id wait under the same key, and leases, errors
// and log lines name it in a readable form.
func keyOf(filter any) (key string, fields bson.D, err error) {
	fields, err = fieldsOf(filter)
	if err != nil {
		return "", nil, err
	}
	if fields[0].Key == "_id" {
		key, err = keyOfID(fields[0].Value.(bson.RawValue))
	} else {
		key, err = bounded(textOf(fields))
	}
	return key, fields, err
}

// keyOfID returns the key of the document with this _id.
func keyOfID(id bson.RawValue) (string, error) { return bounded(textOf(ID(id))) }

func bounded(key string, err error) (string, error) {
	if err == nil && len(key) > maxKey {
		err = fmt.Errorf("doclock: the filter has %d bytes as JSON: at most %d", len(key), maxKey)
	}
	return key, err
}

// isID reports whether a key is that of a document by its _id.
func isID(key string) bool { return strings.HasPrefix(key, `{"_id":`) }

func textOf(fields bson.D) (string, error) {
	normed := make(bson.D, len(fields))
	for i, f := range fields {
		normed[i] = bson.E{Key: f.Key, Value: normal(asValue(f.Value))}
	}
	text, err := bson.MarshalExtJSON(normed, false, false)
	if err != nil {
		return "", fmt.Errorf("doclock: the filter: %w", err)
	}
	return string(text), nil
}

// filterOf turns a key back into its filter.
func filterOf(key string) (fields bson.D, err error) {
	if err := bson.UnmarshalExtJSON([]byte(key), false, &fields); err != nil {
		return nil, fmt.Errorf("doclock: the key %s is no document's: %w", errtext.Key(key), err)
	}
	return fields, nil
}

// fieldsOf checks that a filter gives each of its fields a value, and orders them: _id
// first, the others by name.
func fieldsOf(filter any) (bson.D, error) {
	raw, err := marshal(filter)
	if err != nil {
		return nil, fmt.Errorf("doclock: the filter: %w", err)
	}
	elements, err := raw.Elements()
	if err != nil {
		return nil, fmt.Errorf("doclock: the filter: %w", err)
	}
	if len(elements) == 0 {
		return nil, errors.New("doclock: the filter is empty: it must name one document")
	}
	fields := make(bson.D, len(elements))
	for i, e := range elements {
		if strings.HasPrefix(e.Key(), "$") || !isValue(e.Value()) {
			return nil, fmt.Errorf("doclock: the filter's %s is %s: to name one document, each field must have a plain value", e.Key(), clip(e.Value()))
		}
		fields[i] = bson.E{Key: e.Key(), Value: e.Value()}
	}
	slices.SortFunc(fields, func(a, b bson.E) int {
		return strings.Compare(strings.Replace(a.Key, "_id", "\x00", 1), strings.Replace(b.Key, "_id", "\x00", 1))
	})
	for i := 1; i < len(fields); i++ {
		if fields[i].Key == fields[i-1].Key {
			return nil, fmt.Errorf("doclock: the filter names %s twice", fields[i].Key)
		}
	}
	return fields, nil
}

// isValue reports whether v in a filter matches just itself.
func isValue(v bson.RawValue) bool {
	switch v.Type {
	case bson.TypeNull, bson.TypeUndefined, bson.TypeRegex, bson.TypeArray:
		return false // null also matches a missing field; an array also its elements
	case bson.TypeEmbeddedDocument:
		first, err := v.Document().IndexErr(0)
		return err != nil || !strings.HasPrefix(first.Key(), "$")
	}
	return true
}

// marshal encodes a filter or a sort, which must be a document.
func marshal(v any) (bson.Raw, error) {
	if v == nil {
		return nil, errors.New("is nil")
	}
	if raw, ok := v.(bson.Raw); ok {
		return raw, raw.Validate()
	}
	kind, raw, err := bson.MarshalValue(v)
	switch {
	case err != nil:
		return nil, err
	case kind != bson.TypeEmbeddedDocument:
		return nil, fmt.Errorf("is a %T, not a document such as a bson.D", v)
	}
	return raw, nil
}

// valuesOf returns the filter by these fields that a document matches.
func valuesOf(document bson.Raw, fields bson.D) bson.D {
	values := make(bson.D, len(fields))
	for i, f := range fields {
		values[i] = bson.E{Key: f.Key, Value: document.Lookup(strings.Split(f.Key, ".")...)}
	}
	return values
}
