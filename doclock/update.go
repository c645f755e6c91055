package doclock

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongolease"
)

// holding is the update that makes a claim the holder. It writes field by field: the
// marks that outlast a holder (attempts, readyAt, done) stay.
func (s *docStore) holding(c *claim, now mongoclock.Reading) (*update, mongolease.Tenure) {
	t := c.Tenure(now)
	u := new(update)
	u.set(s.path(fieldMark), shape)
	u.set(s.path(fieldID), c.ID)
	u.set(s.path(fieldOwner), c.Owner)
	u.set(s.path(fieldNote), c.Note)
	u.set(s.path(fieldSince), date(t.Since))
	u.set(s.path(fieldExpireAt), date(t.Until))
	u.unset(s.path(fieldBroken), s.path(fieldReleased), s.path(fieldSaves), s.stampPath(fieldStamp))
	if c.one {
		u.increments = bson.D{{Key: s.path(fieldAttempts), Value: 1}}
		u.unset(s.path(fieldReadyAt))
	}
	u.onInsert = c.initial
	u.stamp = true
	return u, t
}

// leaving is the update that takes the holder out of the lock. Without a residue (marks
// that outlast the holder) it removes the whole lock.
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

// An update collects the operators of an update command.
type update struct {
	sets, unsets, maxima, increments, onInsert bson.D
	stamp                                      bool // at gets the server's time
	token                                      bool // stamp gets it too, as a timestamp
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

func (u *update) document(at, stamp string) bson.D {
	var d bson.D
	for _, op := range []bson.E{
		{Key: "$set", Value: u.sets}, {Key: "$unset", Value: u.unsets}, {Key: "$max", Value: u.maxima},
		{Key: "$inc", Value: u.increments}, {Key: "$setOnInsert", Value: u.onInsert},
	} {
		if len(op.Value.(bson.D)) > 0 {
			d = append(d, op)
		}
	}
	var drawn bson.D
	if u.stamp {
		drawn = append(drawn, bson.E{Key: at, Value: true})
	}
	if u.token {
		drawn = append(drawn, bson.E{Key: stamp, Value: bson.D{{Key: "$type", Value: "timestamp"}}})
	}
	if len(drawn) > 0 {
		d = append(d, bson.E{Key: "$currentDate", Value: drawn})
	}
	return d
}
