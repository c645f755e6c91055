package mongolock

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

// mongoPatient is how much time a release may lose. A delete that is acknowledged
// by one node is taken back if that node is not followed: the key then stays taken
// until its expiry, which is borne up to this.
const mongoPatient = time.Minute

// Release deletes the document of an exclusive holder, whose before-image says
// whether somebody waits; one that shares leaves.
func (m *mongoStore) Release(ctx context.Context, r store.Ref, keep time.Duration) (wanted bool, err error) {
	if err := knownMode(r.Mode); err != nil {
		return false, err
	}
	ctx = mongobase.Bare(ctx)
	var reply mongoReply
	if keep > 0 {
		reply, err = m.releaseLater(ctx, r, keep)
	} else {
		reply, err = m.releaseNow(ctx, r)
	}
	if err != nil {
		return false, mongoerr.Mark(err)
	}
	if !reply.Found() {
		m.leases.forget(r.ID)
		if err = m.explainLeave(ctx, r); isBroken(err) {
			err = store.ErrGone // there it is no longer what was meant
		}
		return false, err
	}
	m.leases.forget(r.ID)
	return reply.record.wantedAt(m.base.Present()), nil
}

func (m *mongoStore) releaseNow(ctx context.Context, r store.Ref) (mongoReply, error) {
	if r.Mode != store.Exclusive {
		return m.leave(ctx, r, m.gently(r.ID))
	}
	filter := m.ours(r.Key, mongoExclusive, exists(fieldHolders+"."+r.ID))
	if m.broken.releaseByKeyAlone {
		filter = m.ours(r.Key)
	}
	return m.remove(ctx, m.gently(r.ID), filter)
}

// gently is for releases: w: 1, or majority if it would hurt to lose one.
func (m *mongoStore) gently(id string) *mongo.Collection {
	if l, ok := m.leases.of(id); ok && l.until.Sub(m.base.Clock.Now()) > mongoPatient {
		return m.base.Voted
	}
	return m.base.Soft
}

// explainLeave is explain for a release that found nothing. Of one that shares its
// key it may be the second try, and the first was cut short: then it ends it.
func (m *mongoStore) explainLeave(ctx context.Context, r store.Ref) error {
	image, err := m.finish(ctx, r, m.gently(r.ID))
	if err != nil {
		return err
	}
	return why(image.record, r.ID)
}

// releaseLater is MinHold's: the holder stays until keep after its grant, marked,
// so that nobody renews or hands over what was given back.
func (m *mongoStore) releaseLater(ctx context.Context, r store.Ref, keep time.Duration) (mongoReply, error) {
	since, err := m.since(ctx, r)
	if err != nil {
		return mongoReply{}, err
	}
	until := since.Add(keep)
	if now := m.base.Present(); since.IsZero() || !until.After(now) {
		return m.releaseNow(ctx, r) // over already, or not there
	}
	date := mongobase.Date(mongoclock.Ceil(until))
	filter := m.ours(r.Key, inMode(r.Mode), exists(fieldHolders+"."+r.ID))
	set := bson.D{{Key: of(r.ID, fieldReleased), Value: true}, {Key: of(r.ID, fieldExpireAt), Value: date}, newRev()}
	update := bson.D{{Key: "$set", Value: set}, stampAt}
	if r.Mode == store.Exclusive {
		set = append(set, bson.E{Key: fieldExpireAt, Value: date})
		update[0].Value = set
	} else { // others may be in; it may be later than theirs
		update = append(update, bson.E{Key: "$max", Value: bson.D{{Key: fieldExpireAt, Value: date}}})
	}
	return m.modifyIn(ctx, m.gently(r.ID), filter, update, mongobase.After)
}

// since is when a holder was granted the key: remembered, or read. Zero if there
// is no such holder.
func (m *mongoStore) since(ctx context.Context, r store.Ref) (time.Time, error) {
	if l, ok := m.leases.of(r.ID); ok {
		return l.since, nil
	}
	image, err := m.find(ctx, r.Key)
	if err != nil {
		return time.Time{}, mongoerr.NotApplied(err)
	}
	h, _ := image.record.holder(r.ID)
	return h.Since, nil
}

// Break marks a holder, whose next renewal then learns of it; with now it removes
// it. Both outlast a failover: an operator must not find it undone.
func (m *mongoStore) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if err := knownMode(r.Mode); err != nil {
		return err
	}
	ctx = mongobase.Bare(ctx)
	filter := m.ours(r.Key, exists(fieldHolders+"."+r.ID))
	var reply mongoReply
	var err error
	switch {
	case now && r.Mode != store.Exclusive:
		reply, err = m.leave(ctx, r, m.base.Durable)
	case now:
		reply, err = m.remove(ctx, m.base.Durable, append(filter, mongoExclusive))
	default:
		reply, err = m.modify(ctx, filter, bson.D{
			{Key: "$set", Value: bson.D{{Key: of(r.ID, fieldBroken), Value: reason}, newRev()}},
			stampAt,
		}, mongobase.After)
	}
	if err != nil {
		return mongoerr.Mark(err)
	}
	if !reply.Found() {
		if err = m.explain(ctx, r); isBroken(err) {
			err = store.ErrGone
		}
		return err
	}
	return nil
}
