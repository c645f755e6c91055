package doclock

import (
	"context"
	"sync"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
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
		if s.writtenInTransaction(r.ID) {
			alone.Go(func() { answers[i] = s.steps.Renew(ctx, []store.Renewal{r})[0] })
			continue
		}
		at, together = append(at, i), append(together, r)
	}
	for i, a := range s.steps.Renew(ctx, together) {
		answers[at[i]] = a
	}
	return answers
}

// writtenInTransaction reports whether a transaction of the caller has written the document,
// and may still be open.
func (s *docStore) writtenInTransaction(id string) bool {
	l, _ := s.steps.Memory.Of(id)
	return l.Own.wroteAt != 0
}

// wroteInTransaction records that a transaction of the caller has written the document.
func (s *docStore) wroteInTransaction(id string) {
	s.steps.Memory.Change(id, func(l *lease.Lease[granted]) { l.Own.wroteAt = s.base.Clock.Now() })
}

// releasedInTransaction records that the caller's transaction releases the lease if it is
// committed. A renewal that then finds nothing calls gone, because that is not a loss.
func (s *docStore) releasedInTransaction(id string, gone func()) {
	s.steps.Memory.Change(id, func(l *lease.Lease[granted]) { l.Own.gone = gone })
}

// renewed records that a command sent at sent renewed the lease. A transaction that had written
// the document before has ended: an open one would have blocked the renewal. If it was to
// release the lease it was aborted: after a commit the renewal would have found nothing.
func renewed(l *lease.Lease[granted], sent server.Moment) {
	if sent > l.Own.wroteAt {
		l.Own.wroteAt, l.Own.gone = 0, nil
	}
}

// releasedItself handles a lease that a renewal found gone: if the lease's own transaction had
// released it, it tells the holder.
func releasedItself(l lease.Lease[granted]) {
	if l.Own.gone != nil {
		l.Own.gone()
	}
}
