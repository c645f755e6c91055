package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A claim is one claim on its way through the commands of its attempt.
type claim struct {
	*lease.Claim
	stands bool // the line was joined, or the place in it refreshed; once is enough
}

// Acquire claims a key with one upsert, which inserts the document. If the key has a document
// already, the unique index on _id refuses the upsert. Then the claim joins the line, if it
// waits, or reads the document; and takes the key over if its holders are over.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := knownMode(c.Mode); err != nil {
		return store.Grant{}, err
	}
	if err := s.refuseUnfitOnce(ctx); err != nil {
		return store.Grant{}, server.NotApplied(err)
	}
	return s.steps.Try(ctx, c, func(within context.Context, begun *lease.Claim) (g store.Grant, err error) {
		claim := s.claim(begun)
		if c.Mode == store.Exclusive {
			g, err = s.acquire(within, claim)
		} else {
			g, err = s.share(within, claim)
		}
		if err == nil {
			s.indexOnce(ctx, claim, g)
		}
		return g, err
	})
}

func (s *Store) claim(begun *lease.Claim) *claim {
	begun.Names, begun.Ours = bson.D{{Key: "_id", Value: begun.Key}}, ours(begun.Key)
	begun.CleanUp = func(ctx context.Context) (store.Status, error) {
		removed, err := s.cleanUp(ctx, begun.Ref, nil, begun.Attempt.Rev)
		return removed.Record.Status(begun.Key, s.base.Present()), err
	}
	return &claim{Claim: begun}
}

// acquire claims a key for one holder. A key that is offered to the claim is taken without a
// look. One that is known to be held, or awaited, is not asked for before a look.
func (s *Store) acquire(ctx context.Context, c *claim) (store.Grant, error) {
	if c.Offered && c.Place != "" {
		image, t, err := s.takeOffer(ctx, c)
		if err != nil || image.Found() {
			return s.steps.Answer(ctx, c.Claim, image, t, err)
		}
		c.Attempt.Answered(image.Reply, true)
		c.InLine = true
	}
	if c.Full {
		if image, err := s.find(ctx, c.Key); err != nil {
			return store.Grant{}, c.Attempt.NotApplied(err)
		} else if len(s.steps.Status(c.Key, image.Record).Waiting("")) >= store.LineMost {
			return store.Grant{}, s.steps.Refuse(ctx, c.Claim, image.Record)
		}
	}
	if c.Held || c.InLine {
		image, err := s.steps.Stand(ctx, c.Claim)
		switch {
		case err != nil:
			return store.Grant{}, c.Attempt.NotApplied(err)
		case image.Found():
			return s.contest(ctx, c, image)
		}
	}
	t := s.tenure(c)
	image, err := s.insert(ctx, c, c.document(t), t)
	if server.ClassOf(err) != server.DuplicateID {
		return s.steps.Answer(ctx, c.Claim, image, t, err)
	}
	c.Attempt.Answered(image.Reply, true)
	if image, err = s.obstacle(ctx, c); err != nil {
		return store.Grant{}, err
	}
	return s.contest(ctx, c, image)
}

// contest takes a key over if no holder is live any more, and it is the claim's turn.
func (s *Store) contest(ctx context.Context, c *claim, image reply) (store.Grant, error) {
	still, out, err := s.steps.Contest(ctx, c.Claim, image)
	if err != nil {
		return store.Grant{}, err
	}
	taken, t, err := s.takeOver(ctx, c, image.Record, still, out)
	if err != nil || taken.Found() {
		return s.steps.Answer(ctx, c.Claim, taken, t, err)
	}
	c.Attempt.Answered(taken.Reply, true) // lost to a quicker claim
	if image, err = s.obstacle(ctx, c); err != nil {
		return store.Grant{}, err
	}
	return store.Grant{}, s.steps.Refuse(ctx, c.Claim, image.Record)
}

// obstacle returns the document that has refused the claim. An error is the claim's answer.
func (s *Store) obstacle(ctx context.Context, c *claim) (reply, error) {
	image, err := s.steps.Obstacle(ctx, c.Claim)
	switch {
	case err != nil:
		return image, c.Attempt.NotApplied(err)
	case !image.Found():
		return image, s.steps.Settle(ctx, c.Claim, s.absent(c.Key))
	}
	return image, nil
}

// absent answers a claim whose key has become free: "held", with a status that makes the engine
// ask again at once.
func (s *Store) absent(key string) error {
	return &store.HeldError{Status: record{}.Status(key, s.base.Present())}
}

// insert sends the upsert of a claim. Its filter names a revision that only the document which
// it makes can have: it finds nothing but its own twin.
func (s *Store) insert(ctx context.Context, c *claim, update command.Change, t lease.Tenure) (reply, error) {
	return s.write(ctx, lease.Acquire, c, ours(c.Key, bson.E{Key: fieldRev, Value: t.Rev}), update, command.Upsert)
}

// takeOffer takes a key that nobody holds, by the claim's place alone: while that is the first
// in line nobody else is granted the key.
func (s *Store) takeOffer(ctx context.Context, c *claim) (reply, lease.Tenure, error) {
	t := s.tenure(c)
	update := c.document(t).Set(fieldRev, t.Rev).Join(lock.Without(c.Place))
	filter := ours(c.Key, unheld, lock.At(0, c.Place))
	image, err := s.write(ctx, lease.Offer, c, filter, update, withoutWaits)
	return image, t, err
}

// takeOver takes over a key whose holders are over. Its filter names the revision that was seen
// and the beat of each holder that it drops. A renewal does not change rev, so the filter must
// not match a holder that was renewed since, or left. Nor does a waiter change it: the filter names
// those in line before the claim.
func (s *Store) takeOver(ctx context.Context, c *claim, seen record, still []bson.E, out command.Change) (reply, lease.Tenure, error) {
	named := []bson.E{{Key: fieldRev, Value: seen.rev}}
	for _, h := range seen.Holders {
		named = append(named, holder(h.ID).Still(h))
	}
	named = append(named, still...)
	t := s.tenure(c)
	update := c.document(t).Set(fieldRev, t.Rev).Join(out)
	image, err := s.write(ctx, lease.TakeOver, c, ours(c.Key, named...), update, command.After)
	return image, t, err
}

var withoutWaits = options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(bson.D{{Key: lease.FieldWaits, Value: 0}})

// write sends the update of a claim. It reads no more of the after-image than a grant
// needs.
func (s *Store) write(ctx context.Context, what lease.Step, c *claim, filter bson.D, update command.Change, opts *options.FindOneAndUpdateOptionsBuilder) (reply, error) {
	return s.steps.SendReading(ctx, what, s.base.Durable, filter, bson.D(update), opts, func(image bson.Raw) record { return readGrant(image, c.ID) })
}

// document returns the update that makes the claim the key's only holder. It writes the whole
// map of holders. The caller adds the revision.
func (c *claim) document(t lease.Tenure) command.Change {
	return command.Change{
		{Key: "$set", Value: bson.D{
			{Key: fieldMode, Value: string(c.Mode)},
			{Key: fieldHolders, Value: bson.D{{Key: c.ID, Value: c.Holder(t)}}},
			{Key: fieldExpireAt, Value: command.Date(t.Until)},
		}},
		stampAt,
	}
}

func (s *Store) tenure(c *claim) lease.Tenure {
	t := s.base.Tenure(c.TTL)
	t.Rev = newRev()
	return t
}
