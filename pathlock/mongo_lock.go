package pathlock

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
)

const (
	// pendingFor is how long a pending lock is heeded: usually long enough for its Lock to
	// come to an end, and as long as others wait if its process was killed in between. Each
	// further attempt of a Lock has twice as long.
	pendingFor  = time.Second
	pendingMost = 8 * time.Second

	// crowdedFor is how long a Lock looks before it announces, after one was refused. That
	// is one command more, and spares others a pending lock that comes to nothing.
	crowdedFor = time.Second

	// The pauses of a Lock that lets an older pending one go first.
	yieldLeast = 2 * time.Millisecond
	yieldMost  = 100 * time.Millisecond
)

// lock announces the lock, looks, clears the way and grants: see the package comment. A
// Lock whose pending lock was removed by a rival starts again under another token.
func (m *mongoTree) lock(ctx context.Context, r Request, l Lock, w waiting) outcome {
	if err := notStarted(ctx); err != nil {
		return outcome{fault: err}
	}
	m.indexOnce(ctx)
	for tries := 0; ; tries++ {
		if w == waitsAgain || tries > 0 || m.crowded() {
			// Locks were refused a moment ago: look first, and write only if the way is free.
			if o, free := m.peek(ctx, r); !free {
				return m.leavingWord(ctx, r, o, w)
			}
		}
		o, again := m.attempt(ctx, r, l, min(pendingFor<<min(tries, 8), pendingMost))
		if !again {
			return m.leavingWord(ctx, r, o, w)
		}
		if ctx.Err() != nil {
			return outcome{fault: notStarted(ctx)}
		}
		l.Token = newToken()
	}
}

// crowded reports whether a lock of this tree was refused lately.
func (m *mongoTree) crowded() bool {
	last := mongoclock.Moment(m.refused.Load())
	return last != 0 && m.base.Clock.Now().Sub(last) < crowdedFor
}

// peek looks without announcing anything. It is not free if granted locks are in the way,
// or something failed.
func (m *mongoTree) peek(ctx context.Context, r Request) (o outcome, free bool) {
	s, err := m.find(mongobase.Bare(ctx), m.base.Soft, m.inTheWay(r), MaxListed+2)
	if err != nil {
		return outcome{fault: err}, false
	}
	v, err := m.judge(ctx, r, nil, &s)
	if err != nil || v.held.Len() == 0 {
		return outcome{fault: err}, err == nil
	}
	return outcome{err: m.refusal(ctx, r, v, s.full)}, false
}

// leavingWord passes a refusal on. If the caller waits and the tree does not say so yet,
// it leaves the word first, and then looks again: what is released later is announced.
func (m *mongoTree) leavingWord(ctx context.Context, r Request, o outcome, w waiting) outcome {
	c, refused := o.err.(*ConflictError) //nolint:errorlint // it was made here
	if refused {
		m.refused.Store(int64(m.base.Clock.Now()))
	}
	if !refused || w == waitsNot {
		return o
	}
	now, _ := m.base.Known()
	known, _ := m.fresh(m.base.Clock.Now())
	if !known.waited.After(now.Earliest) {
		m.ended()
	}
	if !known.waited.After(now.Latest.Add(wordFor / 2)) {
		if _, err := m.leaveWord(mongobase.Bare(ctx), fieldWaited); err != nil {
			return o // it polls
		}
		var free bool
		if o, free = m.peek(ctx, r); free {
			c.again = tick
			return outcome{err: c}
		}
		if c, refused = o.err.(*ConflictError); !refused { //nolint:errorlint // likewise
			return o
		}
	}
	// Until all that write know of the word, a release may be announced to nobody.
	c.again = m.unsettled(m.base.Clock.Now())
	return o
}

// attempt is one Lock under one token; again if a rival removed its pending lock.
func (m *mongoTree) attempt(ctx context.Context, r Request, l Lock, pending time.Duration) (o outcome, again bool) {
	a, err := m.base.Begin(ctx, l.Token, callBound)
	if err != nil {
		return outcome{fault: err}, false
	}
	if knob.PathWithoutLook {
		if o, free := m.peek(ctx, r); !free {
			m.base.Over(a, true)
			return o, false
		}
	}
	mine, err := m.announce(a.In(ctx), l, pending)
	if err != nil {
		// Whether it is there or not: it will not be granted, and soon nobody heeds it.
		m.base.Over(a, true)
		return outcome{fault: mongoerr.NotApplied(err)}, false
	}
	s, o, free := m.clearTheWay(ctx, a, r, mine)
	if !free {
		m.withdraw(a.In(ctx), l.Token)
		m.base.Over(a, true)
		return o, false
	}
	return m.grant(ctx, a, l, s)
}

