package pathlock

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

var (
	errNoTime = errors.New("the server's answer has no time in it")
	errLate   = errors.New("the server took too long for a refresh")
	errLeft   = errors.New("the caller has left")
	errClock  = errors.New("the server's clock is not the one that was asked, or was set")
)

// quickly is how much time a lock must have left for a refresh by one command: more than such a
// command takes, so that the lock cannot have run out when it was applied.
const quickly = callBound + time.Second

// refresh restarts a lock's time: by one command if its timeout is given and it has some
// time left, and otherwise by a find and a compare-and-swap.
func (m *mongoTree) refresh(ctx context.Context, token string, timeout time.Duration, least bool, left func() bool) outcome {
	ctx = server.Bare(ctx)
	for quick := timeout == Infinite || timeout > quickly; ; quick = false {
		if err := notStarted(ctx); err != nil {
			return outcome{fault: err}
		}
		if err := m.base.Sure(ctx); err != nil {
			return outcome{fault: server.NotApplied(err)}
		}
		if quick && m.base.ClockBasis().Sure {
			if o, done := m.refreshAtOnce(ctx, token, timeout, least); done {
				return o
			}
		}
		r, o := m.alive(ctx, token, false)
		switch {
		case r == nil:
			return o
		case left(): // this swap could undo a later request of the caller
			return outcome{fault: errLeft}
		}
		r.restart(timeout, least)
		if o, done := m.refreshSeen(ctx, r); done {
			return o
		}
	}
}

// refreshAtOnce extends a lock that has more than quickly left. done is false if there is no
// such lock, or if the lock was to last longer than the new time: shortening it needs a
// compare-and-swap, because a command that comes late must never shorten it. With least set done is
// false, too, if the lock has another timeout.
func (m *mongoTree) refreshAtOnce(ctx context.Context, token string, timeout time.Duration, least bool) (o outcome, done bool) {
	by := m.base.ClockBasis()
	now := clockOf(by)
	l := Lock{Timeout: timeout, ExpireAt: now.end(timeout)}
	filter := bson.D{
		{Key: "_id", Value: token}, {Key: fieldTree, Value: m.name},
		{Key: fieldUntil, Value: bson.D{{Key: "$gt", Value: now.Latest.Add(quickly)}}},
		{Key: fieldEpoch, Value: by.Epoch},
	}
	if least {
		filter = append(filter, bson.E{Key: fieldTimeout, Value: int64(timeout)})
	}
	reply, err := m.base.Modify(ctx, m.base.MajorityJournaled, filter, bson.D{
		{Key: "$max", Value: bson.D{{Key: fieldUntil, Value: until(l)}, {Key: fieldTTL, Value: server.Millis(timeout)}}},
		{Key: "$set", Value: bson.D{{Key: fieldTimeout, Value: int64(timeout)}, {Key: fieldRev, Value: bson.NewObjectID()}}},
		{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}},
	}, options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(withoutKeys))
	switch {
	case err != nil:
		return outcome{fault: server.Classified(err)}, true
	case !reply.Found():
		return o, false
	}
	r, err := readRecord(reply.Image)
	at, ok := m.drawn(reply)
	switch {
	case err != nil:
		return outcome{err: err}, true
	case !ok:
		return outcome{fault: errNoTime}, true
	case !at.Before(now.Latest.Add(quickly)):
		return outcome{fault: errLate}, true
	case !m.base.Plausible(by, at, reply.Sent, m.base.Clock.Now()):
		return o, false // the dates that were written are of no clock that is known: once more
	case r.until.After(until(l)):
		return o, false
	}
	return outcome{lock: r.Lock, at: at}, true
}

// refreshSeen swaps the times of a lock that has not changed since it was seen.
func (m *mongoTree) refreshSeen(ctx context.Context, r *record) (o outcome, done bool) {
	l, was, rev := r.Lock, r.until, bson.NewObjectID()
	by := m.base.ClockBasis()
	l.ExpireAt = clockOf(by).end(l.Timeout)
	reply, err := m.base.Modify(ctx, m.base.MajorityJournaled,
		bson.D{{Key: "_id", Value: l.Token}, {Key: fieldRev, Value: r.rev}},
		bson.D{
			{Key: "$set", Value: bson.D{
				{Key: fieldUntil, Value: until(l)}, {Key: fieldTimeout, Value: int64(l.Timeout)}, {Key: fieldRev, Value: rev},
				{Key: fieldTTL, Value: server.Millis(l.Timeout)}, {Key: fieldEpoch, Value: by.Epoch},
			}},
			{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}},
		}, onlyAt())
	switch {
	case err != nil:
		return outcome{fault: server.Classified(err)}, true
	case !reply.Found():
		return o, false
	}
	at, ok := m.drawn(reply)
	switch {
	case !ok:
		return outcome{fault: errNoTime}, true
	case !m.base.Plausible(by, at, reply.Sent, m.base.Clock.Now()):
		return o, false
	}
	o = outcome{lock: l, at: at, changed: until(l).Before(was)}
	if oneClock := by.Sure && r.epoch == by.Epoch; oneClock && !at.Before(was) {
		o.revived = func(ctx context.Context) (bool, error) {
			_, err := m.end(ctx, &record{Lock: l, rev: rev})
			return err == nil, err
		}
	}
	return o, true
}

// alive reads the lock of a token. If there is no such lock in this tree, or it may have run out, the
// outcome says so, and its record goes if it certainly has, or if it was to be released: by another clock, after an
// election, it might be in the way for long.
func (m *mongoTree) alive(ctx context.Context, token string, release bool) (*record, outcome) {
	s, err := m.find(ctx, m.base.W1, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{m.name, token}}}}}, 0)
	if err != nil {
		return nil, outcome{fault: err}
	}
	o := outcome{err: ErrUnknownToken}
	if len(s.records) == 0 {
		return nil, o
	}
	r := &s.records[0]
	surely := func() bool { return !r.until.After(m.base.ClockBasis().Earliest) }
	if m.lapsed(r) && !release && !surely() {
		if err := m.sample(ctx, nil); err != nil { // the clock that is known may be old, and of a primary before the last election
			return nil, outcome{fault: err}
		}
	}
	if !m.lapsed(r) {
		return r, outcome{}
	}
	if release || surely() {
		o.changed, _ = m.end(ctx, r) // if it fails others remove it in time
	}
	return nil, o
}
