package pathlock

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

const (
	// A lock is in doubt at first: its Lock may not have looked yet, and may withdraw it. That
	// takes as long as two commands, so others allow it the time of some of their own.
	doubtTrips = 4
	doubtLeast = 10 * time.Millisecond
	doubtMost  = 2 * time.Second // of a server, or a machine, that has too much to do

	// crowdedFor is for how long after a refusal a Lock looks before it adds. That is one
	// command more, and saves two writes if the Lock is refused too.
	crowdedFor = time.Second

	// The pauses of a Lock that lets another one decide.
	yieldLeast = 2 * time.Millisecond
	yieldMost  = 20 * time.Millisecond
)

// lock adds the lock, looks, and withdraws it again if others are in the way: see the package
// comment. If it withdrew because of a lock that was added a moment before, and may be
// withdrawn too, it looks until that is decided.
func (m *mongoTree) lock(ctx context.Context, r Request, l Lock, w *waiter) outcome {
	if err := notStarted(ctx); err != nil {
		return outcome{fault: err}
	}
	m.indexOnce(ctx)
	var d doubts
	o := m.attempts(ctx, r, l, w, &d)
	if o.err != nil {
		m.refused.Store(int64(m.base.Clock.Now()))
		o = m.leavingWord(ctx, r, o, w, &d)
	}
	o.changed = d.withdrew
	return o
}

func (m *mongoTree) attempts(ctx context.Context, r Request, l Lock, w *waiter, d *doubts) outcome {
	for tries := 0; ; tries++ {
		if w != nil && w.again || tries > 0 || m.crowded() {
			// Locks were refused a moment ago: look first, and write only if the way is free.
			if o, free := m.peek(ctx, r, w, d); !free {
				return o
			}
		}
		o, again := m.attempt(ctx, r, l, d)
		unlisted := w == nil && o.err != nil && d.undecided > 0 && o.claims == ""
		if !again && !unlisted {
			return o
		}
		if failed := m.pause(ctx, d); failed.fault != nil {
			if unlisted {
				return o
			}
			return failed
		}
		l.Token = newToken()
	}
}

// crowded reports whether a lock of this tree was refused lately.
func (m *mongoTree) crowded() bool {
	last := server.Moment(m.refused.Load())
	return last != 0 && m.base.Clock.Now().Sub(last) < crowdedFor
}

// peek looks without adding anything, until no lock in the way is in doubt. free is false if
// locks are in the way, or if the look failed. A waiter that is refused looks again in any case, so it
// is answered at once.
func (m *mongoTree) peek(ctx context.Context, r Request, w *waiter, d *doubts) (o outcome, free bool) {
	for {
		s, err := m.find(server.Bare(ctx), m.base.W1, m.inTheWay(r), maxListed+2)
		d.last = m.base.Clock.Now()
		if err != nil {
			return outcome{fault: err}, false
		}
		v, err := m.judge(ctx, r, nil, &s, d)
		switch {
		case err != nil:
			return outcome{fault: err}, false
		case v.refuses():
			o = outcome{err: m.refusal(ctx, r, v, s.full, d)}
			if w != nil || d.undecided == 0 {
				return o, false
			}
		case !v.doubtful():
			return outcome{}, true
		}
		if failed := m.pause(ctx, d); failed.fault != nil {
			if o.err == nil {
				o = failed
			}
			return o, false
		}
	}
}

// leavingWord passes a refusal on. If the caller waits and the tree does not say so yet, it
// leaves the word first, and then looks again: later releases are announced. A reservation that the
// caller needs goes with the word.
func (m *mongoTree) leavingWord(ctx context.Context, r Request, o outcome, w *waiter, d *doubts) outcome {
	c, refused := o.err.(*ConflictError) //nolint:errorlint // it was made in this package
	if !refused || w == nil {
		return o
	}
	now := m.lately()
	known, _ := m.fresh(m.base.Clock.Now())
	mine, useless := w.reservation(c, known.reserved, now)
	unsaid := !known.waited.After(now.Latest.Add(wordFor / 2))
	if unsaid || mine != nil {
		var err error
		if known, err = m.leaveWord(server.Bare(ctx), mine, useless...); err != nil {
			return o // the caller polls
		}
	}
	if unsaid && o.left { // this outcome says what to take back, and a look may fault
		c.soon(tick)
		return o
	}
	if unsaid {
		later, free := m.peek(ctx, r, w, d)
		if free {
			c.soon(tick)
			return o
		}
		if c, refused = later.err.(*ConflictError); !refused { //nolint:errorlint // as above
			return later
		}
		o.err = c
	}
	// Until all writing processes know of the word, a release may not be announced.
	if unsettled := known.waited.Add(wordSettled - wordFor).Sub(m.lately().Earliest); unsettled > 0 {
		c.soon(unsettled)
	}
	return o
}

// attempt is one Lock under one token. again says that it withdrew because of a lock in doubt,
// or that a rival removed it.
func (m *mongoTree) attempt(ctx context.Context, r Request, l Lock, d *doubts) (o outcome, again bool) {
	mine, o := m.add(ctx, l, d)
	if mine == nil {
		return o, false
	}
	o, free := m.clearTheWay(ctx, r, mine, d)
	if free {
		return m.finish(ctx, mine)
	}
	d.withdrew = true
	if _, err := m.end(ctx, mine); err != nil {
		// A refusal stands. Every other outcome may have left the lock behind.
		o.claims, o.lock, o.left = mine.Token, mine.Lock, true
		if o.err == nil {
			o.fault = fmt.Errorf("withdrawing a path lock: %w", err)
		}
	}
	return o, o.err == nil && o.fault == nil
}

