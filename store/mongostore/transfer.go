package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// Transfer puts a claim in the place of a live holder with one update: one trip
// for a release and a grant, and no instant at which the key is free. Like any
// claim it has an attempt of its own, named by the new ID.
func (s *Store) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if from.Mode != store.Exclusive || to.Mode != store.Exclusive {
		return store.Grant{}, mongoerr.NotApplied(fmt.Errorf("transfer from %s to %s: %w: only an exclusive holder has a place to give", from.Mode, to.Mode, errors.ErrUnsupported))
	}
	claim, err := s.claim(ctx, to)
	if err != nil {
		return store.Grant{}, err
	}
	g, err := s.transfer(claim.attempt.In(ctx), from, claim)
	s.base.Over(claim.attempt, err == nil || store.IsCertain(err))
	if err == nil {
		s.leases.forget(from.ID)
	}
	return g, err
}

func (s *Store) transfer(ctx context.Context, from store.Ref, c *claim) (store.Grant, error) {
	now := s.base.Now()
	filter := s.place(from, now)
	update, term := c.document(now)
	reply, err := s.write(ctx, stepHandOver, c, filter, update, mongobase.After)
	if err != nil {
		return store.Grant{}, mongobase.RefusedOrUnknown(reply.Reply, err)
	}
	if reply.Found() {
		return s.grant(ctx, c, reply, term)
	}
	c.attempt.Answered(reply.Reply, true)
	image, err := s.find(ctx, c.Key)
	if err != nil {
		return store.Grant{}, c.attempt.NotApplied(err)
	}
	if _, landed := image.record.holder(c.ID); landed {
		c.attempt.Twin = true
	}
	return store.Grant{}, s.settleRefusal(ctx, c, why(image.record, from.ID))
}

// place asks for the document in which from has a place to give. Its own grant wrote
// the revision, which whoever comes in after it changes, and whoever breaks it; and
// while it may be trusted it has not run out. One that may have, or that this process
// was not granted, is asked for itself.
func (s *Store) place(from store.Ref, now mongoclock.Reading) bson.D {
	l, ok := s.leases.of(from.ID)
	if !ok || l.rev.IsZero() || l.until <= now.At {
		return append(ours(from.Key, exclusively), alive(from.ID, now.Earliest)...)
	}
	return ours(from.Key, bson.E{Key: fieldRev, Value: l.rev})
}

// explain tells why a command that names a holder found none: the document is a
// stranger's, the holder was broken, or there is none. The command itself surely
// changed nothing.
func (s *Store) explain(ctx context.Context, r store.Ref) error {
	image, err := s.find(ctx, r.Key)
	if err != nil {
		return mongoerr.NotApplied(err)
	}
	return why(image.record, r.ID)
}

// why is explain for what was read of the document, if there was one.
func why(seen record, id string) error {
	if seen.foreign != "" {
		return errForeign(seen)
	}
	if h, ok := seen.holder(id); ok && h.broken && !h.released {
		return &store.BrokenError{Reason: h.Broken}
	}
	return store.ErrGone
}
