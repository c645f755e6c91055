package mongolock

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// mongoPatient is how much time a release may lose. A delete that is acknowledged
// by one node is taken back if that node is not followed: the key then stays taken
// until its expiry, which is borne up to this.
const mongoPatient = time.Minute

// Release deletes the document of an exclusive holder; its before-image says
// whether somebody waits.
func (m *mongoStore) Release(ctx context.Context, r store.Ref, keep time.Duration) (wanted bool, err error) {
	if r.Mode != store.Exclusive {
		return false, errUnsupportedMode(r.Mode)
	}
	ctx = bare(ctx)
	var reply mongoReply
	if keep > 0 {
		reply, err = m.releaseLater(ctx, r, keep)
	} else {
		reply, err = m.releaseNow(ctx, r)
	}
	if err != nil {
		return false, mongoerr.Mark(err)
	}
	if !reply.found {
		m.memory.forget(r.ID)
		if err = m.explain(ctx, r); isBroken(err) {
			err = store.ErrGone // there it is no longer what was meant
		}
		return false, err
	}
	m.memory.forget(r.ID)
	return reply.record.wantedAt(m.present()), nil
}

func (m *mongoStore) releaseNow(ctx context.Context, r store.Ref) (mongoReply, error) {
	filter := m.ours(r.Key, mongoExclusive, exists(fieldHolders+"."+r.ID))
	if m.broken.releaseByKeyAlone {
		filter = m.ours(r.Key)
	}
	return m.releasing(r.ID, func(coll *mongo.Collection) (mongoReply, error) { return m.remove(ctx, coll, filter) })
}

// releasing runs a release with w: 1, or with majority if it would hurt to lose it.
func (m *mongoStore) releasing(id string, write func(*mongo.Collection) (mongoReply, error)) (mongoReply, error) {
	if l, ok := m.memory.lease(id); ok && l.until.Sub(m.clock.Now()) > mongoPatient {
		return write(m.voted)
	}
	return write(m.soft)
}

// releaseLater is MinHold's: the holder stays until keep after its grant, marked,
// so that nobody renews or hands over what was given back.
func (m *mongoStore) releaseLater(ctx context.Context, r store.Ref, keep time.Duration) (mongoReply, error) {
	since, err := m.since(ctx, r)
	if err != nil {
		return mongoReply{}, err
	}
	until := since.Add(keep)
	if now := m.present(); since.IsZero() || !until.After(now) {
		return m.releaseNow(ctx, r) // over already, or not there
	}
	date := mongoDate(mongoclock.Ceil(until))
	filter := m.ours(r.Key, mongoExclusive, exists(fieldHolders+"."+r.ID))
	update := bson.D{
		{Key: "$set", Value: bson.D{
			{Key: of(r.ID, fieldReleased), Value: true},
			{Key: of(r.ID, fieldExpireAt), Value: date},
			{Key: fieldExpireAt, Value: date},
		}},
		stampAt,
	}
	reply, err := m.releasing(r.ID, func(coll *mongo.Collection) (mongoReply, error) {
		return m.modifyIn(ctx, coll, filter, update, mongoAfter)
	})
	if err == nil {
		m.timed(reply)
	}
	return reply, err
}

// since is when a holder was granted the key: remembered, or read. Zero if there
// is no such holder.
func (m *mongoStore) since(ctx context.Context, r store.Ref) (time.Time, error) {
	if l, ok := m.memory.lease(r.ID); ok {
		return l.since, nil
	}
	image, err := m.find(ctx, r.Key)
	if err != nil {
		return time.Time{}, joinNotApplied(err)
	}
	h, _ := image.record.holder(r.ID)
	return h.Since, nil
}

// Break marks a holder, whose next renewal then learns of it; with now it removes
// it. Both outlast a failover: an operator must not find it undone.
func (m *mongoStore) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if now && r.Mode != store.Exclusive {
		return errUnsupportedMode(r.Mode)
	}
	ctx = bare(ctx)
	filter := m.ours(r.Key, exists(fieldHolders+"."+r.ID))
	var reply mongoReply
	var err error
	if now {
		reply, err = m.removeDurably(ctx, append(filter, mongoExclusive))
	} else {
		reply, err = m.modify(ctx, filter, bson.D{
			{Key: "$set", Value: bson.D{{Key: of(r.ID, fieldBroken), Value: reason}}},
			stampAt,
		}, mongoAfter)
		m.timed(reply)
	}
	if err != nil {
		return mongoerr.Mark(err)
	}
	if !reply.found {
		if err = m.explain(ctx, r); isBroken(err) {
			err = store.ErrGone
		}
		return err
	}
	return nil
}
