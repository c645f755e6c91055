package doclock

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A codec turns documents into values and back. A value never contains the lock, and cannot set
// it.
type codec[T any] struct {
	field    string
	registry *bson.Registry // nil: the driver's own
}

func (c codec[T]) decode(doc bson.Raw) (value T, err error) {
	elements, err := doc.Elements()
	if err != nil {
		return value, fmt.Errorf("%w: %w", ErrDecode, err)
	}
	bare := make(bson.D, 0, len(elements))
	for _, e := range elements {
		if e.Key() != c.field {
			bare = append(bare, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	raw, err := bson.Marshal(bare)
	if err != nil {
		return value, fmt.Errorf("%w: %w", ErrDecode, err)
	}
	decoder := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(raw)))
	if c.registry != nil {
		decoder.SetRegistry(c.registry)
	}
	if err := decoder.Decode(&value); err != nil {
		return value, fmt.Errorf("%w: %s into %T: %w", ErrDecode, doc.Lookup("_id"), value, err)
	}
	return value, nil
}

// check refuses a type whose values are no documents, or whose zero value has the field of the lock.
func (c codec[T]) check() error {
	var zero T
	raw, err := c.marshal(zero)
	switch kind := reflect.TypeFor[T]().Kind(); {
	case err == nil:
	case kind == reflect.String || kind <= reflect.Func: // numbers, say
		return fmt.Errorf("doclock: New: values of type %T are no documents: %w", zero, err)
	default:
		return nil // for an interface, a pointer or a nil map each value is checked by itself
	}
	if _, err := raw.LookupErr(c.field); err == nil {
		return fmt.Errorf("doclock: New: values of type %T have a field %s, which is the lock's: rename it, or the lock (doclock.Field)", zero, c.field)
	}
	return nil
}

// encode returns the value's fields. At the top level it refuses the field of the lock,
// and names that an update would misread.
func (c codec[T]) encode(value T) (bson.Raw, error) {
	raw, err := c.marshal(value)
	if err != nil {
		return nil, fmt.Errorf("doclock: the value: %w", err)
	}
	elements, err := raw.Elements()
	if err != nil {
		return nil, fmt.Errorf("doclock: the value: %w", err)
	}
	for _, e := range elements {
		switch key := e.Key(); {
		case key == c.field:
			return nil, fmt.Errorf("doclock: the value has a field %s, which is the lock's: rename it, or the lock (doclock.Field)", key)
		case !addressable(key):
			return nil, fmt.Errorf("doclock: the value has a field %q: a name that is empty, begins with $ or contains a point cannot be saved", key)
		}
	}
	return raw, nil
}

func (c codec[T]) marshal(value T) (bson.Raw, error) {
	if c.registry == nil {
		return bson.Marshal(value)
	}
	buffer := new(bytes.Buffer)
	encoder := bson.NewEncoder(bson.NewDocumentWriter(buffer))
	encoder.SetRegistry(c.registry)
	err := encoder.Encode(value)
	return buffer.Bytes(), err
}

// initial returns the fields that an insert gets from a value, in addition to those of the key.
// The two must agree.
func (c codec[T]) initial(value T, key bson.D) (bson.D, error) {
	raw, err := c.encode(value)
	if err != nil {
		return nil, err
	}
	elements, err := raw.Elements()
	if err != nil {
		return nil, err
	}
	fields := bson.D{}
	for _, e := range elements {
		at := slices.IndexFunc(key, func(k bson.E) bool {
			return k.Key == e.Key() || strings.HasPrefix(k.Key, e.Key()+".")
		})
		switch {
		case at < 0 && e.Key() == "_id" && isZero(e.Value()):
			// the server makes one
		case at < 0:
			fields = append(fields, bson.E{Key: e.Key(), Value: e.Value()})
		case key[at].Key != e.Key():
			return nil, fmt.Errorf("doclock: the initial value has a field %s, and the filter names its part %s: a document cannot be made from both", e.Key(), key[at].Key)
		case !same(e.Value(), key[at].Value.(bson.RawValue)) && !isZero(e.Value()):
			return nil, fmt.Errorf("doclock: the initial value's %s is %s, the filter's is %s", e.Key(), clip(e.Value()), clip(key[at].Value.(bson.RawValue)))
		}
	}
	return fields, nil
}

// isZero reports whether v may be the encoding of an unset field of a struct.
func isZero(v bson.RawValue) bool {
	switch v.Type {
	case bson.TypeNull:
		return true
	case bson.TypeString:
		return v.StringValue() == ""
	case bson.TypeObjectID:
		return v.ObjectID().IsZero()
	}
	n, ok := number(v)
	return ok && n == 0
}

// number returns a number of any type, decimals among them, of which AsInt64 panics.
func number(v bson.RawValue) (n float64, ok bool) {
	if d, is := v.Decimal128OK(); is {
		n, err := strconv.ParseFloat(d.String(), 64)
		return n, err == nil
	}
	return v.AsFloat64OK()
}