// announce adds the pending lock. Its filter finds nothing, so it is inserted, or, where
// a late twin of the command comes after it, refused.
func (m *mongoTree) announce(ctx context.Context, l Lock, pending time.Duration) (*record, error) {
	now, err := m.base.Read(ctx)
	if err != nil {
		return nil, err
	}
	until := mongoclock.Ceil(now.Latest.Add(pending))
	coll := m.base.Soft // if this is rolled back, the grant finds nothing
	if m.base.Kind().Router {
		coll = m.base.Durable
	}
	r, err := m.base.Modify(ctx, coll,
		bson.D{{Key: "_id", Value: l.Token}, {Key: fieldRev, Value: bson.D{{Key: "$exists", Value: false}}}},
		bson.D{
			{Key: "$set", Value: announcement(m.name, l, until)},
			{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}},
		}, onlyAt().SetUpsert(true))
	if err != nil {
		return nil, err
	}
	at, _ := m.drawn(r)
	l.Since = at
	return &record{Lock: l, state: statePending, until: until, at: at}, nil
}

// clearTheWay looks until nothing is in the way of a pending lock: it waits for older
// pending locks, and removes what has run out and what comes later. It is not free if
// granted locks are in the way, or something failed.
func (m *mongoTree) clearTheWay(ctx context.Context, a *mongobase.Attempt, r Request, mine *record) (s sight, o outcome, free bool) {
	var err error
	for pause := yieldLeast; ; {
		if knob.PathWithoutLook {
			return sight{sent: m.base.Clock.Now()}, o, true
		}
		s, err = m.look(ctx, a, r)
		if err != nil {
			return s, outcome{fault: err}, false
		}
		v, err := m.judge(ctx, r, mine, &s)
		switch {
		case err != nil:
			return s, outcome{fault: err}, false
		case v.held.Len() > 0:
			return s, outcome{err: m.refusal(ctx, r, v, s.full)}, false
		case len(v.older) > 0:
			select {
			case <-time.After(backoff.Jitter(pause)):
			case <-ctx.Done():
				return s, outcome{fault: notStarted(ctx)}, false
			}
			pause = min(2*pause, yieldMost)
			continue
		}
		cleared, err := m.drop(a.In(ctx), v)
		if err != nil {
			return s, outcome{fault: mongoerr.NotApplied(err)}, false
		}
		if cleared && !s.full {
			return s, o, true
		}
	}
}

// refusal is the conflict with what is in the way.
func (m *mongoTree) refusal(ctx context.Context, r Request, v verdict, full bool) *ConflictError {
	more := 0
	if full { // so many that they were not all read
		n, err := m.base.Soft.CountDocuments(mongobase.Bare(ctx), m.inTheWay(r))
		more = max(1, int(n)-v.held.Len())
		if err != nil {
			more = 1
		}
	}
	return conflict(r, v.held, more)
}

// drop removes records that are still as they were seen; not cleared if one has changed.
// It is durable: a record that came back after a failover would count again.
func (m *mongoTree) drop(ctx context.Context, v verdict) (cleared bool, err error) {
	cleared = true
	for _, o := range v.drop {
		gone, err := m.end(ctx, v.now, o)
		if err != nil {
			return false, err
		}
		cleared = cleared && gone
	}
	return cleared, nil
}

// withdraw removes a pending lock. If that fails, soon nobody heeds it.
func (m *mongoTree) withdraw(ctx context.Context, token string) {
	_, _ = m.base.Remove(ctx, m.base.Soft, bson.D{{Key: "_id", Value: token}, {Key: fieldState, Value: statePending}})
}

// grant makes the pending lock a granted one, unless a rival has removed it.
func (m *mongoTree) grant(ctx context.Context, a *mongobase.Attempt, l Lock, s sight) (o outcome, again bool) {
	reading, _ := m.base.Known()
	now := Clock{Earliest: reading.Earliest, Latest: mongoclock.Ceil(reading.Latest)}
	l.Since, l.ExpireAt = mongoclock.Ceil(now.Latest), now.end(l.Timeout)
	watched := s.word.watches(now)
	update := bson.D{
		{Key: "$set", Value: bson.D{
			{Key: fieldState, Value: stateGranted}, {Key: fieldSince, Value: l.Since}, {Key: fieldUntil, Value: until(l)},
			{Key: fieldRev, Value: bson.NewObjectID()},
		}},
		{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}, {Key: fieldGranted, Value: true}}},
	}
	if watched {
		update = append(update, bson.E{Key: "$push", Value: bson.D{{Key: fieldUnder, Value: bucket(m.name, now.Latest)}}})
	}
	reply, err := m.base.Modify(a.In(ctx), m.base.Durable,
		bson.D{{Key: "_id", Value: l.Token}, {Key: fieldState, Value: statePending}}, update, onlyAt())
	if err != nil {
		err = mongobase.RefusedOrUnknown(reply, err)
		m.base.Over(a, sure(err))
		return outcome{fault: err, lock: l, claims: l.Token}, false
	}
	m.base.Over(a, true)
	if !reply.Found() {
		return o, true
	}
	at, ok := m.drawn(reply)
	if !ok {
		return outcome{fault: errNoTime, lock: l, claims: l.Token}, false
	}
	o = outcome{lock: l, at: at, claims: l.Token, changed: watched, heard: s.word.heard(now)}
	if !watched && m.base.Clock.Now().Sub(s.sent) > wordFresh {
		o.changed, o.heard = m.tellLate(mongobase.Bare(ctx), l.Token)
	}
	return o, false
}

// until is what a lock's record says of its end.
func until(l Lock) time.Time {
	if l.ExpireAt.IsZero() {
		return never
	}
	return l.ExpireAt
}
