package lease

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Shape is the version of the shape of a lock. As the value of its mark it also says that the lock is
// this library's.
const Shape = 1

// A Layout says where in its document a lock is. The lock is the document itself, and has its holders
// by their IDs in one field; or it is a field of the document, and has one holder at most, whose
// fields stand beside its own.
type Layout struct {
	Mark   string // the field of the lock that marks it as this library's
	Path   Fields // of the lock; empty if it is the document
	Advice string // what a user can do about other content in that field
}

// Holder returns the path of a holder's fields.
func (l Layout) Holder(id string) Fields {
	if l.Path == "" {
		return Fields(FieldHolders + "." + id)
	}
	return l.Path
}

// Named is the condition that the fields which Holder names are those of that holder, if they are there.
func (l Layout) Named(id string) []bson.E {
	mark := bson.E{Key: l.Path.Path(l.Mark), Value: Shape}
	if l.Path == "" {
		return []bson.E{mark}
	}
	return []bson.E{mark, {Key: l.Path.Path(FieldID), Value: id}}
}

// Holds is the condition that the lock has the holder, expired or not.
func (l Layout) Holds(id string) []bson.E {
	if l.Path == "" {
		return append(l.Named(id), Exists(FieldHolders+"."+id))
	}
	return l.Named(id)
}

// sound is the condition that the fields of a lock have the types that Read asks for. It is for the
// command that joins a line: no other goes to a document unread that names nothing of ours but the mark.
// $type looks into an array, and so does the mark: hence no field may have an element.
func (l Layout) sound() []bson.E {
	if l.Path != "" {
		return []bson.E{l.Path.Lined()}
	}
	return []bson.E{
		Lacks(l.Mark + ".0"), Lacks(FieldExpireAt + ".0"),
		IsA(FieldMode, "string"), Lacks(FieldMode + ".0"),
		IsA(FieldRev, "number"), Lacks(FieldRev + ".0"),
		IsA(FieldHolders, "object"), Lacks(FieldHolders + ".0"),
		l.Path.Lined(),
	}
}

// A Document is a lock as read from its document. The zero value is a free one.
type Document struct {
	Foreign error // why it is no lock of this library, which matches store.ErrForeign; then nothing else is set but Key

	Key  string // the document's _id, if that is a text
	Size int    // of the document, in bytes

	Mode    store.Mode
	Rev     int64
	Holders []Holder // in the order in which they came
	Line    []store.Waiter

	At    time.Time      // the server's time at the last write
	Freed time.Time      // when a holder last left
	Used  time.Duration  // for how long that one had the lock
	Stamp bson.Timestamp // of a confirm step
}

// A Holder is one acquisition in a document.
type Holder struct {
	store.Holder
	IsBroken bool

	TTL   time.Duration
	Beat  int64
	Epoch bson.ObjectID
}

// State returns what is needed to judge whether the holder is over.
func (h Holder) State() server.HolderState {
	return server.HolderState{ID: h.ID, Beat: h.Beat, Epoch: h.Epoch, TTL: h.TTL, ExpireAt: h.ExpireAt}
}

// States returns that of each holder.
func (d Document) States() []server.HolderState {
	states := make([]server.HolderState, len(d.Holders))
	for i, h := range d.Holders {
		states[i] = h.State()
	}
	return states
}

// Has returns the acquisition with that ID.
func (d Document) Has(id string) (Holder, bool) {
	for _, h := range d.Holders {
		if h.ID == id {
			return h, true
		}
	}
	return Holder{}, false
}

// Status returns what people are shown of it.
func (d Document) Status(key string, now time.Time) store.Status {
	s := store.Status{Key: key, Line: d.Line, Now: now, Freed: d.Freed, Used: d.Used}
	if len(d.Holders) > 0 {
		s.Mode = d.Mode
		s.Holders = make([]store.Holder, len(d.Holders))
		for i, h := range d.Holders {
			s.Holders[i] = h.Holder
		}
	}
	return s
}

