package lease

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// errLate answers a renewal after which a newer one was applied, or another copy of itself.
var errLate = errors.New("mongolock: the renewal's reply came too late to be one")

// A renewal is one round of renewals that is under way.
type renewal struct {
	sent    server.Moment // when the call began: trust counts from here
	batch   []store.Renewal
	answers []store.Renewed
}

func (r renewal) fail(err error) {
	for i := range r.answers {
		r.answers[i] = store.Renewed{Err: err}
	}
}

// Renew gives holders a new end: a single one with an update whose reply has the server's time,
// many with one bulk and a hello after it. If the new end was written by a clock far behind the
// server's, the holder is written once more at once.
func (s *Steps[R, X]) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	r := renewal{sent: s.Base.Clock.Now(), batch: batch, answers: make([]store.Renewed, len(batch))}
	if len(batch) == 0 {
		return r.answers
	}
	ctx = command.Bare(ctx)
	if _, err := s.Base.Read(ctx); err != nil {
		r.fail(server.NotApplied(err))
		return r.answers
	}
	s.renew(ctx, r)
	s.renewAgain(ctx, r)
	for i, a := range r.answers {
		switch {
		case a.Err == nil:
			s.Memory.Renewed(batch[i].ID, r.sent, r.sent.Add(a.Left))
		case errors.Is(a.Err, store.ErrGone):
			s.Memory.Lost(batch[i].ID)
		}
	}
	return r.answers
}

// renew sends one round.
func (s *Steps[R, X]) renew(ctx context.Context, r renewal) {
	if len(r.batch) == 1 {
		r.answers[0] = s.renewOne(ctx, r)
	} else {
		s.renewMany(ctx, r)
	}
}

// renewAgain repeats the renewals that left too little time. A holder keeps the time that it
// has already, unless it turns out to be gone.
func (s *Steps[R, X]) renewAgain(ctx context.Context, r renewal) {
	var which []int
	again := renewal{sent: r.sent}
	for i, a := range r.answers {
		if a.Err == nil && a.Left < r.batch[i].TTL/2 {
			which, again.batch = append(which, i), append(again.batch, r.batch[i])
		}
	}
	if len(which) == 0 {
		return
	}
	_ = s.Base.Sure(ctx)
	again.answers = make([]store.Renewed, len(which))
	s.renew(ctx, again)
	for i, at := range which {
		if a := again.answers[i]; a.Err != nil && store.IsVerdict(a.Err) || a.Left > r.answers[at].Left {
			r.answers[at] = a
		}
	}
}

// command returns the update that renews a holder, and neither creates nor shortens it.
func (s *Steps[R, X]) command(r store.Renewal) (filter, update bson.D, t Tenure, err error) {
	t = s.Base.Tenure(r.TTL)
	t.Since = time.Time{}
	holder := s.Shape.Fields(r.ID)
	filter, err = s.Where(r.Ref, s.Alive(r.ID, s.unlessTrusted(r.ID, t.By)), []bson.E{holder.Before(t.Beat)})
	return filter, Extend(s.Lock, holder, t), t, err
}

func (s *Steps[R, X]) renewOne(ctx context.Context, one renewal) store.Renewed {
	r := one.batch[0]
	filter, update, t, err := s.command(r)
	if err != nil {
		return store.Renewed{Err: err}
	}
	image, err := s.Send(ctx, Renew, s.Base.Durable, filter, update, command.After)
	switch {
	case err != nil:
		return store.Renewed{Err: server.Classified(err)}
	case !image.Found():
		return store.Renewed{Err: s.refused(ctx, r.Ref, t.Beat)}
	}
	at, _ := image.Record.Drawn()
	if at.IsZero() {
		return store.Renewed{Err: server.ErrNoTrace}
	}
	left := s.left(t, one.sent, image.Sent, at)
	s.Base.Refresh(ctx)
	return store.Renewed{Left: left, Line: Places(image.Record.Waiters())}
}

// refused tells why a renewal found no such holder. If the holder is there and its beat is
// later than this renewal's, a newer renewal was applied, or another copy of this one: the
// reply is late.
func (s *Steps[R, X]) refused(ctx context.Context, r store.Ref, beat int64) error {
	image, err := s.Find(ctx, r)
	if err != nil {
		return server.NotApplied(err)
	}
	if h, ok := image.Record.Holder(r.ID); ok && image.Record.Foreign() == nil && h.Beat >= beat && !h.IsBroken && !h.Released {
		return errLate
	}
	return Why(image, r.ID)
}

// renewMany renews by a bulk, and asks for the server's time by a hello, unless no date counts. If
// some renewals found no holder, a find tells which.
//
// One document that is blocked, by an open transaction, holds up the whole bulk, but the renewals
// before it were applied. So after a bulk that was not answered those count that a majority has, as
// an answer to the bulk would say. For the others the error of the bulk stands.
func (s *Steps[R, X]) renewMany(ctx context.Context, r renewal) {
	models, terms, refs := make([]mongo.WriteModel, len(r.batch)), make([]Tenure, len(r.batch)), make([]store.Ref, len(r.batch))
	for i, one := range r.batch {
		filter, update, t, err := s.command(one)
		if err != nil {
			r.fail(err)
			return
		}
		models[i], terms[i], refs[i] = s.Model(Renew, filter, update), t, one.Ref
	}
	within, cancel := partOf(ctx)
	drawn := s.Base.Clock.Now()
	matched, failed, err := s.Base.Bulk(within, models)
	cancel()
	coll, unanswered := s.Base.Soft, server.Classified(err)
	if err != nil {
		if coll = s.Base.Committed; server.ClassOf(err) != server.Unknown {
			r.fail(unanswered)
			return
		}
	}
	var images []Image[R]
	var at time.Time
	if err = nil; !s.Base.ManyClocks() {
		at, drawn, err = s.Base.Hello(ctx)
	}
	if err == nil && (unanswered != nil || matched+len(failed) < len(r.batch)) {
		images, err = s.FindMany(ctx, coll, refs)
	}
	if err != nil {
		r.fail(cmp.Or(unanswered, err))
		return
	}
	for i, one := range r.batch {
		if r.answers[i].Err = failed[i]; failed[i] != nil {
			continue
		}
		var line []store.Place
		if images != nil {
			seen := images[i].Record
			if h, holds := seen.Holder(one.ID); !holds || h.IsBroken || h.Released || h.Beat < terms[i].Beat {
				r.answers[i].Err = cmp.Or(unanswered, Why(images[i], one.ID))
				continue
			}
			line = Places(seen.Waiters())
		}
		r.answers[i] = store.Renewed{Left: s.left(terms[i], r.sent, drawn, at), Line: line}
	}
}

// partOf bounds a bulk to three fifths of the time that ctx has: the rest serves to find out
// about a bulk that is not answered.
func partOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*3/5)
}
