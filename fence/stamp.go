package fence

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// The caller's values reach the driver as they are, wherever possible: the driver encodes them
// with its client's registry and options, which this package cannot see. This package encodes a
// value only to read its keys.

var (
	typeD      = reflect.TypeFor[bson.D]()
	typeBytes  = reflect.TypeFor[[]byte]()
	typeString = reflect.TypeFor[string]()
)

// document returns doc in a form that the driver takes at any level, not only at the
// top: bytes of any type as bson.Raw, elements of any type as bson.D. A nil of any type
// is an error.
func document(doc any) (any, error) {
	v := reflect.ValueOf(doc)
	switch v.Kind() {
	case reflect.Invalid:
		return nil, mongo.ErrNilDocument
	case reflect.Map, reflect.Slice, reflect.Pointer:
		if v.IsNil() {
			return nil, mongo.ErrNilDocument
		}
	}
	switch doc.(type) {
	case bson.Raw, bson.RawArray, bson.Marshaler, bson.ValueMarshaler:
		return doc, nil
	}
	if v.Kind() == reflect.Slice && v.Type().ConvertibleTo(typeD) {
		return v.Convert(typeD).Interface(), nil
	}
	if v.Kind() == reflect.Slice && v.Type().ConvertibleTo(typeBytes) {
		return bson.Raw(v.Bytes()), nil
	}
	return doc, nil
}

// elementsOf returns the top-level elements of doc. It does not encode the values if
// doc is a map or a list of elements.
func elementsOf(doc any) (bson.D, error) {
	doc, err := document(doc)
	if err != nil {
		return nil, err
	}
	switch doc := doc.(type) {
	case bson.D:
		return doc, nil
	case bson.Raw:
		return fromRaw(doc)
	case bson.Marshaler, bson.ValueMarshaler:
	default:
		if m := reflect.ValueOf(doc); m.Kind() == reflect.Map {
			return fromMap(m)
		}
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		if byJSON, ok := marshalByJSON(doc); ok {
			return fromRaw(byJSON)
		}
		return nil, err
	}
	return fromRaw(raw)
}

// marshalByJSON encodes a document by its JSON tags, as the driver does if the BSONOptions of its client say so.
func marshalByJSON(doc any) (bson.Raw, bool) {
	var buf bytes.Buffer
	enc := bson.NewEncoder(bson.NewDocumentWriter(&buf))
	enc.SetRegistry(bson.NewRegistry()) // a registry remembers the fields of a type by the tags that it met first
	enc.UseJSONStructTags()
	err := enc.Encode(doc)
	return buf.Bytes(), err == nil
}

// operatorsOf is elementsOf for an update. A struct may have its operators by its JSON tags, which the driver heeds if its
// BSONOptions say so.
func operatorsOf(update any) (bson.D, error) {
	elements, err := elementsOf(update)
	if err != nil || !encodedByDriver(update) || !slices.ContainsFunc(elements, isNoOperator) {
		return elements, err
	}
	if raw, ok := marshalByJSON(update); ok {
		if byJSON, err := fromRaw(raw); err == nil && !slices.ContainsFunc(byJSON, isNoOperator) {
			return byJSON, nil
		}
	}
	return elements, nil
}

func isNoOperator(e bson.E) bool { return !strings.HasPrefix(e.Key, "$") }

// fromMap returns the entries of a map. Those whose name is up to the options of the client are refused.
func fromMap(m reflect.Value) (bson.D, error) {
	list := make(bson.D, 0, m.Len())
	for entry := m.MapRange(); entry.Next(); {
		key := entry.Key()
		name := fmt.Sprint(key)
		if key.Type() != typeString {
			one := reflect.MakeMap(reflect.MapOf(key.Type(), typeString))
			one.SetMapIndex(key, reflect.ValueOf(""))
			raw, err := bson.Marshal(one.Interface())
			if err != nil {
				return nil, err
			}
			if byDriver := bson.Raw(raw).Index(0).Key(); byDriver != name {
				return nil, fmt.Errorf("a key of a %s is %q or %q, by the BSONOptions of the client: use a bson.D or a bson.M", m.Type(), byDriver, name)
			}
		}
		list = append(list, bson.E{Key: name, Value: entry.Value().Interface()})
	}
	return list, nil
}

