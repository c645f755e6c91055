package mongolease

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

// errAllGone says that a bulk renewed nobody: no document is left to tell the time.
var errAllGone = errors.New("mongolock: none of the holders is there any more")

// errLate answers a renewal after which a newer one was applied, or itself by another copy.
var errLate = errors.New("mongolock: the renewal's reply came too late to be one")

// A renewal is one round of renewals on its way.
type renewal struct {
	sent    mongoclock.Moment // when the call began: trust counts from here
	batch   []store.Renewal
	answers []store.Renewed
}

func (r renewal) fail(err error) {
	for i := range r.answers {
		r.answers[i] = store.Renewed{Err: err}
	}
}

// Renew gives holders a new end: one alone with an update that answers the server's time
// with it, many with one bulk and a hello after it. Either way a holder whose new end
// was written by a clock far behind the server's is written once more at once.
func (s *Steps[R, X]) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	r := renewal{s.Base.Clock.Now(), batch, make([]store.Renewed, len(batch))}
	if len(batch) == 0 {
		return r.answers
	}
	ctx = mongobase.Bare(ctx)
	if _, err := s.Base.Read(ctx); err != nil {
		r.fail(mongoerr.NotApplied(err))
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

func (s *Steps[R, X]) renew(ctx context.Context, r renewal) {
	if len(r.batch) == 1 {
		left, err := s.renewOne(ctx, r.sent, r.batch[0])
		r.answers[0] = store.Renewed{Left: left, Err: err}
		return
	}
	s.renewMany(ctx, r)
}

// renewAgain repeats the renewals that left too little. What a holder has already it
// keeps, unless it turns out to be gone.
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

// command is the update that renews a holder, never creating nor shortening it.
func (s *Steps[R, X]) command(r store.Renewal) (filter, update bson.D, t Tenure, err error) {
	t = TenureOf(s.Base, r.TTL)
	t.Since = time.Time{}
	holder := s.Shape.Fields(r.ID)
	filter, err = s.Where(r.Ref, s.Alive(r.ID, t.By), []bson.E{holder.Before(t.Beat)})
	return filter, Extend(s.Lock, holder, t), t, err
}

func (s *Steps[R, X]) renewOne(ctx context.Context, sent mongoclock.Moment, r store.Renewal) (time.Duration, error) {
	filter, update, t, err := s.command(r)
	if err != nil {
		return 0, err
	}
	image, err := s.Send(ctx, Renew, s.Base.Durable, filter, update, mongobase.After)
	switch {
	case err != nil:
		return 0, mongoerr.Mark(err)
	case !image.Found():
		return 0, s.refused(ctx, r.Ref, t.Beat)
	}
	at, _ := image.Record.Drawn()
	if at.IsZero() {
		return 0, errNoTrace
	}
	left := s.left(sent, image.Sent, t, at)
	s.Base.Refresh(ctx)
	return left, nil
}

// refused is why a renewal found no such holder. If the holder is there and beats later than
// this renewal, it is this or a newer one that was applied: the reply is late.
func (s *Steps[R, X]) refused(ctx context.Context, r store.Ref, beat int64) error {
	image, err := s.Find(ctx, r)
	if err != nil {
		return mongoerr.NotApplied(err)
	}
	if h, ok := image.Record.Holder(r.ID); ok && image.Record.Foreign() == nil && h.Beat >= beat && !h.IsBroken && !h.Released {
		return errLate
	}
	return Why(image, r.ID)
}

func (s *Steps[R, X]) renewMany(ctx context.Context, r renewal) {
	models := make([]mongo.WriteModel, len(r.batch))
	terms := make([]Tenure, len(r.batch))
	for i, one := range r.batch {
		filter, update, t, err := s.command(one)
		if err != nil {
			r.fail(err)
			return
		}
		models[i], terms[i] = s.Model(Renew, filter, update), t
	}
	within, cancel := partOf(ctx)
	matched, failed, err := s.Base.Bulk(within, s.Base.Durable, models)
	cancel()
	if err != nil {
		r.fail(mongoerr.Mark(err))
		if mongoerr.ClassOf(err) == mongoerr.Unknown {
			s.afterAll(ctx, r, terms)
		}
		return
	}
	server, drawn, err := s.draw(ctx, r.batch)
	switch {
	case errors.Is(err, errAllGone) && matched == 0:
		for i := range r.answers {
			r.answers[i].Err = failed[i]
		}
		s.whichRenewed(ctx, r, terms)
		return
	case err != nil:
		r.fail(err)
		return
	}
	for i := range r.batch {
		r.answers[i] = store.Renewed{Left: s.left(r.sent, drawn, terms[i], server), Err: failed[i]}
	}
	if matched+len(failed) < len(r.batch) {
		s.whichRenewed(ctx, r, terms)
	}
}

// partOf is three fifths of the time that ctx has, for a bulk: one that is not answered
// is then asked after.
func partOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*3/5)
}

