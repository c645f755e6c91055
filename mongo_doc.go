package mongolock

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/store"
)

// The fields of the document, docs/design.md §3.
const (
	fieldMark            = "mongolock"
	fieldMode            = "mode"
	fieldLimit           = "limit"
	fieldHolders         = "holders"
	fieldExpireAt        = "expireAt"
	fieldRev             = "rev"
	fieldAt              = "at"
	fieldWanted          = "wantedUntil"
	fieldExclusiveWanted = "exclusiveWantedUntil"

	// Of a holder.
	fieldOwner    = "owner"
	fieldNote     = "note"
	fieldSince    = "since"
	fieldBroken   = "broken"
	fieldReleased = "released"

	// Where the server does not tell its operationTime: what the token is drawn from.
	fieldStamp = "stamp"
)

// mongoShape is the version of the document's shape, and the mark that it is ours.
const mongoShape = 1

// A mongoRecord is a document as read. One that is not ours, or that says it is and
// does not look like it, has only a key and what gave it away.
type mongoRecord struct {
	foreign string
	key     string

	mode            store.Mode
	limit           int
	holders         []mongoHolder
	rev             bson.ObjectID
	expireAt        time.Time
	at              time.Time
	wanted          time.Time
	exclusiveWanted time.Time
	stamp           bson.Timestamp
}

type mongoHolder struct {
	store.Holder
	broken   bool
	released bool
}