func fromRaw(raw bson.Raw) (bson.D, error) {
	if err := raw.Validate(); err != nil {
		return nil, err
	}
	elements, err := raw.Elements()
	if err != nil {
		return nil, err
	}
	list := make(bson.D, 0, len(elements))
	for _, e := range elements {
		list = append(list, bson.E{Key: e.Key(), Value: e.Value()})
	}
	return list, nil
}

// stampDocument adds the token to a document that is stored as a whole.
func (w *write) stampDocument(doc any) (any, error) {
	elements, err := elementsOf(doc)
	if err != nil {
		return nil, fmt.Errorf("fence: the document: %w", err)
	}
	if w.touchedIn(doc, elements) {
		return nil, fmt.Errorf("fence: the document has the field %s, which holds the token", w.field)
	}
	return with(doc, elements, w.field, w.token)
}

// stampUpdate makes an update set the token as well.
func (w *write) stampUpdate(update any) (any, error) {
	update, err := document(update)
	if err != nil {
		return nil, fmt.Errorf("fence: the update: %w", err)
	}
	if stages, ok := pipeline(update); ok {
		return w.stampPipeline(stages)
	}
	elements, err := operatorsOf(update)
	if err != nil {
		return nil, fmt.Errorf("fence: the update: %w", err)
	}
	if len(elements) == 0 {
		return nil, errors.New("fence: the update is empty")
	}
	for _, e := range elements {
		if err := w.checkOperator(e); err != nil {
			return nil, err
		}
	}
	// $max does what $set does: the guard has made sure that the field holds no greater token.
	for _, operator := range []string{"$set", "$max"} {
		if !slices.ContainsFunc(elements, func(e bson.E) bool { return e.Key == operator }) {
			return with(update, elements, operator, w.stamp())
		}
	}
	if encodedByDriver(update) {
		return nil, fmt.Errorf("fence: an update with both $set and $max must be a bson.D, a map or a bson.Raw, not a %T", update)
	}
	return w.mergeSet(elements)
}

func (w *write) stamp() bson.D { return bson.D{{Key: w.field, Value: w.token}} }

// mergeSet puts the token into the update's own $set.
func (w *write) mergeSet(elements bson.D) (any, error) {
	merged := slices.Clone(elements)
	for i, e := range merged {
		if e.Key != "$set" {
			continue
		}
		inner, err := elementsOf(operand(e.Value))
		if err != nil {
			return nil, fmt.Errorf("fence: the update: $set: %w", err)
		}
		if merged[i].Value, err = with(operand(e.Value), inner, w.field, w.token); err != nil {
			return nil, err
		}
	}
	return merged, nil
}

// checkOperator refuses a key that is not an operator, and an operator that touches the field.
func (w *write) checkOperator(e bson.E) error {
	if isNoOperator(e) {
		return fmt.Errorf("fence: the update has the key %q, which is no operator: use ReplaceOne to store a document", e.Key)
	}
	fields, err := elementsOf(operand(e.Value))
	if err != nil {
		return fmt.Errorf("fence: the update: %s: %w", e.Key, err)
	}
	if kind, _, err := bson.MarshalValue(e.Value); err == nil && kind == bson.TypeBinary {
		return fmt.Errorf("fence: the update: %s is a %T, which the driver sends as bytes: use a bson.Raw", e.Key, e.Value)
	}
	renames := func(f bson.E) bool { return e.Key == "$rename" && w.touches(text(f.Value)) }
	if w.touchedIn(operand(e.Value), fields) || slices.ContainsFunc(fields, renames) {
		return w.errTouched(e.Key)
	}
	return nil
}

