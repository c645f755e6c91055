package doclock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Renew gives holders a new end. A document that a transaction of the caller has written is
// renewed alone, beside the others: the transaction may still be open, and then blocks every
// command with a renewal of that document in it.
func (s *docStore) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	var alone sync.WaitGroup
	defer alone.Wait()
	answers := make([]store.Renewed, len(batch))
	var at []int
	var together []store.Renewal
	for i, r := range batch {
		if g, _ := s.granted(r.ID); g.wroteAt != 0 {
			alone.Go(func() { answers[i] = s.renew(ctx, []store.Renewal{r})[0] })
			continue
		}
		at, together = append(at, i), append(together, r)
	}
	for i, a := range s.renew(ctx, together) {
		answers[at[i]] = a
	}
	return answers
}

func (s *docStore) renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	sent, names := s.base.Clock.Now(), make([]bson.D, len(batch))
	for i, r := range batch {
		var err error
		if names[i], err = s.name(r.Ref); err != nil {
			return slices.Repeat([]store.Renewed{{Err: err}}, len(batch))
		}
	}
	r := s.steps.Renewing(batch, names)
	for r.Next(ctx) {
		var which []bson.D
		for _, i := range r.Which {
			which = append(which, names[i])
		}
		r.Read(s.findMany(server.Bare(ctx), r.From, which))
	}
	for i, a := range r.Answers {
		s.renewed(batch[i].ID, sent, a.Err)
	}
	return r.Answers
}

// wroteInTransaction records that a transaction of the caller has written the document.
func (s *docStore) wroteInTransaction(id string) {
	s.change(id, func(g *granted) { g.wroteAt = s.base.Clock.Now() })
}

// releasedInTransaction records that the caller's transaction releases the lease if it is
// committed. A renewal that then finds nothing calls gone, because that is not a loss.
func (s *docStore) releasedInTransaction(id string, gone func()) {
	s.change(id, func(g *granted) { g.gone = gone })
}

// renewed records how a renewal ended that was sent at sent. If it renewed the lease, a transaction that
// had written the document before has ended: an open one would have blocked the renewal. If it was to
// release the lease it was aborted: after a commit the renewal would have found nothing. If it found
// nothing, and the lease's own transaction had released it, the holder is told.
func (s *docStore) renewed(id string, sent server.Moment, err error) {
	switch {
	case err == nil:
		s.change(id, func(g *granted) {
			if sent > g.wroteAt {
				g.wroteAt, g.gone = 0, nil
			}
		})
	case errors.Is(err, store.ErrGone):
		if g, _ := s.granted(id); g.gone != nil {
			g.gone()
		}
		s.forget(id)
	}
}