// readRecord reads a document of any shape.
func readRecord(raw bson.Raw) mongoRecord {
	r := mongoRecord{}
	r.key, _ = raw.Lookup("_id").StringValueOK()
	if mark := raw.Lookup(fieldMark); !isShape(mark) {
		r.foreign = "no field " + fieldMark
		if !mark.IsZero() {
			r.foreign = fmt.Sprintf("%s: %s", fieldMark, clip(mark.String(), 40))
		}
		return r
	}
	mode, ok := raw.Lookup(fieldMode).StringValueOK()
	if !ok {
		return r.malformed(raw, fieldMode)
	}
	r.mode = store.Mode(mode)
	if r.rev, ok = raw.Lookup(fieldRev).ObjectIDOK(); !ok {
		return r.malformed(raw, fieldRev)
	}
	if r.expireAt, ok = mongoTime(raw.Lookup(fieldExpireAt)); !ok {
		return r.malformed(raw, fieldExpireAt)
	}
	holders, ok := raw.Lookup(fieldHolders).DocumentOK()
	if !ok {
		return r.malformed(raw, fieldHolders)
	}
	elements, err := holders.Elements()
	if err != nil {
		return r.malformed(raw, fieldHolders)
	}
	for _, e := range elements {
		h, ok := readHolder(e)
		if !ok {
			return r.malformed(raw, fieldHolders)
		}
		r.holders = append(r.holders, h)
	}
	slices.SortFunc(r.holders, func(a, b mongoHolder) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	if limit, ok := raw.Lookup(fieldLimit).AsInt64OK(); ok {
		r.limit = int(limit)
	}
	r.at, _ = mongoTime(raw.Lookup(fieldAt))
	r.stamp.T, r.stamp.I, _ = raw.Lookup(fieldStamp).TimestampOK()
	r.wanted, _ = mongoTime(raw.Lookup(fieldWanted))
	r.exclusiveWanted, _ = mongoTime(raw.Lookup(fieldExclusiveWanted))
	return r
}

// malformed is a document with our mark that nobody of us wrote. Whom it grants
// the key nobody can tell, so it is left alone like any stranger's.
func (r mongoRecord) malformed(raw bson.Raw, field string) mongoRecord {
	return mongoRecord{key: r.key, foreign: fmt.Sprintf("%s: %d, but %s is %s", fieldMark, mongoShape, field, clip(raw.Lookup(field).String(), 40))}
}

func readHolder(e bson.RawElement) (mongoHolder, bool) {
	id, err := e.KeyErr()
	if err != nil {
		return mongoHolder{}, false
	}
	value, err := e.ValueErr()
	if err != nil {
		return mongoHolder{}, false
	}
	doc, ok := value.DocumentOK()
	if !ok {
		return mongoHolder{}, false
	}
	h := mongoHolder{Holder: store.Holder{ID: id}}
	if h.ExpireAt, ok = mongoTime(doc.Lookup(fieldExpireAt)); !ok {
		return mongoHolder{}, false // it would hold for ever, or never
	}
	h.Since, _ = mongoTime(doc.Lookup(fieldSince))
	h.Owner, _ = doc.Lookup(fieldOwner).StringValueOK()
	h.Note, _ = doc.Lookup(fieldNote).StringValueOK()
	h.Broken, h.broken = doc.Lookup(fieldBroken).StringValueOK()
	h.broken = h.broken || !doc.Lookup(fieldBroken).IsZero()
	h.released = !doc.Lookup(fieldReleased).IsZero()
	return h, true
}

// isShape reports whether v equals 1 as a filter understands it.
func isShape(v bson.RawValue) bool {
	if f, ok := v.DoubleOK(); ok {
		return f == mongoShape
	}
	n, ok := v.AsInt64OK()
	return ok && n == mongoShape
}

func mongoTime(v bson.RawValue) (time.Time, bool) {
	ms, ok := v.DateTimeOK()
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMilli(ms).UTC(), true
}

// holder finds the acquisition of that ID.
func (r mongoRecord) holder(id string) (mongoHolder, bool) {
	for _, h := range r.holders {
		if h.ID == id {
			return h, true
		}
	}
	return mongoHolder{}, false
}

// held reports whether anybody has not surely run out.
func (r mongoRecord) held(earliest time.Time) bool {
	return slices.ContainsFunc(r.holders, func(h mongoHolder) bool { return h.ExpireAt.After(earliest) })
}

// wantedAt reports whether somebody's word is still good.
func (r mongoRecord) wantedAt(now time.Time) bool {
	return r.wanted.After(now) || r.exclusiveWanted.After(now)
}

func (r mongoRecord) status(now time.Time) store.Status {
	s := store.Status{Key: r.key, Wanted: r.wantedAt(now), Now: now}
	if len(r.holders) > 0 {
		s.Mode, s.Limit = r.mode, r.limit
		s.Holders = make([]store.Holder, len(r.holders))
		for i, h := range r.holders {
			s.Holders[i] = h.Holder
		}
	}
	return s
}

func errForeign(r mongoRecord) error {
	return fmt.Errorf("%w: the document has %s", store.ErrForeign, r.foreign)
}

func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// ours is the filter of a document of this library under a key. Without the mark in
// it a stranger's document that has our fields would be overwritten.
func (m *mongoStore) ours(key string, more ...bson.E) bson.D {
	filter := append(make(bson.D, 0, 2+len(more)), bson.E{Key: "_id", Value: key})
	if !m.broken.unmarked {
		filter = append(filter, bson.E{Key: fieldMark, Value: mongoShape})
	}
	return append(filter, more...)
}

// of names a field of a holder.
func of(id, field string) string { return fieldHolders + "." + id + "." + field }

func exists(path string) bson.E {
	return bson.E{Key: path, Value: bson.D{{Key: "$exists", Value: true}}}
}

func lacks(path string) bson.E {
	return bson.E{Key: path, Value: bson.D{{Key: "$exists", Value: false}}}
}

func runOut(path string, earliest time.Time) bson.E {
	return bson.E{Key: path, Value: bson.D{{Key: "$lte", Value: mongoDate(earliest)}}}
}

// alive asks for a holder that can still be renewed or transferred.
func alive(id string, earliest time.Time) []bson.E {
	return []bson.E{
		{Key: of(id, fieldExpireAt), Value: bson.D{{Key: "$gt", Value: mongoDate(earliest)}}},
		lacks(of(id, fieldBroken)),
		lacks(of(id, fieldReleased)),
	}
}

// mongoDate is a date as BSON has it. The zero time, before which nobody runs out,
// is the epoch.
func mongoDate(t time.Time) bson.DateTime { return bson.DateTime(max(t.UnixMilli(), 0)) }

var stampAt = bson.E{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}}
