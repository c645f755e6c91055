package mongostore

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/store"
)

// The fields of the document, docs/internals/design.md §3.
const (
	fieldMark     = "mongolock"
	fieldMode     = "mode"
	fieldHolders  = "holders"
	fieldExpireAt = "expireAt"
	fieldRev      = "rev"
	fieldAt       = lease.FieldAt
	fieldLine     = lease.FieldLine

	// The fields of a holder.
	fieldBroken = lease.FieldBroken
	fieldStamp  = lease.FieldStamp
)

// shape is the version of the document's shape. As the value of fieldMark it also marks the
// document as this library's.
const shape = 1

// A record is a document as read. If the document is a stranger's, or has our mark but not our
// shape, the record has only its key and the reason.
type record struct {
	lease.Document
	key  string
	size int // in bytes

	mode     store.Mode
	rev      int64
	expireAt time.Time
}

// readRecord reads a document of any shape, in one pass.
func readRecord(raw bson.Raw) record {
	r := record{size: len(raw)}
	var mark, holders, line, waits bson.RawValue
	var hasMode, hasRev, hasEnd bool
	elements, err := raw.Elements()
	for _, e := range elements {
		switch v := e.Value(); string(keyOf(e)) {
		case "_id":
			r.key, _ = v.StringValueOK()
		case fieldMark:
			mark = v
		case fieldMode:
			var mode string
			mode, hasMode = v.StringValueOK()
			r.mode = store.Mode(mode)
		case fieldHolders:
			holders = v
		case fieldExpireAt:
			r.expireAt, hasEnd = command.Time(v)
			hasEnd = hasEnd && r.expireAt.UnixMilli() >= 0 // as a place in line asks: otherwise its waiter would not learn why it is refused
		case fieldRev:
			r.rev, hasRev = v.AsInt64OK()
		case fieldAt:
			r.At, _ = command.Time(v)
		case lease.FieldFreed:
			r.Freed, _ = command.Time(v)
		case lease.FieldUsed:
			ms, _ := v.AsInt64OK()
			r.Used = time.Duration(ms) * time.Millisecond
		case fieldLine:
			line = v
		case lease.FieldWaits:
			waits = v
		case fieldStamp:
			r.Stamp.T, r.Stamp.I, _ = v.TimestampOK()
		}
	}
	switch {
	case mark.IsZero():
		return r.strange("no field " + fieldMark)
	case !command.Is(mark, shape):
		return r.strange(fmt.Sprintf("%s: %s", fieldMark, command.Clip(mark, 40)))
	case !hasMode:
		return r.malformed(raw, fieldMode)
	case !hasRev:
		return r.malformed(raw, fieldRev)
	case !hasEnd:
		return r.malformed(raw, fieldExpireAt)
	case err != nil || !r.readHolders(holders):
		return r.malformed(raw, fieldHolders)
	}
	var hasLine bool
	if r.Line, hasLine = lease.ReadLine(line, waits); !hasLine {
		return r.malformed(raw, fieldLine)
	}
	return r
}

// keyOf returns an element's key, without the copy that its method Key makes.
func keyOf(e bson.RawElement) []byte {
	key, _, _ := bytes.Cut(e[1:], []byte{0})
	return key
}

// readGrant reads, from the after-image of a claim's own update, only what the claim did not
// write itself: that the claim is there, the server's time, and who waits.
func readGrant(raw bson.Raw, id string) record {
	var r record
	r.Line, _ = lease.ReadLine(raw.Lookup(fieldLine), bson.RawValue{})
	r.At, _ = command.Time(raw.Lookup(fieldAt))
	if _, err := raw.LookupErr(fieldHolders, id); err == nil && command.Is(raw.Lookup(fieldMark), shape) {
		r.Holders = []lease.Holder{{Holder: store.Holder{ID: id}}}
	}
	return r
}

