package doclock

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongolease"
)

// holding is the update that makes a claim the holder. It writes field by field: the
// marks that outlast a holder (attempts, readyAt, done) stay.
func (s *docStore) holding(c *claim) (*update, mongolease.Tenure) {
	t := c.Tenure()
	u := stamped().set(s.path(fieldMark), shape).set(s.path(fieldID), c.ID)
	for _, f := range c.Holder(t) {
		u.set(s.path(f.Key), f.Value)
	}
	u.unset(s.path(fieldBroken), s.path(fieldReleased), s.path(fieldSaves), s.stampPath(fieldStamp))
	if c.one {
		u.add("$inc", s.path(fieldAttempts), 1).unset(s.path(fieldReadyAt))
	}
	for _, f := range c.initial {
		u.add("$setOnInsert", f.Key, f.Value)
	}
	return u, t
}

// leaving is the update that takes the holder out of the lock. Without a residue (marks
// that outlast the holder) it removes the whole lock.
func (s *docStore) leaving(residue bool) *update {
	if !residue {
		u := new(update).unset(string(s.lock))
		if s.flat.Load() {
			u.unset(s.beside(fieldAt), s.beside(fieldStamp))
		}
		return u
	}
	u := stamped().set(s.path(fieldExpireAt), date(time.Time{})).unset(s.stampPath(fieldStamp))
	for _, f := range []string{
		fieldID, mongolease.FieldOwner, mongolease.FieldNote, mongolease.FieldSince,
		mongolease.FieldTTL, mongolease.FieldBeat, mongolease.FieldEpoch, fieldBroken, fieldReleased, fieldWanted, fieldSaves,
	} {
		u.unset(s.path(f))
	}
	return u
}

// leavingAs is leaving, and adds the marks that the ending of a claim of one of many
// leaves in the lock.
func (s *docStore) leavingAs(e *ending, residue bool) *update {
	u := s.leaving(residue || e != nil && (e.requeue || e.done))
	switch {
	case e == nil:
	case e.done:
		u.set(s.path(fieldDone), true)
	case e.after > 0:
		_, until := s.base.Now().Expiry(e.after)
		u.set(s.path(fieldReadyAt), date(until))
	}
	return u
}

// Extend is the update that moves a holder's end.
func (s *docStore) Extend(_ string, t mongolease.Tenure) *update {
	u := stamped().add("$max", s.path(fieldExpireAt), date(t.Until))
	if !t.Since.IsZero() {
		u.add("$max", s.path(mongolease.FieldSince), date(t.Since))
	}
	lasting := s.lock.Lasting(t)
	return u.add("$max", lasting.Key, lasting.Value).stampedBy(s.lock.Stamp(t))
}

// stampedBy sets the stamp of a write for a holder.
func (u *update) stampedBy(stamp []bson.E) *update {
	for _, f := range stamp {
		u.set(f.Key, f.Value)
	}
	return u
}

// Touch is the update that writes nothing but the server's time.
func (s *docStore) Touch(stamp bool) *update { return &update{stamp: true, token: stamp} }

// An update collects the operators of an update command.
type update struct {
	operators bson.D
	stamp     bool // at gets the server's time
	token     bool // stamp gets it too, as a timestamp
}

// stamped is an update that writes the server's time.
func stamped() *update { return &update{stamp: true} }

func (u *update) add(operator, path string, value any) *update {
	field := bson.E{Key: path, Value: value}
	for i, o := range u.operators {
		if o.Key == operator {
			u.operators[i].Value = append(o.Value.(bson.D), field)
			return u
		}
	}
	u.operators = append(u.operators, bson.E{Key: operator, Value: bson.D{field}})
	return u
}

func (u *update) set(path string, value any) *update { return u.add("$set", path, value) }

func (u *update) unset(paths ...string) *update {
	for _, p := range paths {
		u.add("$unset", p, "")
	}
	return u
}

func (u *update) document(s *docStore) bson.D {
	d := u.operators[:len(u.operators):len(u.operators)]
	var drawn bson.D
	if u.stamp {
		drawn = append(drawn, bson.E{Key: s.stampPath(fieldAt), Value: true})
	}
	if u.token {
		drawn = append(drawn, bson.E{Key: s.stampPath(fieldStamp), Value: bson.D{{Key: "$type", Value: "timestamp"}}})
	}
	if len(drawn) > 0 {
		d = append(d, bson.E{Key: "$currentDate", Value: drawn})
	}
	return d
}
