package doclock

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// A claim is on its way through the commands of its attempt.
type claim struct {
	*mongolease.Claim
	*request
	fields bson.D // that name the document, and maybe more conditions
}

var errMissed = errors.New("doclock: somebody else was quicker") // of one of many

// Acquire locks a document with one update, whose filter asks that nobody holds it. If
// that matches nothing a read tells why.
func (s *docStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	cl, err := s.claim(ctx, c)
	if err != nil {
		return store.Grant{}, err
	}
	g, err := s.steps.Acquire(cl.Attempt.In(ctx), cl.Claim, contender{s, cl})
	s.steps.Over(cl.Claim, err)
	return g, err
}

// claim opens the attempt. Nothing of the claim is sent yet.
func (s *docStore) claim(ctx context.Context, c store.Claim) (*claim, error) {
	if err := modeIs(c.Mode); err != nil {
		return nil, err
	}
	fields, err := filterOf(c.Key)
	if err != nil {
		return nil, mongoerr.NotApplied(err)
	}
	cl := &claim{request: requestOf(ctx), fields: fields}
	if cl.request == nil {
		cl.request = new(request)
	}
	if cl.request.fields != nil {
		cl.fields = cl.request.fields
	}
	if cl.Claim, err = s.steps.Begin(ctx, c); err != nil {
		return nil, err
	}
	cl.Got = func(document bson.Raw) { cl.got(c.ID, document) }
	return cl, nil
}

// others are the fields of the claim's filter besides _id. Waiters for one document may
// ask for different values of them.
func (c *claim) others() []bson.E {
	return slices.DeleteFunc(slices.Clone(c.fields), func(f bson.E) bool { return f.Key == "_id" })
}

// freely is the filter of the claim: its document, if nobody holds it.
func (s *docStore) freely(c *claim) bson.D {
	now := s.base.Now()
	filter := slices.Clone(c.fields)
	if c.one {
		return append(filter, bson.E{Key: "$and", Value: bson.A{c.filter, s.claimable(now.Earliest)}})
	}
	return append(filter, s.free(now.Earliest))
}

// Transfer puts a claim in the place of a live holder with one update. If the holder
// saves as it leaves, the save is part of that update. After a lost reply, Undo removes
// whichever of the two holds the document, saving first if need be; a transfer that
// arrives later finds no holder.
func (s *docStore) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if err := modeIs(from.Mode); err != nil {
		return store.Grant{}, err
	}
	e := s.ending(from.ID)
	if e != nil && e.alone() {
		return store.Grant{}, mongoerr.NotApplied(errAlone)
	}
	c, err := s.claim(ctx, to)
	if err != nil {
		return store.Grant{}, err
	}
	if e.changesAny(c.others()) { // then it may not be the document that is asked for
		s.steps.Over(c.Claim, store.ErrNotApplied)
		return store.Grant{}, mongoerr.NotApplied(errAlone)
	}
	g, err := s.steps.HandOver(c.Attempt.In(ctx), from, c.Claim, contender{s, c}, func(ctx context.Context) (reply, mongolease.Tenure, error) {
		now := s.base.Now()
		u, t := s.holding(c, now)
		e.join(u)
		filter, err := s.where(from, append(c.others(), layout{s}.Alive(from.ID, now.Earliest)...)...)
		if err != nil {
			return reply{}, t, err
		}
		image, err := s.send(ctx, mongolease.HandOver, s.base.Durable, filter, u, mongobase.After)
		if image.Found() {
			s.land(e)
		}
		return image, t, err
	})
	s.steps.Over(c.Claim, err)
	if err == nil {
		s.steps.Memory.Forget(from.ID)
	}
	return g, err
}

// Undo removes what a claim of unknown outcome left, by its ID and in its session. A
// document that the claim created stays, free and with its initial value, as the caller
// asked for it.
//
// A hand-over is settled even if nothing is found, and even if writes have no
// transaction numbers: it names the old holder, which never comes back.
func (s *docStore) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := modeIs(claim.Mode); err != nil {
		return false, err
	}
	which, where := bson.A{claim.ID}, claim
	if from != nil {
		which, where = append(which, from.ID), *from
	}
	return s.base.Undo(ctx, claim.ID, func(ctx context.Context, _ *mongobase.Attempt) (found bool, err error) {
		if knob.UndoElsewhere {
			ctx = mongobase.Bare(ctx)
		}
		reply, err := s.takeOut(ctx, where, which)
		if err == nil {
			s.freed.add(where.Key, reply.Image)
			s.steps.Memory.Forget(claim.ID, where.ID)
		}
		return reply.Found() || from != nil, err
	})
}

// takeOut removes whichever of these holds the document. If the old holder of a
// hand-over had something to save, it is saved now, even if for the second time: the old
// holder was promised that its save is carried through, and the new one was told
// nothing. As in any release, a broken holder saves nothing.
func (s *docStore) takeOut(ctx context.Context, r store.Ref, which bson.A) (image reply, err error) {
	holder := []bson.E{
		{Key: s.path(fieldMark), Value: shape},
		{Key: s.path(fieldID), Value: bson.D{{Key: "$in", Value: which}}},
	}
	if e := s.ending(r.ID); e != nil {
		filter, err := s.where(r, append(s.living(s.base.Now().Earliest), holder...)...)
		if err != nil {
			return image, err
		}
		u := s.leaving(true)
		e.join(u)
		if image, err = s.modify(ctx, mongolease.Undo, filter, u); err != nil || image.Found() {
			return image, err
		}
	}
	filter, err := s.where(r, holder...)
	if err != nil {
		return image, err
	}
	return s.modify(ctx, mongolease.Undo, filter, s.leaving(true))
}
