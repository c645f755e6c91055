package doclock

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/store"
)

var errNoTrace = errors.New("doclock: the server's reply to a claim does not contain the claim")

// grant makes a Grant from the reply to an applied claim. After any error here the
// outcome is unknown: the claim is in the document and must be undone.
func (s *docStore) grant(ctx context.Context, c *claim, reply mongobase.Reply, t term) (store.Grant, error) {
	rec := s.read(reply)
	if rec.id != c.ID || rec.at.IsZero() {
		return store.Grant{}, errNoTrace
	}
	s.base.Timed(reply, rec.at)
	stamp, ok := c.attempt.OperationTime()
	if !ok {
		var err error
		if stamp, err = s.confirm(ctx, c); err != nil {
			return store.Grant{}, err
		}
	}
	g := store.Grant{
		Token:  mongobase.Token(stamp),
		Left:   mongoclock.Left(c.TTL, c.sent, reply.Sent, t.until, rec.at),
		Since:  t.since,
		Wanted: rec.wantedAt(rec.at),
	}
	if g.Left < c.TTL/2 {
		s.correct(ctx, c, &g)
	}
	s.remember(c.ID, granted{
		key: c.Key, doc: reply.Image.Lookup("_id"), since: g.Since, until: c.sent.Add(g.Left), residue: rec.residue(),
	})
	c.got(c.ID, reply.Image)
	return g, nil
}

// confirm draws a token from a server that does not report its operationTime. It takes
// one more command, after the claim was applied.
func (s *docStore) confirm(ctx context.Context, c *claim) (bson.Timestamp, error) {
	command := bson.D{{Key: "$currentDate", Value: bson.D{
		{Key: s.stampPath(fieldAt), Value: true},
		{Key: s.stampPath(fieldStamp), Value: bson.D{{Key: "$type", Value: "timestamp"}}},
	}}}
	filter := append(slices.Clone(c.fields), s.named(c.ID)...)
	reply, err := s.base.Modify(ctx, s.base.Durable, filter, command, mongobase.After)
	if err != nil {
		return bson.Timestamp{}, err
	}
	rec := s.read(reply)
	if !reply.Found() || rec.stamp.IsZero() {
		return bson.Timestamp{}, errNoTrace
	}
	s.base.Timed(reply, rec.at)
	return rec.stamp, nil
}

// correct writes the expiry of a grant once more if the first one came from a clock far
// behind the server's: the machine was suspended since its last sample, or the trip
// took half the TTL. The claim may have run out by then. But as long as the document
// names it, nobody else was granted the document since, so it can still be given its
// time. A fault here changes nothing about the grant.
func (s *docStore) correct(ctx context.Context, c *claim, g *store.Grant) {
	since, until := s.base.Now().Expiry(c.TTL)
	u := &update{stamp: true}
	u.max(s.path(fieldSince), since)
	u.max(s.path(fieldExpireAt), until)
	filter := append(slices.Clone(c.fields), s.named(c.ID)...)
	filter = append(filter, lacks(s.path(fieldBroken)), lacks(s.path(fieldReleased)))
	reply, err := s.modify(mongobase.Bare(ctx), filter, u, false)
	if err != nil || !reply.Found() {
		return
	}
	rec := s.read(reply)
	s.base.Timed(reply, rec.at)
	if left := mongoclock.Left(c.TTL, c.sent, reply.Sent, until, rec.at); left > g.Left {
		g.Left, g.Since = left, rec.since
	}
}