func (r *record) readHolders(v bson.RawValue) bool {
	doc, ok := v.DocumentOK()
	if !ok {
		return false
	}
	elements, err := doc.Elements()
	if err != nil {
		return false
	}
	r.Holders = make([]lease.Holder, 0, len(elements))
	for _, e := range elements {
		h, ok := readHolder(e.Key(), e.Value())
		if !ok {
			return false
		}
		r.Holders = append(r.Holders, h)
	}
	slices.SortFunc(r.Holders, func(a, b lease.Holder) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return true
}

// malformed returns the record of a document with our mark but not our shape. Its holders
// cannot be known, so it is left alone like any stranger's document.
func (r record) malformed(raw bson.Raw, field string) record {
	return r.strange(fmt.Sprintf("%s: %d, but %s is %s", fieldMark, shape, field, command.Clip(raw.Lookup(field), 40)))
}

func (r record) strange(why string) record {
	return record{key: r.key, Document: lease.Document{Stranger: why}}
}

func readHolder(id string, v bson.RawValue) (lease.Holder, bool) {
	h := lease.Holder{Holder: store.Holder{ID: id}}
	doc, ok := v.DocumentOK()
	if !ok || id == "" || strings.ContainsAny(id, ".$\x00") { // no filter could name it
		return h, false
	}
	elements, err := doc.Elements()
	for _, e := range elements {
		h.Read(string(keyOf(e)), e.Value())
	}
	return h, h.Complete() && err == nil // otherwise it could not be judged when it is over
}

func (r record) Foreign() error {
	if r.Stranger == "" {
		return nil
	}
	return fmt.Errorf("%w: the document has %s", store.ErrForeign, r.Stranger)
}

func (r record) Status(key string, now time.Time) store.Status {
	return r.Seen(key, r.mode, now)
}

// ours returns the filter of this library's document under a key. It names the mark: without
// it, a stranger's document that has our fields would be overwritten.
func ours(key string, more ...bson.E) bson.D {
	filter := make(bson.D, 0, 2+len(more))
	filter = append(filter, bson.E{Key: "_id", Value: key}, bson.E{Key: fieldMark, Value: shape})
	return append(filter, more...)
}

// sound is the condition that the fields of a document have the types that readRecord asks for. It is for
// the command that joins a line: no other goes to a document unread that names nothing of ours but the mark.
// $type looks into an array, and so does the mark: hence no field may have an element.
var sound = []bson.E{
	lease.Lacks(fieldMark + ".0"), lease.Lacks(fieldExpireAt + ".0"),
	lease.IsA(fieldMode, "string"), lease.Lacks(fieldMode + ".0"),
	lease.IsA(fieldRev, "number"), lease.Lacks(fieldRev + ".0"),
	lease.IsA(fieldHolders, "object"), lease.Lacks(fieldHolders + ".0"),
	lock.Lined(),
}

func of(id, field string) string { return fieldHolders + "." + id + "." + field }

func exists(path string) bson.E { return lease.Exists(path) }

func holder(id string) lease.Fields { return lease.Fields(fieldHolders + "." + id) }

// newRev returns the revision that a claim writes: a number that no document of this key has
// had. Its 52 bits, and what moveRev adds, are exact in a shell whose numbers are doubles.
func newRev() int64 {
	var b [8]byte
	_, _ = rand.Read(b[1:])                            // it never fails; seven bytes, because the simulation takes eight for jitter
	return int64(binary.BigEndian.Uint64(b[:])>>4 | 1) //nolint:gosec // 52 bits
}

// moveRev goes with every change of the holders that a compare-and-swap must not overlook. It
// adds, so that the revision written by a claim is not lost: if the same change is sent twice,
// over a rollback, it gives two revisions if a holder came in between. A revision of its own,
// written twice, would name two documents.
var moveRev = bson.E{Key: "$inc", Value: bson.D{{Key: fieldRev, Value: int64(1)}}}

// lock is the path of the fields of a lock, which are the document's.
const lock = lease.Fields("")

// unheld is the condition that a key has no holder, and unawaited that nobody waits for it.
var (
	unheld    = bson.E{Key: fieldHolders, Value: bson.D{}}
	unawaited = lock.Unawaited()
)

var exclusively = inMode(store.Exclusive)

var stampAt = lock.Timed()
