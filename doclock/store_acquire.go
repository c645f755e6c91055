package doclock

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A claim is a claim that is under way through the commands of its attempt.
type claim struct {
	*docStore
	*request
	lease *lease.Claim
	names bson.D // the fields that name the document, and maybe more conditions
}

var errMissed error = &missed{} // of one of many

// Acquire locks a document with one update, whose filter asks that it has no holder, and that
// nobody waits for it. If that matches nothing, the claim joins the line, or a read tells why.
func (s *docStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	return s.try(ctx, c, func(ctx context.Context, k *claim) (store.Grant, error) {
		k.lease.Attempt.Single = k.soft
		return k.acquire(ctx)
	})
}

// try makes a claim in an attempt of its own.
func (s *docStore) try(ctx context.Context, c store.Claim, with func(context.Context, *claim) (store.Grant, error)) (store.Grant, error) {
	if err := modeIs(c.Mode); err != nil {
		return store.Grant{}, err
	}
	names, err := filterOf(c.Key)
	if err != nil {
		return store.Grant{}, server.NotApplied(err)
	}
	r, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		r = new(request)
	}
	if r.fields != nil {
		names = r.fields
	}
	return s.steps.Try(ctx, c, func(ctx context.Context, begun *lease.Claim) (store.Grant, error) {
		k := &claim{s, r, begun, names}
		begun.Got = func(document bson.Raw) { r.docs.Store(c.ID, document) }
		begun.CleanUp, begun.Names, begun.Ours = k.cleanUp, names, k.locked()
		return with(ctx, k)
	})
}

// acquire locks a document. One that is offered to the claim is taken without a look. One that is
// known to be locked, or awaited, is not asked for before a look. A claim of one of many does not
// look: there are others to claim. Nor does it heed a line.
func (k *claim) acquire(ctx context.Context) (store.Grant, error) {
	c := k.lease
	if c.Offered && c.Place != "" {
		image, t, err := k.takeOffer(ctx)
		if err != nil || image.Found() {
			return k.steps.Answer(ctx, c, image, t, err)
		}
		c.Attempt.Answered(image.Reply, true)
		c.InLine = true
	}
	if (c.Held || c.InLine) && !k.one {
		image, err := k.steps.Stand(ctx, c)
		switch {
		case err != nil:
			return store.Grant{}, c.Attempt.NotApplied(err)
		case image.Found() && (len(image.Record.Holders) > 0 || len(image.Record.Line) > 0):
			k.saw(image.Image)
			return k.contest(ctx, image)
		}
	}
	image, t, err := k.first(ctx)
	if !k.refused(image, err) {
		return k.steps.Answer(ctx, c, image, t, err)
	}
	c.Attempt.Answered(image.Reply, true)
	if k.one {
		return store.Grant{}, k.steps.Settle(ctx, c, server.NotApplied(errMissed))
	}
	if image, err = k.obstacle(ctx, err); err != nil {
		return store.Grant{}, err
	}
	return k.contest(ctx, image)
}

// contest takes a document over if no holder is live any more, and it is the claim's turn.
func (k *claim) contest(ctx context.Context, image reply) (store.Grant, error) {
	still, out, err := k.steps.Contest(ctx, k.lease, image)
	if err != nil {
		return store.Grant{}, err
	}
	taken, t, err := k.takeOver(ctx, image.Record, still, out)
	if err != nil || taken.Found() {
		return k.steps.Answer(ctx, k.lease, taken, t, err)
	}
	k.lease.Attempt.Answered(taken.Reply, true) // lost to a quicker claim
	if image, err = k.obstacle(ctx, nil); err != nil {
		return store.Grant{}, err
	}
	return store.Grant{}, k.steps.Refuse(ctx, k.lease, image.Record)
}

// obstacle returns the document that has refused the claim. An error is the claim's answer.
// refusal is that of the server, if it had one.
func (k *claim) obstacle(ctx context.Context, refusal error) (reply, error) {
	image, err := k.steps.Obstacle(ctx, k.lease)
	k.saw(image.Image)
	switch {
	case err != nil:
		return image, k.lease.Attempt.NotApplied(err)
	case !image.Found():
		return image, k.steps.Settle(ctx, k.lease, k.absent(refusal))
	}
	return image, nil
}

// first sends the first command, which is applied if the document is free. For one of many it
// takes a document over from a holder that the look ahead has found to be over.
func (k *claim) first(ctx context.Context) (reply, lease.Tenure, error) {
	switch {
	case k.over != nil:
		return k.takeOver(ctx, record{Document: lease.Document{Holders: []lease.Holder{*k.over}}}, nil, nil)
	case k.one:
		return k.take(ctx, lease.Acquire, command.After, nil, k.unheld())
	case k.create:
		return k.take(ctx, lease.Acquire, command.Upsert, nil, k.free())
	}
	return k.take(ctx, lease.Acquire, command.After, nil, k.free())
}

func (k *claim) take(ctx context.Context, what lease.Step, opts *options.FindOneAndUpdateOptionsBuilder, out update, who ...bson.E) (reply, lease.Tenure, error) {
	u, t := k.holding(k)
	filter := append(slices.Clip(k.names), who...)
	if k.one {
		filter = append(filter, bson.E{Key: "$and", Value: bson.A{k.filter, k.ready(k.base.Present())}})
	}
	coll := k.base.Durable
	if k.soft { // docs/internals/design.md §4.10
		coll = k.base.Once
	}
	image, err := k.steps.Send(ctx, what, coll, filter, bson.D(u.Join(out)), opts)
	return image, t, err
}

