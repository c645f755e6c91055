package doclock

import (
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// The fields of the lock's sub-document that not every holder has; see docs/internals/doclock.md.
const (
	fieldVersion  = "doclock"
	fieldID       = lease.FieldID
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

// shape is the version of the sub-document's shape. As the value of fieldVersion it also
// marks the sub-document as a lock of this package.
const shape = lease.Shape

// A record is a document's lock as read. It has one holder or none.
type record struct {
	lease.Document
	marks
}

// marks are what outlasts the holder of a lock.
type marks struct {
	attempts int
	readyAt  time.Time
	done     bool
	dead     time.Time // when it was set aside; zero: it was not
}

// layoutOf returns the layout of a lock in a field of the document.
func layoutOf(field string) lease.Layout {
	return lease.Layout{Mark: fieldVersion, Path: lease.Fields(field), Advice: "but doclock keeps its lock in that field: name another (doclock.Field)"}
}

// readLock reads the lock of a document of any shape. A document without one is free.
func readLock(doc bson.Raw, field string) (r record) {
	if r.Document = layoutOf(field).Read(doc); r.Foreign == nil {
		r.marks = readMarks(doc, field)
	}
	return r
}

func readMarks(doc bson.Raw, field string) (m marks) {
	lock, _ := doc.Lookup(field).DocumentOK()
	elements, _ := lock.Elements()
	for _, e := range elements {
		switch v := e.Value(); e.Key() {
		case fieldAttempts:
			n, _ := number(v)
			if m.attempts = math.MaxInt32; math.Abs(n) < math.MaxInt32 { // otherwise no number, or one that counts nothing
				m.attempts = int(n)
			}
		case fieldReadyAt:
			m.readyAt, _ = server.Time(v)
		case fieldDone:
			is, isBool := v.BooleanOK()
			m.done = v.Type != bson.TypeNull && (is || !isBool)
		case fieldDead:
			m.dead, _ = server.Time(v)
		}
	}
	return m
}

// date returns a time in BSON.
func date(t time.Time) bson.DateTime { return server.Date(t) }

func clip(v bson.RawValue) string { return server.Clip(v, 60) }

// residue reports whether the lock has marks that outlast its holder.
func (m marks) residue() bool { return m.attempts > 0 || m.done || !m.readyAt.IsZero() }
