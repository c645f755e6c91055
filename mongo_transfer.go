package mongolock

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/store"
)

// Transfer puts a claim in the place of a live holder with one update: one trip
// for a release and a grant, and no instant at which the key is free. Like any
// claim it has an attempt of its own, named by the new ID.
func (m *mongoStore) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if from.Mode != store.Exclusive || to.Mode != store.Exclusive {
		return store.Grant{}, joinNotApplied(fmt.Errorf("transfer from %s to %s: %w: only an exclusive holder has a place to give", from.Mode, to.Mode, errors.ErrUnsupported))
	}
	claim, err := m.claim(ctx, to)
	if err != nil {
		return store.Grant{}, err
	}
	g, err := m.transfer(claim.attempt.in(ctx), from, claim)
	m.over(to.ID, claim.attempt, err)
	if err == nil {
		m.memory.forget(from.ID)
	}
	return g, err
}

func (m *mongoStore) transfer(ctx context.Context, from store.Ref, c *mongoClaim) (store.Grant, error) {
	now, _ := m.clock.Read()
	filter := append(m.ours(c.Key, mongoExclusive), alive(from.ID, now.Earliest)...)
	update, term := c.document(now)
	reply, err := m.modify(ctx, filter, update, mongoAfter)
	if err != nil {
		return store.Grant{}, refusedOrUnknown(reply, err)
	}
	if reply.found {
		return m.grant(ctx, c, reply, term)
	}
	c.attempt.answered(reply, true)
	image, err := m.find(ctx, c.Key)
	if err != nil {
		return store.Grant{}, c.attempt.notApplied(err)
	}
	if _, landed := image.record.holder(c.ID); landed {
		c.attempt.twin = true
	}
	return store.Grant{}, m.settleRefusal(ctx, c, why(image, from.ID))
}

// explain tells why a command that names a holder found none: the document is a
// stranger's, the holder was broken, or there is none. The command itself surely
// changed nothing.
func (m *mongoStore) explain(ctx context.Context, r store.Ref) error {
	image, err := m.find(ctx, r.Key)
	if err != nil {
		return joinNotApplied(err)
	}
	return why(image, r.ID)
}

func why(image mongoReply, id string) error {
	if image.found && image.record.foreign != "" {
		return errForeign(image.record)
	}
	if h, ok := image.record.holder(id); ok && h.broken && !h.released {
		return &store.BrokenError{Reason: h.Broken}
	}
	return store.ErrGone
}