// afterAll asks which renewals of a bulk took effect though it was not answered. One
// document that is blocked, by somebody's open transaction, holds up the whole bulk; the
// renewals before it were applied. Only those count that a majority has, as an answer to
// the bulk would say. For the others the error of the bulk stands.
func (s *Steps[R, X]) afterAll(ctx context.Context, r renewal, terms []Tenure) {
	refs := make([]store.Ref, len(r.batch))
	for i, one := range r.batch {
		refs[i] = one.Ref
	}
	images, err := s.FindMany(ctx, s.Base.Committed, refs)
	if err != nil {
		return
	}
	server, drawn, err := s.draw(ctx, r.batch)
	if err != nil {
		return
	}
	for i, one := range r.batch {
		if h, holds := images[i].Record.Holder(one.ID); holds && !h.IsBroken && !h.Released && h.Beat >= terms[i].Beat {
			r.answers[i] = store.Renewed{Left: s.left(r.sent, drawn, terms[i], server)}
		}
	}
}

// draw asks for a server time after a bulk. Through a mongos hello would tell that of
// another machine: there it is the at of a document that is held.
func (s *Steps[R, X]) draw(ctx context.Context, batch []store.Renewal) (time.Time, mongoclock.Moment, error) {
	if !s.Base.Kind().Router {
		return s.Base.Hello(ctx)
	}
	for _, r := range batch[:min(3, len(batch))] { // the first is there, but for bad luck
		if at, sent, err := s.drawFrom(ctx, r.Ref); err != nil || !at.IsZero() {
			return at, sent, err
		}
	}
	refs := make([]store.Ref, len(batch))
	for i, r := range batch {
		refs[i] = r.Ref
	}
	images, err := s.FindMany(ctx, s.Base.Soft, refs) // which are there at all
	if err != nil {
		return time.Time{}, 0, err
	}
	for i, r := range batch {
		if _, holds := images[i].Record.Holder(r.ID); !holds {
			continue
		}
		if at, sent, err := s.drawFrom(ctx, r.Ref); err != nil || !at.IsZero() {
			return at, sent, err
		}
	}
	return time.Time{}, 0, errAllGone
}

// drawFrom takes the server's time from one holder's document; zero if the document no
// longer has the holder.
func (s *Steps[R, X]) drawFrom(ctx context.Context, r store.Ref) (at time.Time, sent mongoclock.Moment, err error) {
	image, err := s.Update(ctx, Draw, s.Base.Soft, r, s.Shape.Holds(r.ID), bson.D{s.Lock.Timed()}, mongobase.After)
	if err == nil {
		at, _ = image.Record.Drawn()
	}
	return at, image.Sent, err
}

// whichRenewed finds out which of a bulk were renewed, with one find: those whose holder
// has the beat that was written, or a later one.
func (s *Steps[R, X]) whichRenewed(ctx context.Context, r renewal, terms []Tenure) {
	refs := make([]store.Ref, len(r.batch))
	for i, one := range r.batch {
		refs[i] = one.Ref
	}
	images, err := s.FindMany(ctx, s.Base.Soft, refs)
	for i, one := range r.batch {
		switch {
		case r.answers[i].Err != nil:
		case err != nil:
			r.answers[i] = store.Renewed{Err: err}
		default:
			h, holds := images[i].Record.Holder(one.ID)
			if !holds || h.IsBroken || h.Released || h.Beat < terms[i].Beat {
				r.answers[i] = store.Renewed{Err: Why(images[i], one.ID)}
			}
		}
	}
}