func (w *write) errTouched(by string) error {
	return fmt.Errorf("fence: the update's %s touches the field %s, which holds the token", by, w.field)
}

// touchedIn reports whether a document that has those elements has the field, by whichever tags of a struct.
func (w *write) touchedIn(doc any, elements bson.D) bool {
	if encodedByDriver(doc) {
		if raw, ok := marshalByJSON(doc); ok {
			byJSON, _ := fromRaw(raw)
			elements = append(slices.Clip(elements), byJSON...)
		}
	}
	return slices.ContainsFunc(elements, func(e bson.E) bool { return w.touches(e.Key) })
}

// touches reports whether path leads to the field or into it.
func (w *write) touches(path string) bool {
	return path == w.field || strings.HasPrefix(path, w.field+".")
}

// operand turns an encoded document into a form that elementsOf knows.
func operand(v any) any {
	if value, ok := v.(bson.RawValue); ok {
		if doc, ok := value.DocumentOK(); ok {
			return doc
		}
	}
	return v
}

// text returns v if the server gets it as a string, or else "".
func text(v any) string {
	kind, raw, err := bson.MarshalValue(v)
	if err != nil {
		return ""
	}
	s, _ := bson.RawValue{Type: kind, Value: raw}.StringValueOK()
	return s
}

// with returns doc, which has those elements, with one more.
func with(doc any, elements bson.D, key string, value any) (any, error) {
	if encodedByDriver(doc) {
		return widened(reflect.ValueOf(doc), key, value)
	}
	return append(slices.Clip(elements), bson.E{Key: key, Value: value}), nil
}

// encodedByDriver reports whether doc is a struct that does not encode itself. Only
// the driver knows how its fields are encoded.
func encodedByDriver(doc any) bool {
	switch doc.(type) {
	case bson.Marshaler, bson.ValueMarshaler:
		return false
	}
	t := reflect.TypeOf(doc)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

// widened returns a struct that embeds v and has one more field. The driver encodes it as it would have encoded v, with the
// tags and options in force there. It leaves out the inline map of an embedded struct: so the wide one has that itself.
func widened(v reflect.Value, key string, value any) (any, error) {
	for v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Pointer {
		v = v.Elem()
	}
	fields := []reflect.StructField{
		{Name: "Document", Type: v.Type(), Tag: inlineTag},
		{Name: "Token", Type: reflect.TypeOf(value), Tag: reflect.StructTag("bson:" + strconv.Quote(key))},
	}
	values := []reflect.Value{v, reflect.ValueOf(value)}
	more, err := inlineMap(reflect.Indirect(v))
	if err != nil {
		return nil, err
	}
	if more.IsValid() {
		fields, values = append(fields, reflect.StructField{Name: "More", Type: more.Type(), Tag: inlineTag}), append(values, more)
	}
	wide := reflect.New(reflect.StructOf(fields)).Elem()
	for i, v := range values {
		wide.Field(i).Set(v)
	}
	return wide.Interface(), nil
}

const inlineTag reflect.StructTag = `bson:",inline"`

// inlineMap returns the inline map of a struct, if it has one. Whether a JSON tag makes a map one is up to the options of the
// client, which this package cannot see: such a struct is refused.
func inlineMap(v reflect.Value) (more reflect.Value, err error) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || f.Type.Kind() != reflect.Map {
			continue
		}
		tag, tagged := f.Tag.Lookup("bson")
		if !tagged && !strings.Contains(string(f.Tag), ":") {
			tag, tagged = string(f.Tag), true
		}
		switch json, _ := f.Tag.Lookup("json"); {
		case slices.Contains(strings.Split(tag, ","), "inline"):
			more = v.Field(i)
		case !tagged && slices.Contains(strings.Split(json, ","), "inline"):
			return more, fmt.Errorf("fence: the field %s of %s is an inline map by its JSON tag alone: give it a bson tag", f.Name, v.Type())
		}
	}
	return more, nil
}
