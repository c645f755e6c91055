package doclock

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongolease"
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

// shape is the version of the sub-document's shape. As the value of fieldMark it also
// marks the sub-document as a lock of this package.
const shape = 1

// A record is a document's lock as read.
type record struct {
	foreign string // why it is not a lock of this package; empty: it is, or there is none

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

// readLock reads the lock of a document of any shape. A document without one is free.
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
	if err != nil || !hasEnd { // without an end it would be held for ever, or never
		return record{foreign: fmt.Sprintf("its field %s is %s", field, clip(value))}
	}
	return r
}

// date is a time in BSON.
func date(t time.Time) bson.DateTime { return mongobase.Date(t) }

func clip(v bson.RawValue) string { return mongobase.Clip(v, 60) }

func (r record) Foreign() error {
	if r.foreign == "" {
		return nil
	}
	return fmt.Errorf("%w: %s, but doclock keeps its lock in that field: name another (doclock.Field)", store.ErrForeign, r.foreign)
}

func (r record) Holder(id string) (mongolease.Holder, bool) {
	if r.id == "" || r.id != id {
		return mongolease.Holder{}, false
	}
	return mongolease.Holder{Holder: r.holder(), IsBroken: r.broken, Released: r.released}, true
}

func (r record) holder() store.Holder {
	return store.Holder{ID: r.id, Owner: r.owner, Note: r.note, Since: r.since, ExpireAt: r.expireAt, Broken: r.reason}
}

func (r record) Held(earliest time.Time) bool { return r.id != "" && r.expireAt.After(earliest) }

func (r record) Wanted(now time.Time) bool { return r.wanted.After(now) }

// Worded asks for half of what the claim wanted.
func (r record) Worded(c store.Claim, now time.Time) bool { return r.Wanted(now.Add(c.Want / 2)) }

func (r record) Drawn() (at time.Time, stamp bson.Timestamp) { return r.at, r.stamp }

// residue reports whether the lock has marks that outlast its holder.
func (r record) residue() bool { return r.attempts > 0 || r.done || !r.readyAt.IsZero() }

func (r record) Status(key string, now time.Time) store.Status {
	s := store.Status{Key: key, Wanted: r.Wanted(now), Now: now}
	if r.id != "" {
		s.Mode, s.Limit, s.Holders = store.Exclusive, 1, []store.Holder{r.holder()}
	}
	return s
}
