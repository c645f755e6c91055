package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A Claim is one claim that is under way through the commands of its attempt.
type Claim struct {
	store.Claim
	Steps   *Steps
	Attempt *server.Attempt
	Names   bson.D // the filter of the document, whoever made it
	Asks    bson.D // that, and what else the claim asks of the document
	Ours    bson.D // that, if it is a lock of this library

	Stands  bool  // the line was joined, or the place in it refreshed; once is enough
	placed  bool  // a command of its place was sent
	Granted Image // the document as the grant left it
}

// Over ends the attempt of the claim, which has come to err, and returns that: the place may be in line.
func (c *Claim) Over(err error) error {
	c.Steps.Coll.Over(c.Attempt, err == nil || store.IsCertain(err))
	if c.placed && errors.Is(err, store.ErrNotApplied) {
		err = fmt.Errorf("%w (%w)", err, store.ErrPlaceUnknown)
	}
	return err
}

// A Validity is what a claim or a renewal writes.
type Validity = server.Validity

// Holder returns the fields of the holder that the claim becomes.
func (c *Claim) Holder(t Validity) bson.D {
	holder := bson.D{
		{Key: FieldOwner, Value: c.Owner},
		{Key: FieldNote, Value: c.Note},
		{Key: FieldSince, Value: server.Date(t.Since)},
		{Key: FieldExpireAt, Value: server.Date(t.Until)},
		{Key: FieldTTL, Value: server.Millis(t.TTL)},
		{Key: FieldBeat, Value: t.Beat},
		{Key: FieldEpoch, Value: t.By.Epoch},
	}
	if c.Yields != "" {
		holder = append(holder, bson.E{Key: FieldYields, Value: c.Yields})
	}
	if c.Weight > 1 {
		holder = append(holder, bson.E{Key: FieldWeight, Value: c.Weight})
	}
	return holder
}

// Answer answers a claim by what its own command answered: a grant, if the command was applied. After
// an error then the outcome is unknown: the claim is there and must be undone.
func (c *Claim) Answer(ctx context.Context, image Image, t Validity, err error) (store.Grant, error) {
	if err != nil {
		return store.Grant{}, server.RefusedOrUnknown(image.Reply, err)
	}
	stamp, told := c.Attempt.OperationTime()
	if !told || !image.Found() {
		confirmed, err := c.confirm(ctx)
		if err != nil {
			return store.Grant{}, err
		}
		if !image.Found() {
			image = confirmed
		}
		if stamp, told = c.Attempt.OperationTime(); !told {
			stamp = confirmed.Stamp
		}
	}
	if _, holds := image.Has(c.ID); !holds || image.At.IsZero() {
		return store.Grant{}, server.ErrNoTrace
	}
	g := store.Grant{
		Token: server.Token(stamp),
		Left:  c.Steps.left(t, c.Attempt.Sent, image.Sent, image.At),
		Since: t.Since,
		Line:  Places(image.Line),
	}
	if g.Left < c.TTL/2 {
		c.correct(ctx, &g)
	}
	granted := Lease{From: c.Attempt.Sent, Until: c.Attempt.Sent.Add(g.Left)}
	if c.Mode == store.Exclusive {
		granted.Rev = t.Rev
	}
	c.Steps.Memory.Granted(c.ID, granted, c.Steps.Coll.Clock.Now())
	c.Granted = image
	return g, nil
}

// confirm reads a claim after it was applied, with one more command: for a token, if the server
// does not tell its operationTime, or because the claim's reply had no document. MongoDB
// answers an upsert with the document that it made or with E11000. SecantusDB, if the filter
// began to match while it searched, applies the upsert and returns no document.
func (c *Claim) confirm(ctx context.Context) (Image, error) {
	s := c.Steps
	image, err := s.Send(ctx, Command{
		Step:   Confirm,
		To:     s.Coll.MajorityJournaled,
		Filter: slices.Concat(c.Names, s.Holds(c.ID)),
		Update: bson.D{s.Path.Stamped()},
		Grants: c.ID,
	})
	if err == nil && (!image.Found() || image.Stamp.IsZero()) {
		err = server.ErrNoTrace
	}
	return image, err
}

// correct writes a grant's expiry again if a clock far behind the server's wrote it: the
// machine was suspended since its last sample, or the trip took half the TTL. The grant may
// have run out already. But while the document has the claim, the key was not granted to
// another since, so the claim can still have its full time. A fault here changes nothing about
// the grant.
func (c *Claim) correct(ctx context.Context, g *store.Grant) {
	s := c.Steps
	_ = s.Coll.Sure(ctx)
	t := s.Coll.Validity(c.TTL)
	holder := s.Holder(c.ID)
	image, err := s.Send(server.Bare(ctx), Command{
		Step:   Correct,
		To:     s.Coll.MajorityJournaled,
		Filter: slices.Concat(c.Names, s.Holds(c.ID), holder.Unbroken(), []bson.E{holder.Before(t.Beat)}),
		Update: Extend(s.Path, holder, t),
	})
	if err != nil || image.At.IsZero() {
		return
	}
	g.Left = max(g.Left, s.left(t, c.Attempt.Sent, image.Sent, image.At))
	if h, ok := image.Has(c.ID); ok {
		g.Since = h.Since
	}
}

// Judge returns the key as an image shows it, without the holders that are over, which have left; and
// those, by their IDs. An error is the claim's answer.
func (c *Claim) Judge(ctx context.Context, image Image) (left store.Status, over map[string]bool, err error) {
	over, err = c.Steps.Coll.Judge(ctx, c.Key, image.States(), image.Sent, image.Seen())
	if err != nil {
		return left, nil, c.Attempt.NotApplied(err)
	}
	left = c.Steps.Status(c.Key, image.Document)
	if len(over) > 0 {
		left.Freed = left.OfferedSince()
	}
	left.Holders = slices.DeleteFunc(left.Holders, func(h store.Holder) bool { return over[h.ID] })
	if len(left.Holders) == 0 {
		left.Mode = ""
	}
	return left, over, nil
}

// Landed reports whether the claim has become a holder although it was refused: its twin came after
// the refusal.
func (c *Claim) Landed(seen Document) bool {
	_, landed := seen.Has(c.ID)
	c.Attempt.Twin = c.Attempt.Twin || landed
	return landed
}

// Refused answers that the key is held, or that others come before the claim, with what is there
// now. A document of a stranger is no such answer. The store returns it once it is certain, that is
// when no twin of the claim is left.
//
// In two cases the claimant is told that the key was free for a moment, which is true, and asks
// again: the claim's own twin landed after the refusal, and will be removed because its reply, and so
// its token, is lost; or the claim is not in the line, though that has room: nobody would tell it
// when the key is free.
func (c *Claim) Refused(seen Document) error {
	if seen.Foreign != nil {
		return seen.Foreign
	}
	landed, stands := c.Landed(seen), indexOf(seen.Line, c.Place) >= 0
	if landed || c.Place != "" && !stands && len(seen.Line) < store.LineMost {
		seen = Document{}
	}
	refusal := &store.HeldError{Status: c.Steps.Status(c.Key, seen)}
	if stands && !landed {
		refusal.Place = c.Place
	}
	return refusal
}
