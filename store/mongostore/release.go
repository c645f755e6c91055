package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// Renew gives holders a new end.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	return s.steps.Renew(ctx, batch)
}

// Release deletes the document of an exclusive holder; the before-image tells whether
// somebody waits. A holder in another mode leaves the document.
func (s *Store) Release(ctx context.Context, r store.Ref, keep time.Duration) (wanted bool, err error) {
	if err := knownMode(r.Mode); err != nil {
		return false, err
	}
	ctx = mongobase.Bare(ctx)
	var reply reply
	if keep > 0 {
		reply, err = s.releaseLater(ctx, r, keep)
	} else {
		reply, err = s.releaseNow(ctx, r)
	}
	if err != nil {
		return false, mongoerr.Mark(err)
	}
	if !reply.Found() {
		s.steps.Memory.Forget(r.ID)
		return false, mongolease.GoneIfBroken(s.explainLeave(ctx, r))
	}
	s.steps.Memory.Forget(r.ID)
	return reply.Record.Wanted(s.base.Present()), nil
}

func (s *Store) releaseNow(ctx context.Context, r store.Ref) (reply, error) {
	if r.Mode != store.Exclusive {
		return s.leave(ctx, r, s.steps.Gently(r.ID))
	}
	return s.remove(ctx, mongolease.Release, s.steps.Gently(r.ID), ours(r.Key, exclusively, exists(fieldHolders+"."+r.ID)))
}

// explainLeave tells why a release found no holder. In shared and permits mode it may be
// the second try, after a first that was cut short: then it ends what the first began.
func (s *Store) explainLeave(ctx context.Context, r store.Ref) error {
	image, err := s.finish(ctx, r, s.steps.Gently(r.ID))
	if err != nil {
		return err
	}
	return mongolease.Why(image, r.ID)
}

// releaseLater is the release under MinHold: the holder stays until keep after its grant,
// with a mark, so that nobody renews or hands over what was given back.
func (s *Store) releaseLater(ctx context.Context, r store.Ref, keep time.Duration) (reply, error) {
	since, err := s.steps.Since(ctx, r)
	if err != nil {
		return reply{}, err
	}
	until := since.Add(keep)
	if now := s.base.Present(); since.IsZero() || !until.After(now) {
		return s.releaseNow(ctx, r) // that time is over, or there is no such holder
	}
	date := mongobase.Date(mongoclock.Ceil(until))
	filter := ours(r.Key, inMode(r.Mode), exists(fieldHolders+"."+r.ID))
	set := bson.D{{Key: of(r.ID, fieldReleased), Value: true}, {Key: of(r.ID, fieldExpireAt), Value: date}, newRev()}
	update := bson.D{{Key: "$set", Value: set}, stampAt}
	if r.Mode == store.Exclusive {
		set = append(set, bson.E{Key: fieldExpireAt, Value: date})
		update[0].Value = set
	} else { // others may hold the key too, and longer
		update = append(update, bson.E{Key: "$max", Value: bson.D{{Key: fieldExpireAt, Value: date}}})
	}
	return s.modifyIn(ctx, mongolease.Release, s.steps.Gently(r.ID), filter, update, mongobase.After)
}

// Break marks a holder, which learns of it at its next renewal; with now it removes the
// holder. Both outlast a failover: an operator must not find a break undone.
func (s *Store) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if err := knownMode(r.Mode); err != nil {
		return err
	}
	ctx = mongobase.Bare(ctx)
	filter := ours(r.Key, exists(fieldHolders+"."+r.ID))
	var reply reply
	var err error
	switch {
	case now && r.Mode != store.Exclusive:
		reply, err = s.leave(ctx, r, s.base.Durable)
	case now:
		reply, err = s.remove(ctx, mongolease.Break, s.base.Durable, append(filter, exclusively))
	default:
		reply, err = s.modify(ctx, mongolease.Break, filter, bson.D{
			{Key: "$set", Value: bson.D{{Key: of(r.ID, fieldBroken), Value: reason}, newRev()}},
			stampAt,
		}, mongobase.After)
	}
	if err != nil {
		return mongoerr.Mark(err)
	}
	if !reply.Found() {
		return mongolease.GoneIfBroken(s.steps.Explain(ctx, r))
	}
	return nil
}
