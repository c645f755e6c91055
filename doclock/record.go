package doclock

import (
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// The fields of the lock's sub-document; see the package comment.
const (
	fieldMark     = "doclock"
	fieldID       = "id"
	fieldOwner    = "owner"
	fieldNote     = "note"
	fieldSince    = "since"
	fieldExpireAt = "expireAt"
	fieldAt       = "at"
	fieldWanted   = "wantedUntil"
	fieldBroken   = "broken"
	fieldReleased = "released"
	fieldStamp    = "stamp"
	fieldSaves    = "saves"

	fieldAttempts = "attempts"
	fieldReadyAt  = "readyAt"
	fieldDone     = "done"
)

// shape is the version of the sub-document's shape, and the mark that it is ours.
const shape = 1

// A record is a document's lock as read.
type record struct {
	foreign string // what gave it away as none of ours

	id, owner, note string
	since, expireAt time.Time
	at, wanted      time.Time
	broken          bool
	reason          string
	released        bool
	stamp           bson.Timestamp

	attempts int
	readyAt  time.Time
	done     bool
}

// readLock reads the lock of a document of any shape. A document without one is a
// free one.
func readLock(doc bson.Raw, field string) (r record) {
	value, err := doc.LookupErr(field)
	if err != nil {
		return r
	}
	lock, ok := value.DocumentOK()
	if !ok {
		return record{foreign: fmt.Sprintf("its field %s is %s", field, clip(value))}
	}
	mark := lock.Lookup(fieldMark)
	if !mongobase.Is(mark, shape) {
		return record{foreign: fmt.Sprintf("its field %s is %s", field, clip(value))}
	}
	r.at, _ = mongobase.Time(doc.Lookup(beside(field, fieldAt)))
	r.stamp.T, r.stamp.I, _ = doc.Lookup(beside(field, fieldStamp)).TimestampOK()
	hasEnd := false
	elements, err := lock.Elements()
	for _, e := range elements {
		switch v := e.Value(); e.Key() {
		case fieldID:
			r.id, _ = v.StringValueOK()
		case fieldOwner:
			r.owner, _ = v.StringValueOK()
		case fieldNote:
			r.note, _ = v.StringValueOK()
		case fieldSince:
			r.since, _ = mongobase.Time(v)
		case fieldExpireAt:
			r.expireAt, hasEnd = mongobase.Time(v)
		case fieldAt:
			r.at, _ = mongobase.Time(v)
		case fieldWanted:
			r.wanted, _ = mongobase.Time(v)
		case fieldBroken:
			r.reason, _ = v.StringValueOK()
			r.broken = true
		case fieldReleased:
			r.released = true
		case fieldStamp:
			r.stamp.T, r.stamp.I, _ = v.TimestampOK()
		case fieldAttempts:
			n, _ := v.AsInt64OK()
			r.attempts = int(n)
		case fieldReadyAt:
			r.readyAt, _ = mongobase.Time(v)
		case fieldDone:
			r.done = true
		}
	}
	if err != nil || !hasEnd { // or it would be held for ever, or never
		return record{foreign: fmt.Sprintf("its field %s is %s", field, clip(value))}
	}
	return r
}

// date is a time as BSON has it.
func date(t time.Time) bson.DateTime { return mongobase.Date(t) }

func clip(v bson.RawValue) string { return mongobase.Clip(v, 60) }

// held reports whether somebody has it who has not surely run out.
func (r record) held(earliest time.Time) bool { return r.id != "" && r.expireAt.After(earliest) }

// wantedAt reports whether somebody's word is still good.
func (r record) wantedAt(now time.Time) bool { return r.wanted.After(now) }

// residue reports whether the lock says something that outlasts its holder.
func (r record) residue() bool { return r.attempts > 0 || r.done || !r.readyAt.IsZero() }

func (r record) status(key string, now time.Time) store.Status {
	s := store.Status{Key: key, Wanted: r.wantedAt(now), Now: now}
	if r.id != "" {
		s.Mode, s.Limit = store.Exclusive, 1
		s.Holders = []store.Holder{{
			ID: r.id, Owner: r.owner, Note: r.note, Since: r.since, ExpireAt: r.expireAt, Broken: r.reason,
		}}
	}
	return s
}

// stampPath names a field of the lock that the server's clock writes. FerretDB's can
// write only the document's own fields: there they stand beside the lock.
func (s *docStore) stampPath(field string) string {
	if s.flat.Load() {
		return beside(s.field, field)
	}
	return s.path(field)
}

func beside(lock, field string) string { return lock + "_" + field }

// noPath reports whether a server refused to write its clock into the lock.
func noPath(err error) bool {
	return mongoerr.HasCode(err, 2) && strings.Contains(err.Error(), "must not contain '.'")
}

// path names a field of the lock.
func (s *docStore) path(field string) string { return s.field + "." + field }

// free is the condition that nobody holds a document: no lock at all, one that has
// no holder, or one whose holder has run out. Something else in the lock's place
// matches none of them.
func (s *docStore) free(earliest time.Time) bson.E {
	ours := bson.E{Key: s.path(fieldMark), Value: shape}
	return bson.E{Key: "$or", Value: bson.A{
		bson.D{lacks(s.field)},
		bson.D{ours, lacks(s.path(fieldID))},
		bson.D{ours, {Key: s.path(fieldExpireAt), Value: bson.D{{Key: "$lte", Value: date(earliest)}}}},
	}}
}

// claimable is free for one of many: also not done, and not put off.
func (s *docStore) claimable(earliest time.Time) bson.D {
	return bson.D{
		{Key: s.path(fieldDone), Value: nil},
		{Key: "$or", Value: bson.A{
			bson.D{lacks(s.field)},
			bson.D{
				{Key: s.path(fieldMark), Value: shape},
				{Key: s.path(fieldExpireAt), Value: bson.D{{Key: "$lte", Value: date(earliest)}}},
				{Key: s.path(fieldReadyAt), Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: date(earliest)}}}}},
			},
		}},
	}
}

