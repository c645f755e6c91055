package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// Renew gives holders a new end.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	return s.steps.Renew(ctx, batch)
}

// Release deletes the document of an exclusive holder, whose before-image tells whether
// somebody waits. A holder in another mode leaves the document.
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

// releaseLater is the release under MinHold: the holder stays with a mark, so that nobody
// renews or hands over what was given back.
func (s *Store) releaseLater(ctx context.Context, r store.Ref, rest time.Duration) (reply, error) {
	filter, update := s.laterRelease(r, rest)
	return s.modifyIn(ctx, mongolease.Release, s.steps.Gently(r.ID), filter, update, mongobase.After)
}

func (s *Store) laterRelease(r store.Ref, rest time.Duration) (filter, update bson.D) {
	filter = ours(r.Key, inMode(r.Mode), exists(fieldHolders+"."+r.ID))
	t := mongolease.TenureOf(s.base, rest)
	date := mongobase.Date(t.Until)
	set := append(bson.D{
		{Key: of(r.ID, fieldReleased), Value: true}, {Key: of(r.ID, fieldExpireAt), Value: date}, newRev(), holder(r.ID).Lasting(t),
	}, holder(r.ID).Stamp(t)...)
	update = bson.D{{Key: "$set", Value: set}, stampAt}
	if r.Mode == store.Exclusive {
		set = append(set, bson.E{Key: fieldExpireAt, Value: date})
		update[0].Value = set
	} else { // others may hold the key too, and longer
		update = append(update, bson.E{Key: "$max", Value: bson.D{{Key: fieldExpireAt, Value: date}}})
	}
	return filter, update
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
			return s.remove(ctx, mongolease.Break, s.base.Durable, append(filter, exclusively))
		}
		return s.modify(ctx, mongolease.Break, filter, bson.D{
			{Key: "$set", Value: bson.D{{Key: of(r.ID, fieldBroken), Value: reason}, newRev()}},
			stampAt,
		}, mongobase.After)
	})
}
