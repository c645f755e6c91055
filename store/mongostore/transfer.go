package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Transfer puts a claim in the place of a live holder with one update.
func (s *Store) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if from.Mode != store.Exclusive || to.Mode != store.Exclusive {
		return store.Grant{}, server.NotApplied(fmt.Errorf("transfer from %s to %s: %w: only an exclusive holder has a place to give", from.Mode, to.Mode, errors.ErrUnsupported))
	}
	return s.steps.Try(ctx, to, func(ctx context.Context, begun *lease.Claim) (store.Grant, error) {
		claim := s.claim(begun)
		return s.steps.Transfer(ctx, from, begun, func(ctx context.Context) (reply, lease.Tenure, error) {
			t := s.tenure(claim)
			update := claim.document(t).Set(fieldRev, t.Rev)
			if to.Place != "" { // the line stays as it is otherwise
				update = update.Join(lock.Without(to.Place))
			}
			image, err := s.write(ctx, lease.HandOver, claim, s.place(from), update, command.After)
			return image, t, err
		})
	})
}

// place returns the filter of the document in which from can hand over. It names the revision
// that from's grant wrote: every later holder and every break changes that, and while the lease
// may be trusted it has not run out. If the lease may have run out, or was not granted to this
// process, the filter names the holder itself.
func (s *Store) place(from store.Ref) bson.D {
	l, ok := s.steps.Memory.Of(from.ID)
	if !ok || l.Own == 0 || l.Until <= s.base.Clock.Now() {
		alive := holder(from.ID).Alive(s.base.Bearing())
		return append(ours(from.Key, exclusively, exists(fieldHolders+"."+from.ID)), alive...)
	}
	return ours(from.Key, bson.E{Key: fieldRev, Value: l.Own})
}
