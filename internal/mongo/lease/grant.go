package lease

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// grant makes a grant of an applied claim. After any error here the outcome is unknown: the
// claim is there and must be undone.
func (s *Steps[R, X]) grant(ctx context.Context, c *Claim, image Image[R], t Tenure) (store.Grant, error) {
	stamp, told := c.Attempt.OperationTime()
	if !told || !image.Found() {
		confirmed, err := s.confirm(ctx, c)
		if err != nil {
			return store.Grant{}, err
		}
		if !image.Found() {
			image = confirmed
		}
		if stamp, told = c.Attempt.OperationTime(); !told {
			_, stamp = confirmed.Record.Drawn()
		}
	}
	at, _ := image.Record.Drawn()
	if _, holds := image.Record.Holder(c.ID); !holds || at.IsZero() {
		return store.Grant{}, server.ErrNoTrace
	}
	g := store.Grant{
		Token: command.Token(stamp),
		Left:  s.left(t, c.Sent, image.Sent, at),
		Since: t.Since,
		Line:  Places(image.Record.Waiters()),
	}
	if g.Left < c.TTL/2 {
		s.correct(ctx, c, &g)
	}
	s.Memory.Granted(c.ID, Lease[X]{From: c.Sent, Until: c.Sent.Add(g.Left), Own: s.Remembers(c, image, t)}, s.Base.Clock.Now())
	if c.Got != nil {
		c.Got(image.Image)
	}
	return g, nil
}

// confirm reads a claim after it was applied, with one more command: for a token, if the server
// does not tell its operationTime, or because the claim's reply had no document. MongoDB
// answers an upsert with the document that it made or with E11000. SecantusDB, if the filter
// began to match while it searched, applies the upsert and returns no document.
func (s *Steps[R, X]) confirm(ctx context.Context, c *Claim) (Image[R], error) {
	image, err := s.Update(ctx, Confirm, s.Base.Durable, c.Ref, s.Shape.Holds(c.ID), bson.D{s.Lock.Stamped()}, command.After)
	if err != nil {
		return image, err
	}
	if _, stamp := image.Record.Drawn(); !image.Found() || stamp.IsZero() {
		return image, server.ErrNoTrace
	}
	return image, nil
}

// left returns how long after sent a holder that was written with this tenure may be trusted, by a
// server time that was drawn after it was sent. Where shards have clocks of their own no date
// counts: rivals wait until the holder was silent for its TTL, from when it was written on, by their
// own clocks and with the drift of both.
func (s *Steps[R, X]) left(t Tenure, sent, drawn server.Moment, server time.Time) time.Duration {
	if s.Base.ManyClocks() {
		return t.TTL
	}
	return s.Base.Left(t, sent, drawn, server)
}

// correct writes a grant's expiry again if a clock far behind the server's wrote it: the
// machine was suspended since its last sample, or the trip took half the TTL. The grant may
// have run out already. But while the document has the claim, the key was not granted to
// another since, so the claim can still have its full time. A fault here changes nothing about
// the grant.
func (s *Steps[R, X]) correct(ctx context.Context, c *Claim, g *store.Grant) {
	_ = s.Base.Sure(ctx)
	t := s.Base.Tenure(c.TTL)
	holder := s.Shape.Fields(c.ID)
	image, err := s.Update(command.Bare(ctx), Correct, s.Base.Durable, c.Ref,
		append(s.Shape.Holds(c.ID), append(holder.Unbroken(), holder.Before(t.Beat))...), Extend(s.Lock, holder, t), command.After)
	if err != nil || !image.Found() {
		return
	}
	at, _ := image.Record.Drawn()
	if at.IsZero() {
		return
	}
	if left := s.left(t, c.Sent, image.Sent, at); left > g.Left {
		g.Left = left
	}
	if h, ok := image.Record.Holder(c.ID); ok {
		g.Since = h.Since
	}
}
