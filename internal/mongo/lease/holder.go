package lease

import (
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

// The fields of a holder.
const (
	FieldID       = "id" // of a lock that is a field; otherwise it is the holder's name among the others
	FieldOwner    = "owner"
	FieldNote     = "note"
	FieldSince    = "since"
	FieldExpireAt = "expireAt"
	FieldTTL      = "ttl"
	FieldBeat     = "beat"
	FieldEpoch    = "epoch"
	FieldBroken   = "broken"
	FieldReleased = "released"
	FieldYields   = "yields"
	FieldWeight   = "weight" // of permits, if it is not 1
)

// The fields of a lock.
const (
	FieldMode    = "mode" // these three of a lock that is the document
	FieldHolders = "holders"
	FieldRev     = "rev"

	FieldAt    = "at"
	FieldLine  = "line"  // the places of those who wait
	FieldWaits = "waits" // what is told of each: its owner, since when it waits, when it was last seen
	FieldSeen  = "seen"
	FieldSlow  = "slow"  // its process was passed lately, although it lives
	FieldFreed = "freed" // when a holder last left
	FieldUsed  = "used"  // for how long that one had the lock, in milliseconds
	FieldStamp = "stamp" // the source of the token where the server does not tell its operationTime
)

// Fields is the path of the embedded document that has the fields of a holder, or of a lock. It
// is empty if the document itself has them.
type Fields string

func (f Fields) Path(field string) string {
	if f == "" {
		return field
	}
	return string(f) + "." + field
}

func (f Fields) Unbroken() []bson.E {
	return []bson.E{Lacks(f.Path(FieldBroken)), Lacks(f.Path(FieldReleased))}
}

// Alive is the condition that the holder can be renewed, handed over and saved under: it has
// not run out, and was neither broken nor released. A date that was written under another
// election is by another clock, so it is not judged. Other conditions make sure that the holder
// is there.
func (f Fields) Alive(by server.ClockBasis) []bson.E {
	if !by.Sure || by.Recent.IsZero() {
		return f.Unbroken()
	}
	return append(f.Unbroken(), bson.E{Key: "$or", Value: bson.A{
		bson.D{{Key: f.Path(FieldExpireAt), Value: bson.D{{Key: "$gt", Value: server.Date(by.Recent)}}}},
		bson.D{{Key: f.Path(FieldEpoch), Value: bson.D{{Key: "$ne", Value: by.Epoch}}}},
	}})
}

// Before is the condition that the last write for the holder came before that beat. A late
// copy of an older renewal then changes nothing: not the beat, and not the epoch.
func (f Fields) Before(beat int64) bson.E {
	return bson.E{Key: f.Path(FieldBeat), Value: bson.D{{Key: "$lt", Value: beat}}}
}

// Still is the condition that the holder is there and was not written since it was seen.
func (f Fields) Still(h Holder) bson.E {
	return bson.E{Key: f.Path(FieldBeat), Value: h.Beat}
}

// Stamp returns what every write for a holder sets: its beat, and the epoch of its dates.
func (f Fields) Stamp(t Validity) []bson.E {
	return []bson.E{{Key: f.Path(FieldBeat), Value: t.Beat}, {Key: f.Path(FieldEpoch), Value: t.By.Epoch}}
}

// Lasting returns how long the holder is meant to last from a write on. A renewal writes it
// with $max: a renewal that asks for less does not shorten what was granted.
func (f Fields) Lasting(t Validity) bson.E {
	return bson.E{Key: f.Path(FieldTTL), Value: server.Millis(t.TTL)}
}

// Extend returns the update that moves a holder's end, and its beginning unless that is zero,
// and sets the stamp of the validity. It never moves them back, so that a late copy does no harm.
// If the lock has an end besides its holder's, that moves as well.
func Extend(lock, holder Fields, t Validity) bson.D {
	until := server.Date(t.Until)
	ends := make(bson.D, 0, 4)
	if !t.Since.IsZero() {
		ends = append(ends, bson.E{Key: holder.Path(FieldSince), Value: server.Date(t.Since)})
	}
	ends = append(ends, bson.E{Key: holder.Path(FieldExpireAt), Value: until})
	if lock != holder {
		ends = append(ends, bson.E{Key: lock.Path(FieldExpireAt), Value: until})
	}
	return bson.D{{Key: "$max", Value: append(ends, holder.Lasting(t))}, {Key: "$set", Value: bson.D(holder.Stamp(t))}, lock.Timed()}
}

// Staying returns the fields of a holder that was released and stays for some time, under
// MinHold: it is marked, so that it can no longer be renewed or handed over.
func (f Fields) Staying(t Validity) []bson.E {
	return append([]bson.E{
		{Key: f.Path(FieldReleased), Value: true},
		{Key: f.Path(FieldExpireAt), Value: server.Date(t.Until)},
		f.Lasting(t),
	}, f.Stamp(t)...)
}

// Timed writes the server's time into a lock.
func (f Fields) Timed() bson.E {
	return bson.E{Key: "$currentDate", Value: bson.D{{Key: f.Path(FieldAt), Value: true}}}
}

// Freed is Timed, and writes that a holder left, which had the lock for so long; 0: not known.
func (f Fields) Freed(used time.Duration) server.Change {
	u := server.Change{}.Add("$currentDate", bson.E{Key: f.Path(FieldAt), Value: true}, bson.E{Key: f.Path(FieldFreed), Value: true})
	if used > 0 {
		u = u.Set(f.Path(FieldUsed), used.Milliseconds()+1)
	}
	return u
}

// Stamped is Timed, and writes a timestamp too, where the server tells no operationTime.
func (f Fields) Stamped() bson.E {
	return bson.E{Key: "$currentDate", Value: bson.D{
		{Key: f.Path(FieldAt), Value: true},
		{Key: f.Path(FieldStamp), Value: bson.D{{Key: "$type", Value: "timestamp"}}},
	}}
}

// read reads one field of a holder. It ignores other fields.
func (h *Holder) read(field string, v bson.RawValue) {
	switch field {
	case FieldOwner:
		h.Owner, _ = v.StringValueOK()
	case FieldNote:
		h.Note, _ = v.StringValueOK()
	case FieldSince:
		h.Since, _ = server.Time(v)
	case FieldExpireAt:
		h.ExpireAt, _ = server.Time(v)
	case FieldTTL:
		ms, _ := v.AsInt64OK()
		h.TTL = time.Duration(max(0, min(ms, math.MaxInt32*1000))) * time.Millisecond // so that sums of any cannot overflow
	case FieldBeat:
		if h.Beat, _ = v.AsInt64OK(); !server.Is(v, h.Beat) { // no filter finds it again
			h.Beat = 0
		}
	case FieldEpoch:
		h.Epoch, _ = v.ObjectIDOK()
	case FieldBroken:
		h.Broken, _ = v.StringValueOK()
		h.IsBroken = true
	case FieldReleased:
		h.Released = true
	case FieldYields:
		h.Yields, _ = v.StringValueOK()
	case FieldWeight:
		weight, _ := v.AsInt64OK()
		h.Weight = int(min(weight, math.MaxInt32)) // so that sums of any cannot overflow
	}
}

// complete reports whether the holder has everything that tells when it is over.
func (h Holder) complete() bool { return h.Beat > 0 && h.TTL > 0 && !h.ExpireAt.IsZero() }

// These are made once, not for every filter.
var (
	anything any = bson.D{{Key: "$exists", Value: true}}
	nothing  any = bson.D{{Key: "$exists", Value: false}}
)

// Exists is the condition that a document has a field.
func Exists(path string) bson.E { return bson.E{Key: path, Value: anything} }

// Lacks is the condition that a document does not have a field.
func Lacks(path string) bson.E { return bson.E{Key: path, Value: nothing} }
