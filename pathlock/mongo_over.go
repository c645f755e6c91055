package pathlock

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

// again is the shortest time after which to look again at a lock that has run out but is not
// known to be over.
const again = 10 * time.Millisecond

// mark returns what is needed to judge whether a lock is over. Its revision serves as its beat:
// a value that no other write has. These eight bytes of it are the writing process and its
// count.
func (r *record) mark() server.HolderState {
	return server.HolderState{ID: r.Token, Beat: int64(binary.BigEndian.Uint64(r.rev[4:])), Epoch: r.epoch, TTL: r.ttl, ExpireAt: r.until} //nolint:gosec // its bits
}

func (r *record) finite() bool { return r.until.Before(never) }

// clockOf returns the clock that a write goes by.
func clockOf(by server.ClockBasis) interval {
	return interval{Earliest: by.Earliest, Latest: server.Ceil(by.Latest)}
}

// until returns what a lock's record says of its end.
func until(l Lock) time.Time {
	if l.ExpireAt.IsZero() {
		return never
	}
	return l.ExpireAt
}

// A judgement tells which locks are over: rivals may remove these, if they have not changed
// since they were seen. Nothing else judges that. A date alone is not enough, because it may be
// by another primary's clock.
type judgement struct {
	m     *mongoTree
	about string // what was looked at: looks at the same are compared
	now   interval
	over  map[string]bool
}

// judged judges records of one look. Only locks that an earlier look at the same has seen can
// be known to be silent.
func (m *mongoTree) judged(ctx context.Context, about string, now interval, s *sight, records []*record) (judgement, error) {
	j := judgement{m: m, about: "paths\x00" + m.name + "\x00" + about, now: now}
	var marks []server.HolderState
	for _, r := range records {
		if r.finite() {
			marks = append(marks, r.mark())
		}
	}
	if len(marks) == 0 {
		return j, nil
	}
	var err error
	j.over, err = m.base.Judge(server.Bare(ctx), j.about, marks, s.sent, s.seen)
	return j, err
}

// shown returns a lock that is not over, as people are told of it. If it has run out by a clock
// that may not be its own, its end is when that will be known.
func (j *judgement) shown(r *record) Lock {
	l := r.Lock
	if r.finite() && !r.until.After(j.now.Latest) {
		l.ExpireAt = server.Ceil(j.now.Latest.Add(again))
		if known := j.m.base.KnownBy(j.about, r.mark(), j.now.Latest); known.After(l.ExpireAt) {
			l.ExpireAt = known
		}
	}
	return l
}

// about names what a request looks at.
func (r Request) about() string { return fmt.Sprint("lock\x00", r.Path, "\x00", r.Mode, r.Depth) }

// lapsed reports whether a lock has run out by the clock by which its end was written. If that
// clock is another primary's, its date says nothing; and as long as its record is there, no
// conflicting lock was granted.
func (m *mongoTree) lapsed(r *record) bool {
	by := m.base.ClockBasis()
	if by.Sure && r.epoch == by.Epoch {
		return !r.until.After(server.Ceil(by.Latest))
	}
	return !by.Earliest.Before(r.until.Add(server.LongPast))
}

// notLapsed is the same as the condition of a filter.
func (m *mongoTree) notLapsed() bson.D {
	by := m.base.ClockBasis()
	later := bson.D{{Key: fieldUntil, Value: bson.D{{Key: "$gt", Value: server.Ceil(by.Latest)}}}}
	if !by.Sure {
		return nil
	}
	return bson.D{{Key: "$or", Value: bson.A{later, bson.D{{Key: fieldEpoch, Value: bson.D{{Key: "$ne", Value: by.Epoch}}}}}}}
}
