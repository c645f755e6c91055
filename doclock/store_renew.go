package doclock

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// Renew gives holders a new expiry: a single one with an update whose reply tells the
// server's time, many with one bulk and a hello after it. Either way an expiry that came
// from a clock far behind the server's is written once more at once.
func (s *docStore) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	sent := s.base.Clock.Now()
	ctx = mongobase.Bare(ctx)
	answers := make([]store.Renewed, len(batch))
	if len(batch) == 0 {
		return answers
	}
	if _, err := s.base.Read(ctx); err != nil {
		return all(answers, mongoerr.NotApplied(err))
	}
	s.renew(ctx, sent, batch, answers)
	s.renewAgain(ctx, sent, batch, answers)
	for i, a := range answers {
		switch {
		case a.Err == nil:
			s.renewed(batch[i].ID, sent, sent.Add(a.Left))
		case errors.Is(a.Err, store.ErrGone):
			s.left(batch[i].ID)
		}
	}
	return answers
}

// left forgets a lease that is gone. If its holder's own transaction has released it,
// that is no loss, and the holder is told.
func (s *docStore) left(id string) {
	if g, ok := s.lease(id); ok && g.gone != nil {
		g.gone()
	}
	s.forget(id)
}

func (s *docStore) renew(ctx context.Context, sent mongoclock.Moment, batch []store.Renewal, answers []store.Renewed) {
	if len(batch) == 1 {
		left, err := s.renewOne(ctx, sent, batch[0])
		answers[0] = store.Renewed{Left: left, Err: err}
		return
	}
	s.renewMany(ctx, sent, batch, answers)
}

// renewAgain repeats the renewals that left too little time. The time that they have
// got already stays theirs whatever the repetition returns, unless that finds the lease
// gone.
func (s *docStore) renewAgain(ctx context.Context, sent mongoclock.Moment, batch []store.Renewal, answers []store.Renewed) {
	var which []int
	var part []store.Renewal
	for i, a := range answers {
		if a.Err == nil && a.Left < batch[i].TTL/2 {
			which, part = append(which, i), append(part, batch[i])
		}
	}
	if len(which) == 0 {
		return
	}
	second := make([]store.Renewed, len(which))
	s.renew(ctx, sent, part, second)
	for i, at := range which {
		if store.IsVerdict(second[i].Err) || second[i].Left > answers[at].Left {
			answers[at] = second[i]
		}
	}
}

// renewal is the update that renews a holder. It never creates nor shortens a lease
// ($max alone), so a late one harms nobody.
func (s *docStore) renewal(r store.Renewal) (filter bson.D, u *update, until time.Time, err error) {
	_, until = s.base.Now().Expiry(r.TTL)
	filter, err = s.where(r.Ref, s.alive(r.ID)...)
	u = &update{stamp: true}
	u.max(s.path(fieldExpireAt), until)
	return filter, u, until, err
}

func (s *docStore) renewOne(ctx context.Context, sent mongoclock.Moment, r store.Renewal) (time.Duration, error) {
	filter, u, until, err := s.renewal(r)
	if err != nil {
		return 0, err
	}
	reply, err := s.modify(ctx, filter, u, false)
	switch {
	case err != nil:
		return 0, mongoerr.Mark(err)
	case !reply.Found():
		return 0, s.explain(ctx, r.Ref)
	}
	rec := s.read(reply)
	if rec.at.IsZero() {
		return 0, errNoTrace
	}
	s.base.Timed(reply, rec.at)
	return mongoclock.Left(r.TTL, sent, reply.Sent, until, rec.at), nil
}

func (s *docStore) renewMany(ctx context.Context, sent mongoclock.Moment, batch []store.Renewal, answers []store.Renewed) {
	models := make([]mongo.WriteModel, len(batch))
	until := make([]time.Time, len(batch))
	for i, r := range batch {
		filter, u, end, err := s.renewal(r)
		if err != nil {
			all(answers, err)
			return
		}
		until[i] = end
		models[i] = &mongo.UpdateOneModel{Filter: filter, Update: s.document(u)}
	}
	matched, failed, err := s.base.Bulk(ctx, models)
	if err != nil {
		all(answers, mongoerr.Mark(err))
		return
	}
	server, drawn, err := s.draw(ctx, batch)
	if err != nil {
		all(answers, err)
		return
	}
	for i, r := range batch {
		answers[i].Left = mongoclock.Left(r.TTL, sent, drawn, until[i], server)
		answers[i].Err = failed[i]
	}
	if matched+len(failed) < len(batch) {
		s.whichRenewed(ctx, batch, until, answers)
	}
}

// draw asks for the server's time after a bulk. Through a mongos a hello would tell the
// time of another machine: there draw writes the time into a document that is held.
func (s *docStore) draw(ctx context.Context, batch []store.Renewal) (time.Time, mongoclock.Moment, error) {
	if !s.base.Kind().Router {
		return s.base.Hello(ctx)
	}
	for _, r := range batch[:min(3, len(batch))] { // nearly always the first is there
		filter, err := s.where(r.Ref, s.named(r.ID)...)
		if err != nil {
			return time.Time{}, 0, err
		}
		reply, err := s.send(ctx, s.base.Soft, filter, &update{stamp: true}, mongobase.After)
		if err != nil {
			return time.Time{}, 0, err
		}
		if rec := s.read(reply); reply.Found() && !rec.at.IsZero() {
			s.base.Timed(reply, rec.at)
			return rec.at, reply.Sent, nil
		}
	}
	return time.Time{}, 0, errors.New("doclock: no renewed document left to tell the server's time")
}

// whichRenewed finds out with one find which holders of a bulk were renewed: those
// with the expiry that the bulk wrote, or a later one.
func (s *docStore) whichRenewed(ctx context.Context, batch []store.Renewal, until []time.Time, answers []store.Renewed) {
	refs := make([]store.Ref, len(batch))
	for i, r := range batch {
		refs[i] = r.Ref
	}
	images, err := s.images(ctx, refs)
	for i, r := range batch {
		switch {
		case answers[i].Err != nil:
		case err != nil:
			answers[i] = store.Renewed{Err: err}
		default:
			rec := s.read(images[i])
			if rec.id != r.ID || rec.broken || rec.released || rec.expireAt.Before(until[i]) {
				answers[i] = store.Renewed{Err: s.why(images[i], r.ID)}
			}
		}
	}
}

func all(answers []store.Renewed, err error) []store.Renewed {
	for i := range answers {
		answers[i] = store.Renewed{Err: err}
	}
	return answers
}
