package mongolease

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// Through a router each document is on some shard, and each shard has a clock of its own. Only
// the clock of its own document's shard tells until when a holder is trusted, or whether it is
// over: the document's at, which the shard itself has written.

// lapsed returns store.ErrGone for a holder that is past its end, if that is behind a router: the
// filter of a hand-over names a date only where one clock writes them all.
func (s *Steps[R, X]) lapsed(ctx context.Context, r store.Ref) error {
	if !s.Base.Kind().Router {
		return nil
	}
	image, err := s.Update(mongobase.Bare(ctx), Draw, s.Base.Soft, r, s.Shape.Holds(r.ID), bson.D{s.Lock.Timed()}, mongobase.After)
	if err != nil {
		return mongoerr.NotApplied(err)
	}
	at, _ := image.Record.Drawn()
	if h, holds := image.Record.Holder(r.ID); holds && !h.ExpireAt.After(at) {
		return store.ErrGone
	}
	return nil
}

// timesOf returns the times of the shards that have the documents of some holders, if shards have
// clocks of their own: a date by which one is over must be by the clock of its shard. The times are
// zero otherwise, and for a holder that is gone.
func (s *Steps[R, X]) timesOf(ctx context.Context, holders []store.Ref) (at []time.Time, drawn mongoclock.Moment, err error) {
	if !s.Base.ManyClocks() {
		return make([]time.Time, len(holders)), 0, nil
	}
	at = make([]time.Time, len(holders))
	models := make([]mongo.WriteModel, len(holders))
	for i, r := range holders {
		filter, err := s.Where(r, s.Shape.Holds(r.ID))
		if err != nil {
			return nil, 0, err
		}
		models[i] = s.Model(Draw, filter, bson.D{s.Lock.Timed()})
	}
	drawn = s.Base.Clock.Now()
	if _, _, err = s.Base.Bulk(ctx, s.Base.Soft, models); err != nil {
		return nil, 0, err
	}
	images, err := s.FindMany(ctx, s.Base.Soft, holders)
	if err != nil {
		return nil, 0, err
	}
	for i, r := range holders {
		if _, holds := images[i].Record.Holder(r.ID); holds {
			at[i], _ = images[i].Record.Drawn()
		}
	}
	return at, drawn, nil
}

// tenureBy returns what is written now by a server time, which was drawn by a command that was
// sent at drawn; by what is known if the time is zero.
func (s *Steps[R, X]) tenureBy(at time.Time, drawn mongoclock.Moment, ttl time.Duration) Tenure {
	if at.IsZero() {
		return s.Base.Tenure(ttl)
	}
	return s.Base.TenureBy(s.Base.BearingBy(at, drawn), ttl)
}

// DrawnFor returns the time of the shard that has the document of an image: that of its last
// write, if that is enough, or otherwise one that is drawn now.
func (s *Steps[R, X]) DrawnFor(r store.Ref, seen Image[R]) mongobase.Drawn {
	last, _ := seen.Record.Drawn()
	return func(ctx context.Context, of mongobase.Mark) (time.Time, error) {
		if of.LongPast(last) || of.LetGo(last) {
			return last, nil
		}
		r.ID = of.ID
		image, err := s.Update(mongobase.Bare(ctx), Draw, s.Base.Soft, r, s.Shape.Holds(r.ID), bson.D{s.Lock.Timed()}, mongobase.After)
		if err != nil {
			return time.Time{}, err
		}
		last, _ = image.Record.Drawn()
		return last, nil
	}
}
