package mongostore

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/store"
)

// Renew gives holders a new end.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	return s.steps.Renew(ctx, batch)
}

// Release releases a holder, with one command in most cases.
func (s *Store) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	if err := knownMode(e.Mode); err != nil {
		return store.ReleaseResult{}, err
	}
	coll := s.steps.Gently(e.ID, e.Keep)
	return s.steps.Release(ctx, e.Ref, func(ctx context.Context) (reply, error) {
		t, stays, err := s.steps.Stays(ctx, e.Ref, e.Keep)
		switch {
		case err != nil:
			return reply{}, err
		case stays:
			conditions, update := s.laterRelease(e.Ref, t)
			return s.steps.Update(ctx, lease.Release, coll, e.Ref, conditions, update, command.After)
		}
		what := lease.Release
		if e.Mode != store.Exclusive {
			what = lease.Leave
		}
		return s.releaseNow(ctx, what, e.Ref, append(bson.D{{Key: "_id", Value: e.Key}}, held(e.Ref)...), e.Line, e.Used, coll)
	}, func(ctx context.Context) (reply, error) { return s.finish(ctx, e.Ref, coll) })
}

// releaseNow deletes the document of an exclusive holder, if nobody is in line; that is a guess,
// unless somebody is known to be. Any other holder leaves the document.
func (s *Store) releaseNow(ctx context.Context, what lease.Step, r store.Ref, filter bson.D, line bool, used time.Duration, coll *mongo.Collection) (reply, error) {
	if r.Mode == store.Exclusive && !line {
		if image, err := s.remove(ctx, what, coll, append(slices.Clip(filter), unawaited)); err != nil || image.Found() {
			return image, err
		}
	}
	return s.drop(ctx, what, r, filter, used, coll)
}

// laterRelease is the release under MinHold: the holder stays with a mark, so that it can no
// longer be renewed or handed over.
func (s *Store) laterRelease(r store.Ref, t lease.Tenure) (conditions []bson.E, update bson.D) {
	end := bson.E{Key: fieldExpireAt, Value: command.Date(t.Until)}
	set := bson.D(holder(r.ID).Staying(t))
	if r.Mode == store.Exclusive {
		update = bson.D{{Key: "$set", Value: append(set, end)}, moveRev, stampAt}
	} else { // others may hold the key too, and for longer
		update = bson.D{{Key: "$set", Value: set}, {Key: "$max", Value: bson.D{end}}, moveRev, stampAt}
	}
	return held(r), update
}

// Break marks a holder, which learns of it at its next renewal, and with now removes the
// holder. Both outlast a failover: an operator must not find a break undone.
func (s *Store) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if err := knownMode(r.Mode); err != nil {
		return err
	}
	filter := ours(r.Key, exists(fieldHolders+"."+r.ID))
	return s.steps.Break(ctx, r, func(ctx context.Context) (reply, error) {
		if now {
			return s.releaseNow(ctx, lease.Break, r, append(filter, inMode(r.Mode)), false, 0, s.base.Durable)
		}
		return s.steps.Send(ctx, lease.Break, s.base.Durable, filter, bson.D{
			{Key: "$set", Value: bson.D{{Key: of(r.ID, fieldBroken), Value: reason}}},
			moveRev,
			stampAt,
		}, command.After)
	})
}
