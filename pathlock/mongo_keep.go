package pathlock

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// drop removes records that have run out, if they have not changed since they were seen.
// cleared is false if one has changed. drop is durable: a record that came back after a
// failover would count again.
func (m *mongoTree) drop(ctx context.Context, v verdict) (cleared bool, err error) {
	cleared = true
	for _, o := range v.drop {
		gone, err := m.end(command.Bare(ctx), v.now, o)
		if err != nil {
			return false, err
		}
		cleared = cleared && gone
	}
	return cleared, nil
}

// withdraw removes a lock before its caller is told of it. It is durable: a lock that came back
// after a failover would be in the way until it runs out. A watcher that was told of all locks
// meanwhile may know the lock, if it was there for long.
func (m *mongoTree) withdraw(ctx context.Context, mine *record, s sight, d *doubts) error {
	ctx = command.Bare(ctx)
	now := m.lately()
	d.withdrew, d.heard = true, d.heard || s.word.heard(now)
	w := s.word
	if m.base.Clock.Now().Sub(mine.sent) <= wordFresh {
		w = word{} // no watcher knows the lock
	}
	_, err := m.bury(ctx, w, now, bson.D{{Key: "_id", Value: mine.Token}, {Key: fieldRev, Value: mine.rev}}, stateReleased)
	return err
}

// finish grants a lock when nothing is in its way. It writes once more if the lock's time has
// to begin again, because it had to wait or because its dates were of another clock than the
// one that applied them, and if the tree is watched. It does not find the lock if a rival has
// removed it meanwhile.
func (m *mongoTree) finish(ctx context.Context, mine *record, s sight) (o outcome, again bool) {
	if mine.again {
		_ = m.base.Sure(command.Bare(ctx)) // get the clock, which may be another one now
	}
	by := m.base.ClockBasis()
	now := clockOf(by)
	o = outcome{at: mine.at, claims: mine.Token, changed: s.word.watches(now), heard: s.word.heard(now)}
	var update bson.D
	if mine.again {
		mine.ExpireAt = now.end(mine.Timeout)
		update = bson.D{{Key: "$set", Value: bson.D{
			{Key: fieldUntil, Value: until(mine.Lock)}, {Key: fieldEpoch, Value: by.Epoch}, {Key: fieldRev, Value: bson.NewObjectID()},
		}}}
	}
	dates := bson.D{{Key: fieldAt, Value: true}}
	if o.changed {
		update = append(update, bson.E{Key: "$push", Value: bson.D{{Key: fieldUnder, Value: bucket(m.name, now.Latest)}}})
		dates = append(dates, bson.E{Key: fieldGranted, Value: true})
	}
	o.lock = mine.Lock
	if len(update) > 0 {
		reply, err := m.base.Modify(command.Bare(ctx), m.base.MajorityJournaled, bson.D{{Key: "_id", Value: mine.Token}, {Key: fieldRev, Value: mine.rev}},
			append(update, bson.E{Key: "$currentDate", Value: dates}), onlyAt())
		at, ok := m.drawn(reply)
		switch {
		case err != nil: // the write may have been applied in part: the lock is there in any case
			o.fault = err
			return o, false
		case !reply.Found():
			return outcome{}, true
		case !ok:
			o.fault = errNoTime
			return o, false
		case mine.again && !m.base.Plausible(by, at, reply.Sent, m.base.Clock.Now()):
			o.fault = errClock
			return o, false
		case mine.again:
			o.at = at
		}
	}
	if !o.changed && m.base.Clock.Now().Sub(s.sent) > wordFresh {
		o.changed, o.heard = m.tellLate(command.Bare(ctx), mine.Token)
	}
	return o, false
}

// lately returns the server's clock as it is known.
func (m *mongoTree) lately() interval {
	reading, _ := m.base.Known()
	return interval{Earliest: reading.Earliest, Latest: server.Ceil(reading.Latest)}
}

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
