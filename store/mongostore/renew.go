package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// Renew gives holders a new end: one alone with a findOneAndUpdate that answers the
// server's time with it, many with one bulk and a hello after it. Either way what
// was written by a clock far behind the server's is written once more at once.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	sent := s.base.Clock.Now()
	ctx = mongobase.Bare(ctx)
	answers := make([]store.Renewed, len(batch))
	if len(batch) == 0 {
		return answers
	}
	if _, err := s.base.Read(ctx); err != nil {
		return answerAll(answers, mongoerr.NotApplied(err))
	}
	s.renew(ctx, sent, batch, answers)
	var again []int
	for i, a := range answers {
		if a.Err == nil && a.Left < batch[i].TTL/2 {
			again = append(again, i)
		}
	}
	if len(again) > 0 {
		s.renewAgain(ctx, sent, batch, answers, again)
	}
	for i, a := range answers {
		switch {
		case a.Err == nil:
			s.leases.renewed(batch[i].ID, sent.Add(a.Left))
		case errors.Is(a.Err, store.ErrGone):
			s.leases.forget(batch[i].ID)
		}
	}
	return answers
}

func (s *Store) renew(ctx context.Context, sent mongoclock.Moment, batch []store.Renewal, answers []store.Renewed) {
	if len(batch) == 1 {
		left, err := s.renewOne(ctx, sent, batch[0])
		answers[0] = store.Renewed{Left: left, Err: err}
		return
	}
	s.renewMany(ctx, sent, batch, answers)
}

// renewAgain repeats the renewals that left too little. What they have already is
// theirs whatever comes of it, unless it turns out that it is gone.
func (s *Store) renewAgain(ctx context.Context, sent mongoclock.Moment, batch []store.Renewal, answers []store.Renewed, which []int) {
	part, second := make([]store.Renewal, len(which)), make([]store.Renewed, len(which))
	for i, at := range which {
		part[i] = batch[at]
	}
	s.renew(ctx, sent, part, second)
	for i, at := range which {
		if store.IsVerdict(second[i].Err) || second[i].Left > answers[at].Left {
			answers[at] = second[i]
		}
	}
}

// renewal is the update that renews a holder, never creating nor shortening: $max
// alone, so that a late one harms nobody.
func renewal(r store.Renewal, now mongoclock.Reading) (filter, update bson.D, until time.Time) {
	_, until = now.Expiry(r.TTL)
	return ours(r.Key, alive(r.ID, now.Earliest)...), bson.D{
		{Key: "$max", Value: bson.D{
			{Key: of(r.ID, fieldExpireAt), Value: mongobase.Date(until)},
			{Key: fieldExpireAt, Value: mongobase.Date(until)},
		}},
		stampAt,
	}, until
}

func (s *Store) renewOne(ctx context.Context, sent mongoclock.Moment, r store.Renewal) (time.Duration, error) {
	now := s.base.Now()
	filter, update, until := renewal(r, now)
	reply, err := s.modify(ctx, stepRenew, filter, update, mongobase.After)
	switch {
	case err != nil:
		return 0, mongoerr.Mark(err)
	case !reply.Found():
		return 0, s.explain(ctx, r.Ref)
	case reply.record.at.IsZero():
		return 0, errNoTrace
	}
	return left(r.TTL, sent, reply.Sent, until, reply.record.at), nil
}

func (s *Store) renewMany(ctx context.Context, sent mongoclock.Moment, batch []store.Renewal, answers []store.Renewed) {
	now := s.base.Now()
	models := make([]mongo.WriteModel, len(batch))
	until := make([]time.Time, len(batch))
	for i, r := range batch {
		var filter, update bson.D
		filter, update, until[i] = renewal(r, now)
		if knob.On {
			filter, update, _ = tampered(stepRenew, filter, update, nil)
		}
		models[i] = &mongo.UpdateOneModel{Filter: filter, Update: update}
	}
	matched, failed, err := s.base.Bulk(ctx, models)
	if err != nil {
		answerAll(answers, mongoerr.Mark(err))
		return
	}
	server, drawn, err := s.draw(ctx, batch)
	if err != nil {
		answerAll(answers, err)
		return
	}
	for i, r := range batch {
		answers[i].Left = left(r.TTL, sent, drawn, until[i], server)
		answers[i].Err = failed[i]
	}
	if matched+len(failed) < len(batch) {
		s.sort(ctx, batch, until, answers)
	}
}

// draw asks for a server time after a bulk. Through a mongos hello would tell that
// of another machine: there it is the at of a key that is held.
func (s *Store) draw(ctx context.Context, batch []store.Renewal) (time.Time, mongoclock.Moment, error) {
	if !s.base.Kind().Router {
		return s.base.Hello(ctx)
	}
	for _, r := range batch[:min(3, len(batch))] { // the first is there, but for bad luck
		reply, err := s.modifyIn(ctx, stepDraw, s.base.Soft, ours(r.Key, exists(fieldHolders+"."+r.ID)), bson.D{stampAt}, mongobase.After)
		if err != nil {
			return time.Time{}, 0, err
		}
		if reply.Found() && !reply.record.at.IsZero() {
			return reply.record.at, reply.Sent, nil
		}
	}
	return time.Time{}, 0, errors.New("no renewed key left to tell the server's time")
}

// sort finds out which of a bulk were renewed, with one find: those whose holder
// has the expiry that was written, or a later one.
func (s *Store) sort(ctx context.Context, batch []store.Renewal, until []time.Time, answers []store.Renewed) {
	keys := make([]string, len(batch))
	for i, r := range batch {
		keys[i] = r.Key
	}
	found, err := s.findMany(ctx, keys)
	for i, r := range batch {
		if answers[i].Err != nil {
			continue
		}
		if err != nil {
			answers[i] = store.Renewed{Err: err}
			continue
		}
		record := found[r.Key]
		h, holds := record.holder(r.ID)
		if !holds || h.broken || h.released || h.ExpireAt.Before(until[i]) {
			answers[i] = store.Renewed{Err: why(record, r.ID)}
		}
	}
}

func answerAll(answers []store.Renewed, err error) []store.Renewed {
	for i := range answers {
		answers[i] = store.Renewed{Err: err}
	}
	return answers
}

// oneBatch makes a find answer in one batch; the default is 101 documents.
func oneBatch(n int) *options.FindOptionsBuilder {
	return options.Find().SetBatchSize(int32(min(n+1, 10_000)))
}
