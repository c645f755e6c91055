package doclock

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A change is the part of a value that a save writes.
type change struct {
	sets   bson.D
	unsets []string // fields that the document may have, but the value does not
	number int      // its place among the saves of its lease
}

// join adds the change to an update.
func (ch *change) join(u update) update { return u.Add("$set", ch.sets...).Unset(ch.unsets...) }

// A saved lists what the document may have of the value: its top-level fields as they were
// loaded or last saved. There are several possibilities after a save in an open transaction,
// and after one of unknown outcome.
type saved []bson.Raw

// maxSaved limits how many possibilities are told apart. Beyond it a save writes every
// field as a whole, as it would if nothing were known.
const maxSaved = 16

// with adds a possibility.
func (s saved) with(value bson.Raw) saved {
	for _, known := range s {
		if equal(document(known), document(value)) {
			return s
		}
	}
	if len(s) > maxSaved && s.names(value) {
		return s
	}
	return append(s[:len(s):len(s)], value)
}

// names reports whether the possibilities have every field of another one between them: then that one
// says nothing new to a save that writes fields as a whole.
func (s saved) names(value bson.Raw) bool {
	elements, _ := value.Elements()
	for _, e := range elements {
		if !slices.ContainsFunc(s, func(known bson.Raw) bool { _, err := known.LookupErr(e.Key()); return err == nil }) {
			return false
		}
	}
	return true
}

// document returns a document as a value.
func document(raw bson.Raw) bson.RawValue {
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw}
}

// changes returns what a save of the value writes: the fields that differ from what the
// document may have of it. In an embedded document these are the fields that differ within it.
// So fields that the type does not have, or that others have set beside it, stay.
func (c codec[T]) changes(id bson.RawValue, has saved, value T) (*change, bson.Raw, error) {
	raw, err := c.encode(value)
	if err != nil {
		return nil, nil, err
	}
	if own, err := raw.LookupErr("_id"); err == nil && !same(own, id) {
		return nil, nil, fmt.Errorf("doclock: the value's _id is %s, that of the document %s: it cannot change", clip(own), clip(id))
	}
	ch := new(change)
	olds := make([]bson.RawValue, len(has))
	for i, old := range has {
		olds[i] = document(old)
	}
	if !ch.within("", olds, document(raw), len(has) <= maxSaved) {
		return nil, nil, fmt.Errorf("doclock: the value of document %s has a field twice", clip(id))
	}
	return ch, raw, nil
}

// within adds the differences between the document and a value in place of the fields of an
// embedded document, whose path ends with a point. It adds nothing and reports false if a field
// cannot be named. Unless the olds are all that the document may have, every field is written
// as a whole.
func (ch *change) within(path string, olds []bson.RawValue, value bson.RawValue, all bool) bool {
	befores := make([]map[string]bson.RawValue, len(olds))
	for i, old := range olds {
		var ok bool
		if befores[i], ok = fieldsByName(old); !ok || !allAddressable(befores[i]) {
			return false
		}
	}
	fields, ok := fieldsByName(value)
	if !ok || !allAddressable(fields) {
		return false
	}
	elements, _ := bson.Raw(value.Value).Elements()
	for _, e := range elements {
		if name := e.Key(); path != "" || name != "_id" {
			ch.field(path+name, name, befores, e.Value(), all)
		}
	}
	gone := map[string]bool{}
	for _, old := range olds {
		elements, _ := bson.Raw(old.Value).Elements()
		for _, e := range elements {
			name := e.Key()
			if _, stays := fields[name]; !stays && !gone[name] && (path != "" || name != "_id") {
				gone[name] = true
				ch.unsets = append(ch.unsets, path+name)
			}
		}
	}
	return true
}

// field adds the differences in one field.
func (ch *change) field(path, name string, befores []map[string]bson.RawValue, value bson.RawValue, all bool) {
	var olds []bson.RawValue
	unchanged := all && len(befores) > 0
	embedded := unchanged && value.Type == bson.TypeEmbeddedDocument
	for _, before := range befores {
		old, had := before[name]
		unchanged = unchanged && had && equal(old, value)
		embedded = embedded && had && old.Type == bson.TypeEmbeddedDocument
		olds = append(olds, old)
	}
	if unchanged || embedded && ch.within(path+".", olds, value, all) {
		return
	}
	ch.sets = append(ch.sets, bson.E{Key: path, Value: value})
}

func allAddressable(fields map[string]bson.RawValue) bool {
	for name := range fields {
		if !addressable(name) {
			return false
		}
	}
	return true
}
