package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/store"
)

var errNoTrace = errors.New("the server answered a claim with a document that does not have it")

// write sends the update that a claim is made of, and reads of the after-image what
// a grant is made of.
func (s *Store) write(ctx context.Context, what step, c *claim, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (reply, error) {
	return s.modifyReading(ctx, what, s.base.Durable, filter, update, opts, func(image bson.Raw) record { return readGrant(image, c.ID) })
}

// grant makes a Grant of an applied claim. Any error here is of unknown outcome:
// the claim is there and must be undone.
func (s *Store) grant(ctx context.Context, c *claim, reply reply, term tenure) (store.Grant, error) {
	stamp, ok := c.attempt.OperationTime()
	if !ok || !reply.Found() {
		confirmed, err := s.confirm(ctx, c)
		if err != nil {
			return store.Grant{}, err
		}
		if !reply.Found() {
			reply = confirmed
		}
		if stamp, ok = c.attempt.OperationTime(); !ok {
			stamp = confirmed.record.stamp
		}
	}
	if _, ok := reply.record.holder(c.ID); !ok || reply.record.at.IsZero() {
		return store.Grant{}, errNoTrace
	}
	g := store.Grant{
		Token:  mongobase.Token(stamp),
		Left:   left(c.TTL, c.sent, reply.Sent, term.until, reply.record.at),
		Since:  term.since,
		Wanted: reply.record.wantedAt(reply.record.at),
	}
	if knob.CounterToken || knob.StampedToken {
		g.Token = wrongToken(readRecord(reply.Image))
	}
	if g.Left < c.TTL/2 {
		s.correct(ctx, c, &g)
	}
	l := remembered{since: g.Since, until: c.sent.Add(g.Left)}
	if c.Mode == store.Exclusive {
		l.rev = term.rev
	}
	s.leases.granted(c.ID, l, s.base.Clock.Now())
	return g, nil
}

// confirm asks for a claim after it was applied, with one more command: for a token,
// where the server does not tell its operationTime; or because the claim was answered
// with no document. MongoDB answers an upsert with what it made of it or with E11000;
// SecantusDB, if the filter began to match while it looked, applies it and answers
// with nothing.
func (s *Store) confirm(ctx context.Context, c *claim) (reply, error) {
	filter := ours(c.Key, exists(fieldHolders+"."+c.ID))
	update := bson.D{{Key: "$currentDate", Value: bson.D{
		{Key: fieldAt, Value: true},
		{Key: fieldStamp, Value: bson.D{{Key: "$type", Value: "timestamp"}}},
	}}}
	reply, err := s.modify(ctx, stepConfirm, filter, update, mongobase.After)
	if err == nil && (!reply.Found() || reply.record.stamp.IsZero()) {
		err = errNoTrace
	}
	return reply, err
}

// correct writes a grant's expiry again that was written by a clock far behind the
// server's: the machine was suspended since its last sample, or the trip took half
// the TTL. It may have run out already, then; but while the document has the
// claim nobody was granted the key since, so it can be given its time all the same.
// A fault here changes nothing about the grant.
func (s *Store) correct(ctx context.Context, c *claim, g *store.Grant) {
	now := s.base.Now()
	since, until := now.Expiry(c.TTL)
	filter := ours(c.Key, exists(fieldHolders+"."+c.ID), lacks(of(c.ID, fieldBroken)), lacks(of(c.ID, fieldReleased)))
	reply, err := s.modify(mongobase.Bare(ctx), stepCorrect, filter, bson.D{
		{Key: "$max", Value: bson.D{
			{Key: of(c.ID, fieldSince), Value: mongobase.Date(since)},
			{Key: of(c.ID, fieldExpireAt), Value: mongobase.Date(until)},
			{Key: fieldExpireAt, Value: mongobase.Date(until)},
		}},
		stampAt,
	}, mongobase.After)
	if err != nil || !reply.Found() || reply.record.at.IsZero() {
		return
	}
	if left := left(c.TTL, c.sent, reply.Sent, until, reply.record.at); left > g.Left {
		g.Left = left
	}
	if h, ok := reply.record.holder(c.ID); ok {
		g.Since = h.Since
	}
}

// left is how long after sent a holder may be trusted that was written with this
// expiry, by a server time drawn after it was sent.
func left(ttl time.Duration, sent, drawn mongoclock.Moment, until, server time.Time) time.Duration {
	if knob.DeadlineFromSample {
		return ttl
	}
	return mongoclock.Left(ttl, sent, drawn, until, server)
}
