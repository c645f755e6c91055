package doclock

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// The fields of the lock's sub-document besides those that every holder has; see the
// package comment.
const (
	fieldMark     = "doclock"
	fieldID       = "id"
	fieldExpireAt = mongolease.FieldExpireAt
	fieldBroken   = mongolease.FieldBroken
	fieldReleased = mongolease.FieldReleased
	fieldAt       = "at"
	fieldWanted   = "wantedUntil"
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
	foreign string            // why it is not a lock of this package; empty: it is, or there is none
	holder  mongolease.Holder // without an ID: none

	at, wanted time.Time
	stamp      bson.Timestamp

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
	foreign := func() record { return record{foreign: fmt.Sprintf("its field %s is %s", field, clip(value))} }
	lock, _ := value.DocumentOK()
	elements, err := lock.Elements()
	_, ends := mongobase.Time(lock.Lookup(fieldExpireAt))
	if err != nil || !ends || !mongobase.Is(lock.Lookup(fieldMark), shape) {
		return foreign()
	}
	r.at, _ = mongobase.Time(doc.Lookup(beside(field, fieldAt)))
	r.stamp.T, r.stamp.I, _ = doc.Lookup(beside(field, fieldStamp)).TimestampOK()
	for _, e := range elements {
		switch v := e.Value(); e.Key() {
		case fieldID:
			r.holder.ID, _ = v.StringValueOK()
		case fieldAt:
			r.at, _ = mongobase.Time(v)
		case fieldWanted:
			r.wanted, _ = mongobase.Time(v)
		case fieldStamp:
			r.stamp.T, r.stamp.I, _ = v.TimestampOK()
		case fieldAttempts:
			n, _ := v.AsInt64OK()
			r.attempts = int(n)
		case fieldReadyAt:
			r.readyAt, _ = mongobase.Time(v)
		case fieldDone:
			r.done = true
		default:
			r.holder.Read(e.Key(), v)
		}
	}
	if r.holder.ID != "" && !r.holder.Complete() { // nobody could tell when it is over
		return foreign()
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
	return r.holder, id != "" && r.holder.ID == id
}

func (r record) Marks() []mongobase.Mark {
	if r.holder.ID == "" {
		return nil
	}
	return []mongobase.Mark{r.holder.Mark()}
}

func (r record) Wanted(now time.Time) bool { return r.wanted.After(now) }

// Worded asks for half of what the claim wanted.
func (r record) Worded(c store.Claim, now time.Time) bool { return r.Wanted(now.Add(c.Want / 2)) }

func (r record) Drawn() (at time.Time, stamp bson.Timestamp) { return r.at, r.stamp }

// residue reports whether the lock has marks that outlast its holder.
func (r record) residue() bool { return r.attempts > 0 || r.done || !r.readyAt.IsZero() }

func (r record) Status(key string, now time.Time) store.Status {
	s := store.Status{Key: key, Wanted: r.Wanted(now), Now: now}
	if r.holder.ID != "" {
		s.Mode, s.Limit, s.Holders = store.Exclusive, 1, []store.Holder{r.holder.Holder}
	}
	return s
}
