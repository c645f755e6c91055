// Package docdb is a document database in memory, with just the commands and the classic
// operators that mongolock sends. The simulation's servers are made of it. It has no network
// and reads no clock: every command comes with the time. Its test sends the same random
// commands to a real server and compares the replies.
package docdb

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// decode decodes a document. Decoded documents are never changed in place.
func decode(raw bson.Raw) (bson.D, error) {
	elements, err := raw.Elements()
	if err != nil {
		return nil, err
	}
	d := make(bson.D, len(elements))
	for i, e := range elements {
		v, err := decodeValue(e.Value())
		if err != nil {
			return nil, err
		}
		d[i] = bson.E{Key: e.Key(), Value: v}
	}
	return d, nil
}

func decodeValue(v bson.RawValue) (any, error) {
	switch v.Type {
	case bson.TypeDouble:
		return v.Double(), nil
	case bson.TypeString:
		return v.StringValue(), nil
	case bson.TypeEmbeddedDocument:
		return decode(v.Document())
	case bson.TypeArray:
		values, err := v.Array().Values()
		if err != nil {
			return nil, err
		}
		a := make(bson.A, len(values))
		for i, v := range values {
			if a[i], err = decodeValue(v); err != nil {
				return nil, err
			}
		}
		return a, nil
	case bson.TypeBinary:
		kind, data := v.Binary()
		return bson.Binary{Subtype: kind, Data: slices.Clone(data)}, nil
	case bson.TypeObjectID:
		return v.ObjectID(), nil
	case bson.TypeBoolean:
		return v.Boolean(), nil
	case bson.TypeDateTime:
		return bson.DateTime(v.DateTime()), nil
	case bson.TypeNull:
		return nil, nil
	case bson.TypeInt32:
		return v.Int32(), nil
	case bson.TypeInt64:
		return v.Int64(), nil
	case bson.TypeTimestamp:
		t, i := v.Timestamp()
		return bson.Timestamp{T: t, I: i}, nil
	}
	return nil, fmt.Errorf("docdb: a value of type %v", v.Type)
}

// get returns the value at a dotted path.
func get(d bson.D, path string) (any, bool) {
	name, rest, deeper := strings.Cut(path, ".")
	for _, e := range d {
		if e.Key != name {
			continue
		}
		if !deeper {
			return e.Value, true
		}
		inner, ok := e.Value.(bson.D)
		if !ok {
			return nil, false
		}
		return get(inner, rest)
	}
	return nil, false
}

// errPath is the error for a path that leads through something other than a document.
func errPath(path string) error {
	return failure{28, fmt.Sprintf("cannot create field in element at %q", path)} // PathNotViable
}

// with returns d with a value at a path. Missing documents on the way are created.
func with(d bson.D, path string, value any) (bson.D, error) {
	name, rest, deeper := strings.Cut(path, ".")
	at := slices.IndexFunc(d, func(e bson.E) bool { return e.Key == name })
	if deeper {
		inner := bson.D{}
		if at >= 0 {
			var ok bool
			if inner, ok = d[at].Value.(bson.D); !ok {
				return nil, errPath(path)
			}
		}
		next, err := with(inner, rest, value)
		if err != nil {
			return nil, err
		}
		value = next
	}
	d = slices.Clone(d)
	if at >= 0 {
		d[at].Value = value
		return d, nil
	}
	return append(d, bson.E{Key: name, Value: value}), nil
}

// without returns d without the value at a path.
func without(d bson.D, path string) bson.D {
	name, rest, deeper := strings.Cut(path, ".")
	at := slices.IndexFunc(d, func(e bson.E) bool { return e.Key == name })
	if at < 0 {
		return d
	}
	if !deeper {
		return slices.Delete(slices.Clone(d), at, at+1)
	}
	inner, ok := d[at].Value.(bson.D)
	if !ok {
		return d
	}
	d = slices.Clone(d)
	d[at].Value = without(inner, rest)
	return d
}

// number returns the value of any numeric type.
func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int32:
		return float64(n), true
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// class returns where a type stands in the order of types. Comparisons in filters stay within
// one class.
func class(v any) int {
	switch v.(type) {
	case nil:
		return 1
	case int32, int64, float64:
		return 2
	case string:
		return 3
	case bson.D:
		return 4
	case bson.A:
		return 5
	case bson.Binary:
		return 6
	case bson.ObjectID:
		return 7
	case bool:
		return 8
	case bson.DateTime:
		return 9
	case bson.Timestamp:
		return 10
	}
	panic(fmt.Sprintf("docdb: a %T", v))
}

// classes are those that $type names.
var classes = map[any]int{"number": 2, "string": 3, "object": 4, "array": 5, "date": 9}

// compare orders two values of any types as the server does.
func compare(a, b any) int {
	if d := class(a) - class(b); d != 0 {
		return d
	}
	switch a := a.(type) {
	case string:
		return strings.Compare(a, b.(string))
	case int64:
		if b, ok := b.(int64); ok { // a double cannot hold every token
			return cmp(a, b)
		}
	case bson.D:
		return compareDocs(a, b.(bson.D))
	case bson.A:
		b := b.(bson.A)
		for i := range min(len(a), len(b)) {
			if d := compare(a[i], b[i]); d != 0 {
				return d
			}
		}
		return len(a) - len(b)
	case bson.Binary:
		b := b.(bson.Binary)
		if d := len(a.Data) - len(b.Data); d != 0 {
			return d
		}
		return strings.Compare(string(a.Data), string(b.Data))
	case bson.ObjectID:
		b := b.(bson.ObjectID)
		return strings.Compare(string(a[:]), string(b[:]))
	case bool:
		return cmp(boolean(a), boolean(b.(bool)))
	case bson.DateTime:
		return cmp(int64(a), int64(b.(bson.DateTime)))
	case bson.Timestamp:
		return a.Compare(b.(bson.Timestamp))
	}
	x, _ := number(a)
	y, _ := number(b)
	return cmp(x, y)
}

func compareDocs(a, b bson.D) int {
	for i := range min(len(a), len(b)) {
		if d := class(a[i].Value) - class(b[i].Value); d != 0 {
			return d
		}
		if d := strings.Compare(a[i].Key, b[i].Key); d != 0 {
			return d
		}
		if d := compare(a[i].Value, b[i].Value); d != 0 {
			return d
		}
	}
	return len(a) - len(b)
}

func cmp[T int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func date(t time.Time) bson.DateTime { return bson.DateTime(t.UnixMilli()) }