// add adds the lock, durably, as it is meant to stay. A late twin of the command that finds the
// lock there changes only its time.
func (m *mongoTree) add(ctx context.Context, l Lock, d *doubts) (*record, outcome) {
	within, a, err := m.base.Begin(ctx, l.Token, callBound)
	if err != nil { // nothing was sent
		return nil, outcome{fault: err}
	}
	by := m.base.ClockBasis()
	now := clockOf(by)
	l.Since, l.ExpireAt = now.Latest, now.end(l.Timeout)
	mine := &record{Lock: l, until: until(l), rev: bson.NewObjectID(), epoch: by.Epoch, by: by}
	r, err := m.insert(within, l.Token, mine.encoded(m.name))
	d.answered(r.Sent, r.Seen())
	mine.sent, mine.got = r.Sent, r.Seen()
	if err != nil {
		err = server.RefusedOrUnknown(r, err)
	}
	m.base.Over(a, err == nil || sure(err))
	if err != nil {
		return nil, outcome{fault: err, lock: l, claims: l.Token}
	}
	return mine, outcome{}
}

// insert inserts a document unless there is one with its ID, with the server's time. It reads no
// image: a command that returns one is more work for a server.
func (m *mongoTree) insert(ctx context.Context, id string, document bson.D) (server.Reply, error) {
	update := bson.D{
		{Key: "$setOnInsert", Value: document},
		{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}},
	}
	return m.base.Send(m.base.MajorityJournaled, func(coll *mongo.Collection) (bson.Raw, error) {
		_, err := coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, update, options.UpdateOne().SetUpsert(true))
		return nil, err
	})
}

// saw takes from the first look when the server applied the lock that was added, by the
// server's clock.
func (m *mongoTree) saw(mine, seen *record) {
	if !mine.at.IsZero() {
		return
	}
	mine.at = seen.at
	m.base.Timed(seen.at, mine.sent)
	mine.again = mine.again || !m.base.Plausible(mine.by, mine.at, mine.sent, mine.got)
}

// clearTheWay looks until nothing is in the way of a lock that was added. It waits for locks
// that were added after it and are in doubt, and removes those that have run out. free is false
// if others are in the way, or if a command failed. Without a conflict or a fault, the other
// lock is in doubt.
func (m *mongoTree) clearTheWay(ctx context.Context, r Request, mine *record, d *doubts) (o outcome, free bool) {
	for {
		s, err := m.look(ctx, r, mine.Token, d)
		if err != nil {
			return outcome{fault: err}, false
		}
		v, err := m.judge(ctx, r, mine, &s, d)
		switch {
		case err != nil:
			return outcome{fault: err}, false
		case v.refuses():
			return outcome{err: m.refusal(ctx, r, v, s.full, d)}, false
		case !v.mine && !s.full, len(v.older) > 0:
			return o, false
		}
		cleared := true
		for _, over := range v.drop {
			gone, err := m.end(ctx, over)
			if err != nil {
				return outcome{fault: server.NotApplied(err)}, false
			}
			cleared = cleared && gone
		}
		if cleared && !s.full && !v.doubtful() {
			return o, true
		}
		mine.again = true
		if o := m.pause(ctx, d); o.fault != nil {
			return o, false
		}
	}
}

// finish grants a lock when nothing is in its way. It writes once more if the lock's time has
// to begin again, because it had to wait or because its dates were of another clock than the
// one that applied them. It does not find the lock if a rival has removed it meanwhile.
func (m *mongoTree) finish(ctx context.Context, mine *record) (o outcome, again bool) {
	o = outcome{lock: mine.Lock, at: mine.at, claims: mine.Token}
	if !mine.again {
		return o, false
	}
	ctx = server.Bare(ctx)
	_ = m.base.Sure(ctx) // get the clock, which may be another one now
	by := m.base.ClockBasis()
	o.lock.ExpireAt = clockOf(by).end(mine.Timeout)
	reply, err := m.base.Modify(ctx, m.base.MajorityJournaled, bson.D{{Key: "_id", Value: mine.Token}, {Key: fieldRev, Value: mine.rev}}, bson.D{
		{Key: "$set", Value: bson.D{
			{Key: fieldUntil, Value: until(o.lock)}, {Key: fieldEpoch, Value: by.Epoch}, {Key: fieldRev, Value: bson.NewObjectID()},
		}},
		{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}},
	}, onlyAt())
	at, ok := m.drawn(reply)
	switch {
	case err != nil: // the write may have been applied in part: the lock is there in any case
		o.fault = err
	case !reply.Found():
		return outcome{}, true
	case !ok:
		o.fault = errNoTime
	case !m.base.Plausible(by, at, reply.Sent, m.base.Clock.Now()):
		o.fault = errClock
	}
	o.at = at
	return o, false
}

// refusal returns the conflict with the locks in the way.
func (m *mongoTree) refusal(ctx context.Context, r Request, v verdict, full bool, d *doubts) *ConflictError {
	d.refused(&v)
	more := d.undecided
	if full { // there were too many to read them all
		d.undecided = 0
		n, err := m.base.W1.CountDocuments(server.Bare(ctx), m.inTheWay(r))
		more = max(1, int(n)-v.held.Len())
		if err != nil {
			more = 1
		}
	}
	return conflict(r, v.held, more).waitsFor(v.first, v.now)
}
