package doclock

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

type update = server.Change

// timed returns an update that writes the server's time.
func (s *docStore) timed() update { return update{s.lock.Timed()} }

// holding returns the update that makes a claim the holder. It writes field by field: the marks
// that outlast a holder (attempts, readyAt, done) stay.
func (s *docStore) holding(c *claim) (update, lease.Validity) {
	t := s.base.Validity(c.lease.TTL)
	u := s.timed().Set(s.path(fieldVersion), shape).Set(s.path(fieldID), c.lease.ID)
	for _, f := range c.lease.Holder(t) {
		u = u.Set(s.path(f.Key), f.Value)
	}
	u = u.Unset(s.path(fieldBroken), s.path(fieldReleased), s.path(fieldSaves), s.path(fieldStamp))
	if c.lease.Yields == "" { // the holder before may have
		u = u.Unset(s.path(lease.FieldYields))
	}
	if c.one {
		u = u.Add("$inc", bson.E{Key: s.path(fieldAttempts), Value: 1}).Unset(s.path(fieldReadyAt))
	}
	return u.Add("$setOnInsert", c.initial...), t
}

// leaving returns the update that takes the holder out of the lock. Without a residue (marks, or a
// line, that outlast the holder) it removes the whole lock.
func (s *docStore) leaving(residue bool) update {
	if !residue {
		return update{}.Unset(string(s.lock))
	}
	return s.left(0)
}

// left is leaving with a residue, by a holder that had the lock for so long; 0: not known.
func (s *docStore) left(used time.Duration) update {
	u := s.lock.Freed(used).Set(s.path(fieldExpireAt), date(time.Time{})).Unset(s.path(fieldStamp))
	for _, f := range []string{
		fieldID, lease.FieldOwner, lease.FieldNote, lease.FieldSince,
		lease.FieldTTL, lease.FieldBeat, lease.FieldEpoch, lease.FieldYields, fieldBroken, fieldReleased, fieldSaves,
	} {
		u = u.Unset(s.path(f))
	}
	return u
}

// leavingAs is left, and adds the marks that the ending of a claim of one of many leaves in the
// lock.
func (s *docStore) leavingAs(e *ending, used time.Duration) update {
	u := s.left(used)
	switch {
	case e == nil:
	case e.done:
		u = u.Set(s.path(fieldDone), true)
		if e.dead {
			u = u.Set(s.path(fieldDead), date(s.base.Present()))
		}
	case e.after > 0:
		_, until := s.base.Now().Expiry(e.after)
		u = u.Set(s.path(fieldReadyAt), date(until))
	}
	if e != nil && e.uncounted {
		u = u.Add("$inc", bson.E{Key: s.path(fieldAttempts), Value: -1})
	}
	return u
}

// staying returns the update of a release under MinHold.
func (s *docStore) staying(t lease.Validity) update {
	return s.timed().Add("$set", s.lock.Staying(t)...)
}
