package mongostore

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

const (
	// fullAt is how large a document may grow: half of what the server takes.
	fullAt = 8 << 20

	// joinRaces is how many races a claim may lose before it is answered "held", with a status
	// that gives no reason to wait. The engine then asks again.
	joinRaces = 20
)

// share acquires a key in shared or permits mode. If the key is free, the command is the same
// upsert; otherwise the claim joins, with a compare-and-swap on the document that a look showed.
// Whether the key is held is a guess, by the claim's hint or by what was seen lately. A claim
// that waits looks before it joins the line, so that a mismatch leaves no place there, unless the
// key was shared lately: then joining is the look.
//
// The joins of one process on one key go one at a time: of several at once all but one would
// lose, and read again.
func (s *Store) share(ctx context.Context, c *claim) (store.Grant, error) {
	leave, err := s.joins.enter(ctx, c.Key)
	if err != nil {
		return store.Grant{}, server.NotApplied(err)
	}
	defer leave()
	image, err := s.firstLook(ctx, c)
	if err != nil {
		return store.Grant{}, c.Attempt.NotApplied(err)
	}
	for range joinRaces {
		if !image.Found() {
			t := s.tenure(c)
			reply, err := s.insert(ctx, c, c.document(t), t)
			if server.ClassOf(err) != server.DuplicateID {
				return s.steps.Answer(ctx, c.Claim, reply, t, err)
			}
			c.Attempt.Answered(reply.Reply, true)
		} else {
			g, done, err := s.join(ctx, c, image)
			if done || err != nil {
				return g, err
			}
		}
		if image, err = s.find(ctx, c.Key); err != nil {
			return store.Grant{}, c.Attempt.NotApplied(err)
		}
	}
	return store.Grant{}, s.steps.Refuse(ctx, c.Claim, image.Record)
}

// firstLook looks at a key that is probably in use. It finds nothing if that is not known.
func (s *Store) firstLook(ctx context.Context, c *claim) (image reply, err error) {
	shared := s.joins.expected(c.Key, s.base.Clock.Now())
	if c.Place != "" && (c.InLine || c.Offered || c.Held && shared) {
		stand := s.steps.StillWaits
		if !c.InLine && !c.Offered {
			stand = s.steps.Stand
		}
		image, err = stand(ctx, c.Claim)
		if c.stands = image.Found(); err != nil || c.stands {
			return image, err
		}
	}
	if c.Held || c.InLine || c.Offered || shared {
		return s.find(ctx, c.Key)
	}
	return image, nil
}

// join makes the claim a holder beside those in the image, or refuses it because of what the
// image shows. done is false if the document has changed since.
func (s *Store) join(ctx context.Context, c *claim, image reply) (g store.Grant, done bool, err error) {
	over, err := s.steps.Judge(ctx, c.Claim, image)
	if err != nil {
		return g, true, c.Attempt.NotApplied(err)
	}
	seen := image.Record
	left := s.steps.Remaining(c.Key, seen, over)
	s.joins.saw(c.Key, s.base.Clock.Now(), len(left.Holders) > 0 && left.Mode != store.Exclusive)
	_, landed := seen.Holder(c.ID)
	switch mismatch := c.mismatch(left); {
	case landed || seen.Foreign() != nil:
		return g, true, s.steps.Refuse(ctx, c.Claim, seen)
	case mismatch != nil:
		if stands(left, c.Place) { // if it stays it is passed, and after a while stale
			_, _ = s.steps.StepOut(ctx, ours(c.Key), c.Place)
		}
		return g, true, s.steps.Settle(ctx, c.Claim, mismatch)
	case c.held(left) && c.Place != "" && !c.stands:
		return s.joinInLine(ctx, c)
	case c.held(left):
		return g, true, s.steps.Refuse(ctx, c.Claim, seen)
	case seen.size+len(c.Owner)+len(c.Note) > fullAt:
		return g, true, s.steps.Settle(ctx, c.Claim, fmt.Errorf("%w: %q has %d", store.ErrTooLarge, c.Key, len(seen.Holders)))
	}
	t := s.tenure(c)
	filter, update := s.joining(c, seen, left, over, t)
	reply, err := s.write(ctx, lease.Join, c, filter, update, command.After)
	if err != nil || reply.Found() {
		s.joins.saw(c.Key, s.base.Clock.Now(), true)
		g, err = s.steps.Answer(ctx, c.Claim, reply, t, err)
		return g, true, err
	}
	c.Attempt.Answered(reply.Reply, true) // lost to a quicker claim
	s.joins.lost.Add(1)
	return g, false, nil
}