// refused reports that the filter matched nothing, or that the document that was to be made
// exists.
func (k *claim) refused(image reply, err error) bool {
	if err != nil {
		return k.create && mongo.IsDuplicateKeyError(err)
	}
	return !image.Found()
}

// takeOffer takes a document that nobody holds, by the claim's place alone: while that is the
// first in line nobody else is granted the document.
func (k *claim) takeOffer(ctx context.Context) (reply, lease.Tenure, error) {
	who := append(k.ours(), lease.Lacks(k.path(fieldID)), k.lock.At(0, k.lease.Place))
	return k.take(ctx, lease.Offer, command.After, k.lock.Without(k.lease.Place), who...)
}

// takeOver puts the claim in the place of a holder that is over, or takes a document that has
// become free. Its filter names the holder's beat, so a holder that was renewed since is safe.
func (k *claim) takeOver(ctx context.Context, seen record, still []bson.E, out update) (reply, lease.Tenure, error) {
	var who []bson.E
	for _, h := range seen.Holders {
		who = append(k.Named(h.ID), k.lock.Still(h))
	}
	switch {
	case len(who) > 0:
	case len(seen.Line) > 0:
		who = append(k.ours(), lease.Lacks(k.path(fieldID)))
	default:
		return k.take(ctx, lease.TakeOver, command.After, nil, k.free())
	}
	return k.take(ctx, lease.TakeOver, command.After, out, append(who, still...)...)
}

// locked is the filter of the document if it has a lock of this package, with a holder or without.
func (k *claim) locked() bson.D {
	return append(append(slices.Clip(k.names), k.ours()...), bson.E{Key: "$or", Value: bson.A{bson.D{lease.Lacks(k.path(fieldID))}, bson.D{k.held()}}})
}

func (k *claim) cleanUp(ctx context.Context) (store.Status, error) {
	removed, err := k.steps.Send(ctx, lease.Undo, k.base.Durable, append(slices.Clip(k.names), k.Named(k.lease.ID)...), bson.D(k.leaving(true)), command.After)
	k.freed.add(k.lease.Key, removed.Image.Lookup("_id"))
	return removed.Record.Status(k.lease.Key, k.base.Present()), err
}

// absent answers a claim of a document that does not exist. If the server refused to insert it,
// the refusal comes from another unique index than the key's.
func (k *claim) absent(refusal error) error {
	if refusal != nil {
		return server.Classified(refusal)
	}
	filter, err := textOf(k.names)
	if err != nil {
		filter = k.lease.Key
	}
	return &notFoundError{filter}
}

// Transfer puts a claim in the place of a live holder. If the holder saves as it leaves, the
// save is part of that update. After a lost reply, Undo removes whichever of the two holds the
// document, saving first if need be; a transfer that arrives later finds no holder.
func (s *docStore) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if err := modeIs(from.Mode); err != nil {
		return store.Grant{}, err
	}
	e := s.ending(from.ID)
	if e != nil && e.alone() {
		return store.Grant{}, server.NotApplied(errAlone)
	}
	return s.try(ctx, to, func(ctx context.Context, c *claim) (store.Grant, error) {
		// Waiters for one document may ask for different values of its other fields.
		others := slices.DeleteFunc(slices.Clone(c.names), func(f bson.E) bool { return f.Key == "_id" })
		if e.changesAny(others) { // then it may no longer be the document that was asked for
			return store.Grant{}, server.NotApplied(errAlone)
		}
		return s.steps.Transfer(ctx, from, c.lease, func(ctx context.Context) (reply, lease.Tenure, error) {
			u, t := s.holding(c)
			if to.Place != "" { // the line stays as it is otherwise
				u = u.Join(s.lock.Without(to.Place))
			}
			image, err := s.modify(ctx, lease.HandOver, from, append(others, s.alive(from.ID)...), e.join(u))
			e.answered(image.Found(), err)
			return image, t, err
		})
	})
}

// Undo removes what a claim of unknown outcome left, by its ID and in its session. A document
// that the claim created stays, free and with its initial value, as the caller asked for it.
//
// A hand-over is settled even if nothing is found, and even if writes have no transaction
// numbers: it names the old holder, which never comes back.
func (s *docStore) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := modeIs(claim.Mode); err != nil {
		return false, err
	}
	which, where := bson.A{claim.ID}, claim
	if from != nil {
		which, where = append(which, from.ID), *from
	}
	return s.steps.Undo(ctx, claim, from, func(ctx context.Context, _ *command.Attempt) (found bool, err error) {
		image, err := s.takeOut(ctx, where, s.identified(bson.D{{Key: "$in", Value: which}}))
		if err == nil {
			s.freed.add(where.Key, image.Image.Lookup("_id"))
		}
		return image.Found() || from != nil, err
	})
}

// takeOut removes the holder from the document. If the old holder of a hand-over had something
// to save, it is saved now, even if for the second time: the old holder was promised that its
// save is carried through, and the new one was told nothing. As in any release, a broken holder
// saves nothing.
func (s *docStore) takeOut(ctx context.Context, r store.Ref, holder []bson.E) (image reply, err error) {
	if e := s.ending(r.ID); e != nil {
		image, err = s.modify(ctx, lease.Undo, r, append(s.lock.Alive(s.base.Bearing()), holder...), e.join(s.leaving(true)))
		if err != nil || image.Found() {
			return image, err
		}
	}
	return s.modify(ctx, lease.Undo, r, holder, s.leaving(true))
}
