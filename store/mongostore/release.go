package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// lossBorne is how much time a release may lose. A delete that is acknowledged
// by one node is taken back if that node is not followed: the key then stays taken
// until its expiry, which is borne up to this.
const lossBorne = time.Minute

// Release deletes the document of an exclusive holder, whose before-image says
// whether somebody waits; one that shares leaves.
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
		s.leases.forget(r.ID)
		if err = s.explainLeave(ctx, r); isBroken(err) {
			err = store.ErrGone // there it is no longer what was meant
		}
		return false, err
	}
	s.leases.forget(r.ID)
	return reply.record.wantedAt(s.base.Present()), nil
}

func (s *Store) releaseNow(ctx context.Context, r store.Ref) (reply, error) {
	if r.Mode != store.Exclusive {
		return s.leave(ctx, r, s.gently(r.ID))
	}
	return s.remove(ctx, stepRelease, s.gently(r.ID), ours(r.Key, exclusively, exists(fieldHolders+"."+r.ID)))
}

// gently is for releases: w: 1, or majority if it would hurt to lose one.
func (s *Store) gently(id string) *mongo.Collection {
	if l, ok := s.leases.of(id); ok && l.until.Sub(s.base.Clock.Now()) > lossBorne {
		return s.base.Voted
	}
	return s.base.Soft
}

// explainLeave is explain for a release that found nothing. Of one that shares its
// key it may be the second try, and the first was cut short: then it ends it.
func (s *Store) explainLeave(ctx context.Context, r store.Ref) error {
	image, err := s.finish(ctx, r, s.gently(r.ID))
	if err != nil {
		return err
	}
	return why(image.record, r.ID)
}

// releaseLater is MinHold's: the holder stays until keep after its grant, marked,
// so that nobody renews or hands over what was given back.
func (s *Store) releaseLater(ctx context.Context, r store.Ref, keep time.Duration) (reply, error) {
	since, err := s.since(ctx, r)
	if err != nil {
		return reply{}, err
	}
	until := since.Add(keep)
	if now := s.base.Present(); since.IsZero() || !until.After(now) {
		return s.releaseNow(ctx, r) // over already, or not there
	}
	date := mongobase.Date(mongoclock.Ceil(until))
	filter := ours(r.Key, inMode(r.Mode), exists(fieldHolders+"."+r.ID))
	set := bson.D{{Key: of(r.ID, fieldReleased), Value: true}, {Key: of(r.ID, fieldExpireAt), Value: date}, newRev()}
	update := bson.D{{Key: "$set", Value: set}, stampAt}
	if r.Mode == store.Exclusive {
		set = append(set, bson.E{Key: fieldExpireAt, Value: date})
		update[0].Value = set
	} else { // others may be in; it may be later than theirs
		update = append(update, bson.E{Key: "$max", Value: bson.D{{Key: fieldExpireAt, Value: date}}})
	}
	return s.modifyIn(ctx, stepRelease, s.gently(r.ID), filter, update, mongobase.After)
}

// since is when a holder was granted the key: remembered, or read. Zero if there
// is no such holder.
func (s *Store) since(ctx context.Context, r store.Ref) (time.Time, error) {
	if l, ok := s.leases.of(r.ID); ok {
		return l.since, nil
	}
	image, err := s.find(ctx, r.Key)
	if err != nil {
		return time.Time{}, mongoerr.NotApplied(err)
	}
	h, _ := image.record.holder(r.ID)
	return h.Since, nil
}

// Break marks a holder, whose next renewal then learns of it; with now it removes
// it. Both outlast a failover: an operator must not find it undone.
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
		reply, err = s.remove(ctx, stepBreak, s.base.Durable, append(filter, exclusively))
	default:
		reply, err = s.modify(ctx, stepBreak, filter, bson.D{
			{Key: "$set", Value: bson.D{{Key: of(r.ID, fieldBroken), Value: reason}, newRev()}},
			stampAt,
		}, mongobase.After)
	}
	if err != nil {
		return mongoerr.Mark(err)
	}
	if !reply.Found() {
		if err = s.explain(ctx, r); isBroken(err) {
			err = store.ErrGone
		}
		return err
	}
	return nil
}
