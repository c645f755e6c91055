package doclock

import (
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/store"
)

// The fields of the lock's sub-document that not every holder has; see docs/internals/doclock.md.
const (
	fieldMark     = "doclock"
	fieldID       = "id"
	fieldExpireAt = lease.FieldExpireAt
	fieldBroken   = lease.FieldBroken
	fieldReleased = lease.FieldReleased
	fieldAt       = lease.FieldAt
	fieldStamp    = lease.FieldStamp
	fieldSaves    = "saves"

	fieldAttempts = "attempts"
	fieldReadyAt  = "readyAt"
	fieldDone     = "done"
	fieldDead     = "dead"
)

// shape is the version of the sub-document's shape. As the value of fieldMark it also
// marks the sub-document as a lock of this package.
const shape = 1

// A record is a document's lock as read. It has one holder or none.
type record struct {
	lease.Document
	attempts int
	readyAt  time.Time
	done     bool
	dead     time.Time // when it was set aside; zero: it was not
}

// readLock reads the lock of a document of any shape. A document without one is free.
func readLock(doc bson.Raw, field string) (r record) {
	value, err := doc.LookupErr(field)
	if err != nil {
		return r
	}
	lock, _ := value.DocumentOK()
	elements, err := lock.Elements()
	_, ends := command.Time(lock.Lookup(fieldExpireAt))
	ours := err == nil && ends && command.Is(lock.Lookup(fieldMark), shape)
	nameless := false // an id that no acquisition has: then filters find a holder where there is none
	var h lease.Holder
	for _, e := range elements {
		switch v := e.Value(); e.Key() {
		case fieldID:
			h.ID, _ = v.StringValueOK()
			nameless = h.ID == ""
		case fieldAt:
			r.At, _ = command.Time(v)
		case fieldStamp:
			r.Stamp.T, r.Stamp.I, _ = v.TimestampOK()
		case lease.FieldFreed:
			r.Freed, _ = command.Time(v)
		case lease.FieldUsed:
			ms, _ := v.AsInt64OK()
			r.Used = time.Duration(ms) * time.Millisecond
		case lease.FieldLine:
			var lined bool
			r.Line, lined = lease.ReadLine(v, lock.Lookup(lease.FieldWaits))
			ours = ours && lined
		case fieldAttempts:
			n, _ := number(v)
			if r.attempts = math.MaxInt32; math.Abs(n) < math.MaxInt32 { // otherwise no number, or one that counts nothing
				r.attempts = int(n)
			}
		case fieldReadyAt:
			r.readyAt, _ = command.Time(v)
		case fieldDone:
			is, isBool := v.BooleanOK()
			r.done = v.Type != bson.TypeNull && (is || !isBool)
		case fieldDead:
			r.dead, _ = command.Time(v)
		default:
			h.Read(e.Key(), v)
		}
	}
	if !ours || nameless || h.ID != "" && !h.Complete() { // such a holder could not be judged when it is over
		return record{Document: lease.Document{Stranger: fmt.Sprintf("its field %s is %s", field, clip(value))}}
	}
	if h.ID != "" {
		r.Holders = []lease.Holder{h}
	}
	return r
}

// date returns a time in BSON.
func date(t time.Time) bson.DateTime { return command.Date(t) }

func clip(v bson.RawValue) string { return command.Clip(v, 60) }

func (r record) Foreign() error {
	if r.Stranger == "" {
		return nil
	}
	return fmt.Errorf("%w: %s, but doclock keeps its lock in that field: name another (doclock.Field)", store.ErrForeign, r.Stranger)
}

func (r record) Status(key string, now time.Time) store.Status {
	return r.Seen(key, store.Exclusive, now)
}

// residue reports whether the lock has marks that outlast its holder.
func (r record) residue() bool { return r.attempts > 0 || r.done || !r.readyAt.IsZero() }
