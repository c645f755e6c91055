package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// Transfer puts a claim in the place of a live holder with one update: one trip for a
// release and a grant, and no instant at which the key is free. Like any claim it has an
// attempt of its own, named by the new ID.
func (s *Store) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if from.Mode != store.Exclusive || to.Mode != store.Exclusive {
		return store.Grant{}, mongoerr.NotApplied(fmt.Errorf("transfer from %s to %s: %w: only an exclusive holder has a place to give", from.Mode, to.Mode, errors.ErrUnsupported))
	}
	claim, err := s.claim(ctx, to)
	if err != nil {
		return store.Grant{}, err
	}
	with := contender{s, claim}
	g, err := s.steps.HandOver(claim.Attempt.In(ctx), from, claim.Claim, with, func(ctx context.Context) (reply, mongolease.Tenure, error) {
		now := s.base.Now()
		update, t := claim.document(now)
		image, err := s.write(ctx, mongolease.HandOver, claim, s.place(from, now), update, mongobase.After)
		return image, t, err
	})
	s.steps.Over(claim.Claim, err)
	if err == nil {
		s.steps.Memory.Forget(from.ID)
	}
	return g, err
}

// place is the filter of the document in which from can hand over. It names the revision
// that from's grant wrote: every later holder and every break changes it, and while the
// lease may be trusted it has not run out. If it may have run out, or was not granted to
// this process, the filter names the holder itself.
func (s *Store) place(from store.Ref, now mongoclock.Reading) bson.D {
	l, ok := s.steps.Memory.Of(from.ID)
	if !ok || l.Own.IsZero() || l.Until <= now.At {
		return append(ours(from.Key, exclusively), alive(from.ID, now.Earliest)...)
	}
	return ours(from.Key, bson.E{Key: fieldRev, Value: l.Own})
}