// Read reads a document of any shape, in one pass. What has our mark but not our shape is left alone
// like any stranger's document: its holders cannot be known.
func (l Layout) Read(document bson.Raw) Document {
	d, lock := Document{Size: len(document)}, document
	if l.Path != "" {
		value, err := document.LookupErr(string(l.Path))
		if err != nil {
			return d
		}
		d.Mode = store.Exclusive
		lock, _ = value.DocumentOK()
	} else if document == nil {
		return d
	}
	var mark, holders, line, waits bson.RawValue
	var hasMode, hasRev, hasEnd, nameless bool
	var only Holder // of a lock that is a field
	elements, err := lock.Elements()
	for _, e := range elements {
		v := e.Value()
		switch field := string(keyOf(e)); field {
		case "_id":
			d.Key, _ = v.StringValueOK()
		case l.Mark:
			mark = v
		case FieldID:
			only.ID, _ = v.StringValueOK()
			nameless = only.ID == "" // an ID that no acquisition has: filters would find a holder where there is none
		case FieldMode:
			var mode string
			mode, hasMode = v.StringValueOK()
			d.Mode = store.Mode(mode)
		case FieldHolders:
			holders = v
		case FieldRev:
			d.Rev, hasRev = v.AsInt64OK()
			hasRev = hasRev && server.Is(v, d.Rev) // 1.5 and 1e300 are no numbers that a swap finds again
		case FieldAt:
			d.At, _ = server.Time(v)
		case FieldFreed:
			d.Freed, _ = server.Time(v)
		case FieldUsed:
			ms, _ := v.AsInt64OK()
			d.Used = time.Duration(ms) * time.Millisecond
		case FieldLine:
			line = v
		case FieldWaits:
			waits = v
		case FieldStamp:
			d.Stamp.T, d.Stamp.I, _ = v.TimestampOK()
		case FieldExpireAt:
			var end time.Time
			end, hasEnd = server.Time(v)
			hasEnd = hasEnd && (end.UnixMilli() >= 0 || l.Path != "") // as a place in line asks: otherwise its waiter would not learn why it is refused
			fallthrough
		default:
			only.read(field, v)
		}
	}
	var read, lined bool
	if d.Line, lined = readLine(line, waits); l.Path == "" {
		d.Holders, read = readHolders(holders)
	} else if hasMode, hasRev, read = true, true, !nameless && (only.ID == "" || only.complete()); only.ID != "" {
		d.Holders = []Holder{only}
	}
	switch {
	case !server.Is(mark, Shape):
		return l.foreign(document, d.Key, l.Mark)
	case !hasMode:
		return l.foreign(document, d.Key, FieldMode)
	case !hasRev:
		return l.foreign(document, d.Key, FieldRev)
	case !hasEnd:
		return l.foreign(document, d.Key, FieldExpireAt)
	case err != nil || !read:
		return l.foreign(document, d.Key, FieldHolders)
	case !lined:
		return l.foreign(document, d.Key, FieldLine)
	}
	return d
}

// foreign returns the Document of what is no lock of ours, because of one of its fields.
func (l Layout) foreign(document bson.Raw, key, field string) Document {
	value := document.Lookup(field)
	var why string
	switch {
	case l.Path != "":
		why = fmt.Sprintf("its field %s is %s, %s", l.Path, server.Clip(document.Lookup(string(l.Path)), 60), l.Advice)
	case field != l.Mark:
		why = fmt.Sprintf("the document has %s: %d, but %s is %s", l.Mark, Shape, field, server.Clip(value, 40))
	case value.IsZero():
		why = "the document has no field " + field
	default:
		why = fmt.Sprintf("the document has %s: %s", field, server.Clip(value, 40))
	}
	return Document{Key: key, Foreign: fmt.Errorf("%w: %s", store.ErrForeign, why)}
}

// readGrant reads, from the after-image of a claim's own update, only what the claim did not
// write itself: that the claim is there, the server's time, and who waits. A key may have many holders.
func (l Layout) readGrant(document bson.Raw, id string) (d Document) {
	if l.Path != "" {
		return l.Read(document)
	}
	d.Line, _ = readLine(document.Lookup(FieldLine), bson.RawValue{})
	d.At, _ = server.Time(document.Lookup(FieldAt))
	d.Stamp.T, d.Stamp.I, _ = document.Lookup(FieldStamp).TimestampOK()
	if _, err := document.LookupErr(FieldHolders, id); err == nil && server.Is(document.Lookup(l.Mark), Shape) {
		d.Holders = []Holder{{Holder: store.Holder{ID: id}}}
	}
	return d
}

// keyOf returns an element's key, without the copy that its method Key makes.
func keyOf(e bson.RawElement) []byte {
	key, _, _ := bytes.Cut(e[1:], []byte{0})
	return key
}

func readHolders(v bson.RawValue) (all []Holder, ok bool) {
	holders, ok := v.DocumentOK()
	if !ok {
		return nil, false
	}
	elements, err := holders.Elements()
	if err != nil {
		return nil, false
	}
	all = make([]Holder, 0, len(elements))
	for _, e := range elements {
		h := Holder{Holder: store.Holder{ID: e.Key()}}
		fields, ok := e.Value().DocumentOK()
		if !ok || h.ID == "" || strings.ContainsAny(h.ID, ".$\x00") { // no filter could name it
			return nil, false
		}
		elements, err := fields.Elements()
		for _, f := range elements {
			h.read(string(keyOf(f)), f.Value())
		}
		if err != nil || !h.complete() { // it could not be judged when it is over
			return nil, false
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return all, true
}
