package lease

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// errLate answers a renewal after which a newer one was applied, or another copy of itself.
var errLate = errors.New("mongolock: the renewal's reply came too late to be one")

// A Renewing is a call that gives holders a new end. It goes in rounds: a single holder is renewed
// with an update whose reply has the server's time, many with one bulk and a hello after it. Those
// whose new end was written by a clock far behind the server's are renewed once more at once.
//
// If a round's reply does not tell which holders were renewed, the store reads their documents:
//
//	for r.Next(ctx) {
//		r.Read(find(ctx, r.From, r.Which))
//	}
type Renewing struct {
	Answers []store.Renewed
	Which   []int             // those of the batch that are renewed in this round
	From    *mongo.Collection // where to read their documents

	steps *Steps
	batch []store.Renewal
	names []bson.D      // the filters of their documents
	sent  server.Moment // when the call began: trust counts from here
	round int

	terms      []Validity    // of this round, as what follows
	failed     map[int]error // the writes of a bulk that were refused
	unanswered error         // of a bulk
	drawn      server.Moment // when the hello after a bulk was sent, and the time that it told
	at         time.Time
}

// Renewing begins to renew holders, whose documents names finds.
func (s *Steps) Renewing(batch []store.Renewal, names []bson.D) *Renewing {
	return &Renewing{steps: s, batch: batch, names: names, sent: s.Coll.Clock.Now(), Answers: make([]store.Renewed, len(batch))}
}

// Next sends the rounds that are left. It returns true if the documents have to be read first, and
// false at the end.
func (r *Renewing) Next(ctx context.Context) bool {
	for ctx = server.Bare(ctx); r.begin(ctx); {
		if len(r.Which) > 1 && r.sendMany(ctx) || len(r.Which) == 1 && r.sendOne(ctx) {
			return true
		}
	}
	for i, a := range r.Answers {
		if a.Err == nil {
			r.steps.Memory.renewed(r.batch[i].ID, r.sent.Add(a.Left))
		}
	}
	return false
}

// begin begins a round, if there is one more. The second is of the holders to whom the first left too
// little time.
func (r *Renewing) begin(ctx context.Context) bool {
	r.round++
	r.Which, r.failed, r.unanswered = nil, nil, nil
	for i, a := range r.Answers {
		if r.round == 1 || r.round == 2 && a.Err == nil && a.Left < r.batch[i].TTL/2 {
			r.Which = append(r.Which, i)
		}
	}
	switch {
	case len(r.Which) == 0:
		return false
	case r.round == 2:
		_ = r.steps.Coll.Sure(ctx)
	default:
		if _, err := r.steps.Coll.Read(ctx); err != nil {
			r.fail(server.NotApplied(err))
			return false
		}
	}
	r.terms = make([]Validity, len(r.Which))
	return true
}

// answer answers one renewal. In the second round a holder keeps the time that it has already, unless
// it turns out to be gone.
func (r *Renewing) answer(i int, a store.Renewed) {
	if r.round == 1 || a.Err != nil && store.IsVerdict(a.Err) || a.Left > r.Answers[i].Left {
		r.Answers[i] = a
	}
}

func (r *Renewing) fail(err error) {
	for _, i := range r.Which {
		r.answer(i, store.Renewed{Err: err})
	}
}

// command returns the command of the n-th holder of the round, which neither creates nor shortens it.
func (r *Renewing) command(n int) Command {
	s, of := r.steps, r.batch[r.Which[n]]
	t := s.Coll.Validity(of.TTL)
	t.Since = time.Time{}
	by, holder := t.By, s.Holder(of.ID)
	by.Sure = by.Sure && !s.Trusts(of.ID)
	r.terms[n] = t
	return Command{
		Step:   Renew,
		To:     s.Coll.MajorityJournaled,
		Filter: slices.Concat(r.names[r.Which[n]], s.Alive(of.ID, by), []bson.E{holder.Before(t.Beat)}),
		Update: Extend(s.Path, holder, t),
		As:     server.After,
	}
}

// sendOne reports whether the holder has to be looked for.
func (r *Renewing) sendOne(ctx context.Context) bool {
	s := r.steps
	image, err := s.Send(ctx, r.command(0))
	switch {
	case err != nil:
		r.fail(server.Classified(err))
	case !image.Found():
		r.From = s.Coll.W1
		return true
	case image.At.IsZero():
		r.fail(server.ErrNoTrace)
	default:
		r.answer(r.Which[0], store.Renewed{Left: s.left(r.terms[0], r.sent, image.Sent, image.At), Line: Places(image.Line)})
		s.Coll.Refresh(ctx)
	}
	return false
}

// sendMany renews by a bulk, and asks for the server's time by a hello, unless no date counts. It
// reports whether some renewals may have found no holder.
//
// One document that is blocked, by an open transaction, holds up the whole bulk, but the renewals
// before it were applied. So after a bulk that was not answered those count that a majority has, as
// an answer to the bulk would say. For the others the error of the bulk stands.
func (r *Renewing) sendMany(ctx context.Context) bool {
	coll, models := r.steps.Coll, make([]mongo.WriteModel, len(r.Which))
	for n := range models {
		c := r.command(n)
		models[n] = &mongo.UpdateOneModel{Filter: server.ByID(c.Filter), Update: c.Update}
	}
	within, cancel := partOf(ctx)
	r.drawn = coll.Clock.Now()
	matched, failed, err := coll.Bulk(within, models)
	cancel()
	r.From, r.failed, r.unanswered = coll.W1, failed, server.Classified(err)
	if err != nil {
		if r.From = coll.Committed; server.ClassOf(err) != server.Unknown {
			r.fail(r.unanswered)
			return false
		}
	}
	if err = nil; !coll.ManyClocks() {
		r.at, r.drawn, err = coll.Hello(ctx)
	}
	switch {
	case err != nil:
		r.fail(cmp.Or(r.unanswered, err))
	case r.unanswered != nil || matched+len(failed) < len(r.Which):
		return true
	default:
		r.settle(nil)
	}
	return false
}

// Read answers the renewals of the round by their documents, in their order.
func (r *Renewing) Read(images []Image, err error) {
	switch {
	case err == nil:
		r.settle(images)
	case len(r.Which) == 1:
		r.fail(server.NotApplied(err))
	default:
		r.fail(cmp.Or(r.unanswered, err))
	}
}

// settle answers the renewals of a bulk, and a single one that found no such holder. If a single holder
// is there and its beat is later than this renewal's, a newer renewal was applied, or another copy of
// this one: the reply is late.
func (r *Renewing) settle(images []Image) {
	for n, i := range r.Which {
		a, id := store.Renewed{Err: r.failed[n]}, r.batch[i].ID
		if images != nil && a.Err == nil {
			h, holds := images[n].Has(id)
			switch {
			case !holds || h.IsBroken || h.Released || h.Beat < r.terms[n].Beat:
				a.Err = cmp.Or(r.unanswered, images[n].Why(id))
			case len(r.Which) == 1:
				a.Err = errLate
			default:
				a.Line = Places(images[n].Line)
			}
		}
		if a.Err == nil {
			a.Left = r.steps.left(r.terms[n], r.sent, r.drawn, r.at)
		}
		r.answer(i, a)
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
