package gate

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A translator puts commands that FerretDB v1 refuses, although MongoDB takes them, into words that
// it understands. What is not among these few goes through as it is.
//
//   - $currentDate with a path into an embedded document becomes a $set of this process's clock, which
//     is FerretDB's too: it runs in this process.
//   - findAndModify loses its projection: the reply has the whole document.
//   - create refuses a capped collection. FerretDB has them and their tailable cursors, but after some
//     dozens of these all readers get old data, or the database stays locked.
type translator struct {
	mu   sync.Mutex // protects last
	last uint64     // the last timestamp, because no two are equal
}

// commandNotFound is the code with which a server refuses what it does not have.
const commandNotFound = 59

// translate returns the message for the server, or an answer that takes its place.
func (t *translator) translate(m message) (request, answer message) {
	name := m.command()
	if name != "update" && name != "findAndModify" && name != "create" {
		return m, nil
	}
	command, ok := m.document()
	if !ok {
		return m, nil // the server says what is wrong with it
	}
	switch name {
	case "create":
		if is, _ := command.value("capped").BooleanOK(); is {
			return nil, m.answered(bson.D{
				{Key: "ok", Value: 0}, {Key: "code", Value: commandNotFound}, {Key: "codeName", Value: "CommandNotFound"},
				{Key: "errmsg", Value: "devmongo: no capped collections: FerretDB's tailable cursors cannot be relied on"},
			})
		}
		return m, nil
	case "findAndModify":
		command = slices.DeleteFunc(command, func(e element) bool { return e.Key == "fields" })
		command.change("update", t.update)
	case "update":
		command.change("updates", func(all bson.RawValue) any {
			return changed(all, func(one bson.RawValue) any {
				statement := elementsOf(one)
				statement.change("u", t.update)
				return statement.bson()
			})
		})
	}
	return m.with(command), nil
}

// update writes the clock into embedded documents in another way. A pipeline stays as it is.
func (t *translator) update(v bson.RawValue) any {
	if v.Type != bson.TypeEmbeddedDocument {
		return v
	}
	operators := elementsOf(v)
	var inside, plain bson.D
	for _, e := range elementsOf(operators.value("$currentDate")) {
		if strings.Contains(e.Key, ".") {
			inside = append(inside, bson.E{Key: e.Key, Value: t.now(e.Value)})
		} else {
			plain = append(plain, bson.E{Key: e.Key, Value: e.Value})
		}
	}
	if inside == nil {
		return v
	}
	var all bson.D
	for _, e := range operators {
		switch e.Key {
		case "$currentDate":
		case "$set":
			inside = append(elementsOf(e.Value).bson(), inside...)
		default:
			all = append(all, bson.E{Key: e.Key, Value: e.Value})
		}
	}
	all = append(all, bson.E{Key: "$set", Value: inside})
	if plain != nil {
		all = append(all, bson.E{Key: "$currentDate", Value: plain})
	}
	return all
}

// now is the time as a $currentDate specifies it: a date, or a timestamp, of which no two are equal.
func (t *translator) now(spec bson.RawValue) any {
	now := time.Now()
	if kind, _ := elementsOf(spec).value("$type").StringValueOK(); kind != "timestamp" {
		return bson.NewDateTimeFromTime(now)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = max(t.last+1, uint64(now.Unix())<<32|uint64(now.Nanosecond())) //nolint:gosec // since 1970
	return bson.Timestamp{T: uint32(t.last >> 32), I: uint32(t.last)}       //nolint:gosec // its halves
}

// An element is one of a document. Its value stays in BSON, so that nothing is lost on the way.
type element struct {
	Key   string
	Value bson.RawValue
}

// A document is a list of elements, to be read and changed.
type document []element

// elementsOf returns the elements of a document, none if the value is no document.
func elementsOf(v bson.RawValue) document {
	doc, ok := v.DocumentOK()
	if !ok {
		return nil
	}
	elements, err := doc.Elements()
	if err != nil {
		return nil
	}
	all := make(document, len(elements))
	for i, e := range elements {
		all[i] = element{e.Key(), e.Value()}
	}
	return all
}

func (d document) value(key string) bson.RawValue {
	for _, e := range d {
		if e.Key == key {
			return e.Value
		}
	}
	return bson.RawValue{}
}

// change replaces the value of a key that is there.
func (d document) change(key string, with func(bson.RawValue) any) {
	for i, e := range d {
		if e.Key == key {
			d[i].Value = encoded(with(e.Value))
		}
	}
}

func (d document) bson() bson.D {
	all := make(bson.D, len(d))
	for i, e := range d {
		all[i] = bson.E{Key: e.Key, Value: e.Value}
	}
	return all
}

// changed returns an array with each element changed.
func changed(array bson.RawValue, with func(bson.RawValue) any) any {
	raw, ok := array.ArrayOK()
	if !ok {
		return array
	}
	values, err := raw.Values()
	if err != nil {
		return array
	}
	all := make(bson.A, len(values))
	for i, v := range values {
		all[i] = with(v)
	}
	return all
}

// encoded encodes values that came from BSON, which cannot fail.
func encoded(v any) bson.RawValue {
	if raw, is := v.(bson.RawValue); is {
		return raw
	}
	kind, data, err := bson.MarshalValue(v)
	if err != nil {
		panic("devmongo: " + err.Error())
	}
	return bson.RawValue{Type: kind, Value: data}
}

// document returns the command of an OP_MSG with its sequences of documents as arrays, which means the
// same. ok is false for other messages and for those that the gate cannot read.
func (m message) document() (command document, ok bool) {
	flags, ok := m.flags()
	if !ok || binary.LittleEndian.Uint32(flags)&flagChecksum != 0 {
		return nil, false
	}
	for rest := m[headerSize+4:]; len(rest) > 0; {
		kind := rest[0]
		if rest = rest[1:]; len(rest) < 4 {
			return nil, false
		}
		size := int(binary.LittleEndian.Uint32(rest))
		if size < 5 || size > len(rest) {
			return nil, false
		}
		section := rest[:size]
		rest = rest[size:]
		switch kind {
		case 0:
			raw := bson.Raw(section)
			if raw.Validate() != nil {
				return nil, false
			}
			command = append(command, elementsOf(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw})...)
		case 1:
			name, documents, ok := cutCString(section[4:])
			if !ok {
				return nil, false
			}
			var all bson.A
			for reader := bytes.NewReader(documents); reader.Len() > 0; {
				one, err := bson.ReadDocument(reader)
				if err != nil || one.Validate() != nil {
					return nil, false
				}
				all = append(all, one)
			}
			command = append(command, element{name, encoded(all)})
		default:
			return nil, false
		}
	}
	return command, true
}

// with returns the message with another command.
func (m message) with(command document) message {
	body := encoded(command.bson()).Value
	to := slices.Concat(m[:headerSize+4], []byte{0}, body)
	binary.LittleEndian.PutUint32(to, uint32(len(to))) //nolint:gosec // as long as the message, or little more
	return to
}

// answered returns the answer to a command in place of the server's.
func (m message) answered(reply bson.D) message {
	to := make(message, headerSize+4, 256)
	copy(to[8:], m[4:8]) // in response to
	binary.LittleEndian.PutUint32(to[12:], opMsg)
	to = append(append(to, 0), encoded(reply).Value...)
	binary.LittleEndian.PutUint32(to, uint32(len(to))) //nolint:gosec // short
	return to
}