// named is the condition that an acquisition is there, run out or not.
func (s *docStore) named(id string) []bson.E {
	if s.broken.byKeyAlone {
		return nil
	}
	return []bson.E{{Key: s.path(fieldMark), Value: shape}, {Key: s.path(fieldID), Value: id}}
}

// alive is the condition that it can still be renewed, saved by or transferred.
func (s *docStore) alive(id string) []bson.E {
	if s.broken.byKeyAlone {
		return nil
	}
	return append(s.named(id), s.living()...)
}

// living is the condition that the holder, whoever it is, was not declared dead.
func (s *docStore) living() []bson.E {
	return []bson.E{
		{Key: s.path(fieldExpireAt), Value: bson.D{{Key: "$gt", Value: date(s.base.Now().Earliest)}}},
		lacks(s.path(fieldBroken)), lacks(s.path(fieldReleased)),
	}
}

// newer is the condition that no later save of the same holder was written.
func (s *docStore) newer(save int) []bson.E {
	if s.broken.anyOrder {
		return nil
	}
	return []bson.E{{Key: s.path(fieldSaves), Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: save}}}}}}
}

func lacks(path string) bson.E {
	return bson.E{Key: path, Value: bson.D{{Key: "$exists", Value: false}}}
}

// A term is what a claim writes: when it begins and ends.
type term struct{ since, until time.Time }

// holding is the update that makes a claim the holder, field by field: what the
// lock remembers of others stays.
func (s *docStore) holding(c *claim, now mongoclock.Reading) (*update, term) {
	var t term
	t.since, t.until = now.Expiry(c.TTL)
	u := new(update)
	u.set(s.path(fieldMark), shape)
	u.set(s.path(fieldID), c.ID)
	u.set(s.path(fieldOwner), c.Owner)
	u.set(s.path(fieldNote), c.Note)
	u.set(s.path(fieldSince), date(t.since))
	u.set(s.path(fieldExpireAt), date(t.until))
	u.unset(s.path(fieldBroken), s.path(fieldReleased), s.path(fieldSaves), s.stampPath(fieldStamp))
	if c.one {
		u.increments = bson.D{{Key: s.path(fieldAttempts), Value: 1}}
		u.unset(s.path(fieldReadyAt))
	}
	u.onInsert = c.initial
	u.stamp = true
	return u, t
}

// leaving is the update that takes the holder out of the lock, or the whole lock
// if it says nothing beyond that.
func (s *docStore) leaving(residue bool) *update {
	u := new(update)
	if !residue {
		u.unset(s.field)
		if s.flat.Load() {
			u.unset(s.stampPath(fieldAt), s.stampPath(fieldStamp))
		}
		return u
	}
	for _, f := range []string{fieldID, fieldOwner, fieldNote, fieldSince, fieldBroken, fieldReleased, fieldWanted, fieldSaves} {
		u.unset(s.path(f))
	}
	u.unset(s.stampPath(fieldStamp))
	u.set(s.path(fieldExpireAt), date(time.Time{}))
	u.stamp = true
	return u
}

// An update collects operators, each of which may be there but once.
type update struct {
	sets, unsets, maxima, increments, onInsert bson.D
	stamp                                      bool // at gets the server's time
}

func (u *update) set(path string, value any) {
	u.sets = append(u.sets, bson.E{Key: path, Value: value})
}

func (u *update) unset(paths ...string) {
	for _, p := range paths {
		u.unsets = append(u.unsets, bson.E{Key: p, Value: ""})
	}
}

func (u *update) max(path string, t time.Time) {
	u.maxima = append(u.maxima, bson.E{Key: path, Value: date(t)})
}

func (u *update) document(at string) bson.D {
	var d bson.D
	for _, op := range []bson.E{
		{Key: "$set", Value: u.sets}, {Key: "$unset", Value: u.unsets}, {Key: "$max", Value: u.maxima},
		{Key: "$inc", Value: u.increments}, {Key: "$setOnInsert", Value: u.onInsert},
	} {
		if len(op.Value.(bson.D)) > 0 {
			d = append(d, op)
		}
	}
	if u.stamp {
		d = append(d, bson.E{Key: "$currentDate", Value: bson.D{{Key: at, Value: true}}})
	}
	return d
}
