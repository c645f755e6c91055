package mongolock

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// Transfer puts a claim in the place of a live holder with one update: one trip
// for a release and a grant, and no instant at which the key is free. Like any
// claim it has an attempt of its own, named by the new ID.
func (m *mongoStore) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if from.Mode != store.Exclusive || to.Mode != store.Exclusive {
		return store.Grant{}, mongoerr.NotApplied(fmt.Errorf("transfer from %s to %s: %w: only an exclusive holder has a place to give", from.Mode, to.Mode, errors.ErrUnsupported))
	}
	claim, err := m.claim(ctx, to)
	if err != nil {
		return store.Grant{}, err
	}
	g, err := m.transfer(claim.attempt.In(ctx), from, claim)
	m.base.Over(claim.attempt, err == nil || certain(err))
	if err == nil {
		m.leases.forget(from.ID)
	}
	return g, err
}

func (m *mongoStore) transfer(ctx context.Context, from store.Ref, c *mongoClaim) (store.Grant, error) {
	now := m.base.Now()
	filter := append(m.ours(c.Key, mongoExclusive), alive(from.ID, now.Earliest)...)
	update, term := c.document(now)
	reply, err := m.write(ctx, c, filter, update, mongobase.After)
	if err != nil {
		return store.Grant{}, mongobase.RefusedOrUnknown(reply.Reply, err)
	}
	if reply.Found() {
		return m.grant(ctx, c, reply, term)
	}
	c.attempt.Answered(reply.Reply, true)
	image, err := m.find(ctx, c.Key)
	if err != nil {
		return store.Grant{}, c.attempt.NotApplied(err)
	}
	if _, landed := image.record.holder(c.ID); landed {
		c.attempt.Twin = true
	}
	return store.Grant{}, m.settleRefusal(ctx, c, why(image.record, from.ID))
}

// explain tells why a command that names a holder found none: the document is a
// stranger's, the holder was broken, or there is none. The command itself surely
// changed nothing.
func (m *mongoStore) explain(ctx context.Context, r store.Ref) error {
	image, err := m.find(ctx, r.Key)
	if err != nil {
		return mongoerr.NotApplied(err)
	}
	return why(image.record, r.ID)
}

// why is explain for what was read of the document, if there was one.
func why(seen mongoRecord, id string) error {
	if seen.foreign != "" {
		return errForeign(seen)
	}
	if h, ok := seen.holder(id); ok && h.broken && !h.released {
		return &store.BrokenError{Reason: h.Broken}
	}
	return store.ErrGone
}