// joinInLine joins the line, and tries again with the image that this showed: the key may have
// been freed since it was found held, and then no release would tell the claim.
func (s *Store) joinInLine(ctx context.Context, c *claim) (g store.Grant, done bool, err error) {
	c.stands = true
	image, err := s.steps.Obstacle(ctx, c.Claim)
	switch {
	case err != nil:
		return g, true, c.Attempt.NotApplied(err)
	case !image.Found():
		return g, false, nil
	}
	return s.join(ctx, c, image)
}

func stands(s store.Status, p store.Place) bool {
	return p != "" && slices.ContainsFunc(s.Line, func(w store.Waiter) bool { return w.Place == p })
}

// mismatch refuses a claim that the present holders do not share the key with.
func (c *claim) mismatch(now store.Status) error {
	if len(now.Holders) == 0 || now.Mode == store.Exclusive || now.Mode == c.Mode {
		return nil
	}
	return &store.MismatchError{Key: c.Key, Live: now.Mode, Claim: c.Claim.Claim}
}

// held reports whether the claim has to wait for the present holders, or for those in line.
func (c *claim) held(now store.Status) bool {
	taken := 0 // by all that were not judged to be over, whatever their dates say
	for _, h := range now.Holders {
		taken += max(1, h.Weight)
	}
	return taken > 0 && now.Mode == store.Exclusive || c.Mode == store.Permits && taken+max(1, c.Weight) > c.Limit || !now.Turn(&c.Claim.Claim)
}

// joining returns the compare-and-swap of a join. Its filter names the revision that was seen,
// which changes whenever a holder is added or dropped. It also names the beat of each holder
// that it drops, because renewals do not change the revision. For the same reason it writes
// single fields if other holders stay: the whole map would put their old ends back.
//
// A reader in line names no revision, so that those to whom the key is offered come together:
// its own place is what may be missing, if the command comes twice.
func (s *Store) joining(c *claim, seen record, left store.Status, over map[string]bool, t lease.Tenure) (filter bson.D, update command.Change) {
	still, out := s.steps.Pass(c.Claim, left)
	offered := c.Mode == store.Shared && len(over) == 0 && stands(left, c.Place)
	named := bson.E{Key: fieldRev, Value: seen.rev}
	if c.Attempt.Rev = seen.rev; offered {
		c.Attempt.Rev = 0
		named = bson.E{Key: "$or", Value: bson.A{bson.D{unheld}, bson.D{inMode(store.Shared)}}}
	}
	filter = append(ours(c.Key, named), still...)
	dropped := make([]string, 0, len(over))
	for _, h := range seen.Holders {
		if over[h.ID] {
			filter = append(filter, holder(h.ID).Still(h))
			dropped = append(dropped, fieldHolders+"."+h.ID)
		}
	}
	if len(left.Holders) == 0 && !offered {
		return filter, c.document(t).Set(fieldRev, t.Rev).Join(out)
	}
	set := bson.D{{Key: fieldHolders + "." + c.ID, Value: c.Holder(t)}, {Key: fieldRev, Value: t.Rev}}
	if offered { // the mode may have been another since it was seen
		set = append(set, inMode(c.Mode))
	}
	update = command.Change{
		{Key: "$set", Value: set},
		{Key: "$max", Value: bson.D{{Key: fieldExpireAt, Value: command.Date(t.Until)}}},
	}
	if len(dropped) > 0 {
		update = update.Join(lock.Freed(0))
	} else {
		update = append(update, stampAt)
	}
	return filter, update.Unset(dropped...).Join(out)
}
