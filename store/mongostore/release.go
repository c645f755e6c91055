package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// Release deletes the document of an exclusive holder. The before-image tells whether a process
// waits. A holder in another mode leaves the document.
func (s *Store) Release(ctx context.Context, r store.Ref, keep time.Duration) (wanted bool, err error) {
	if err := knownMode(r.Mode); err != nil {
		return false, err
	}
	return s.steps.Release(ctx, r, func(ctx context.Context) (reply, error) {
		rest, err := s.steps.Stays(ctx, r, keep)
		switch {
		case err != nil:
			return reply{}, err
		case rest == 0:
			return s.releaseNow(ctx, r)
		}
		return s.releaseLater(ctx, r, rest)
	}, s.explainLeave)
}

func (s *Store) releaseNow(ctx context.Context, r store.Ref) (reply, error) {
	if r.Mode != store.Exclusive {
		return s.leave(ctx, r, s.steps.Gently(r.ID))
	}
	return s.remove(ctx, mongolease.Release, s.steps.Gently(r.ID), append(bson.D{{Key: "_id", Value: r.Key}}, held(r)...))
}

// explainLeave tells why a release found no holder. In shared and permits mode it may be the
// second attempt, after a first one that was cut short; then it finishes what the first began.
func (s *Store) explainLeave(ctx context.Context, r store.Ref) error {
	image, err := s.finish(ctx, r, s.steps.Gently(r.ID))
	if err != nil {
		return err
	}
	return mongolease.Why(image, r.ID)
}

// releaseLater is the release under MinHold: the holder stays with a mark, so that it can no
// longer be renewed or handed over.
func (s *Store) releaseLater(ctx context.Context, r store.Ref, rest time.Duration) (reply, error) {
	conditions, update := s.laterRelease(r, rest)
	return s.steps.Update(ctx, mongolease.Release, s.steps.Gently(r.ID), r, conditions, update, mongobase.After)
}

func (s *Store) laterRelease(r store.Ref, rest time.Duration) (conditions []bson.E, update bson.D) {
	t := s.base.Tenure(rest)
	end := bson.E{Key: fieldExpireAt, Value: mongobase.Date(t.Until)}
	set := bson.D(holder(r.ID).Staying(t))
	if r.Mode == store.Exclusive {
		update = bson.D{{Key: "$set", Value: append(set, end)}, moveRev, stampAt}
	} else { // others may hold the key too, and for longer
		update = bson.D{{Key: "$set", Value: set}, {Key: "$max", Value: bson.D{end}}, moveRev, stampAt}
	}
	if s.sessions.used.Load() {
		update = append(update, bson.E{Key: "$unset", Value: bson.D{{Key: keptBy(r), Value: ""}}})
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
		switch {
		case now && r.Mode != store.Exclusive:
			return s.leave(ctx, r, s.base.Durable)
		case now:
			image, err := s.steps.Remove(ctx, mongolease.Break, s.base.Durable, append(filter, exclusively), readRecord)
			return s.broke(ctx, image, err, r.ID, reason)
		}
		image, err := s.steps.Send(ctx, mongolease.Break, s.base.Durable, filter, bson.D{
			{Key: "$set", Value: bson.D{{Key: of(r.ID, fieldBroken), Value: reason}}},
			moveRev,
			stampAt,
		}, mongobase.After)
		return s.broke(ctx, image, err, r.ID, reason)
	})
}
