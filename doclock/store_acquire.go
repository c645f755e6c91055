package doclock

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// A claim is a claim that is under way through the commands of its attempt, which are this
// store's: a mongolease.Contender.
type claim struct {
	*docStore
	*request
	lease *mongolease.Claim
	names bson.D // the fields that name the document, and maybe more conditions
}

var errMissed error = &missed{} // of one of many

// Acquire locks a document with one update, whose filter asks that it has no holder. If that
// matches nothing, a read tells why.
func (s *docStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	return s.try(ctx, c, func(ctx context.Context, k *claim) (store.Grant, error) {
		k.lease.Attempt.Single = k.soft
		return s.steps.Acquire(ctx, k.lease, k)
	})
}

// try makes a claim in an attempt of its own.
func (s *docStore) try(ctx context.Context, c store.Claim, with func(context.Context, *claim) (store.Grant, error)) (store.Grant, error) {
	if err := modeIs(c.Mode); err != nil {
		return store.Grant{}, err
	}
	names, err := filterOf(c.Key)
	if err != nil {
		return store.Grant{}, mongoerr.NotApplied(err)
	}
	r, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		r = new(request)
	}
	if r.fields != nil {
		names = r.fields
	}
	c.Lingers = false // a client that kept the lock would have an old document
	return s.steps.Try(ctx, c, func(ctx context.Context, begun *mongolease.Claim) (store.Grant, error) {
		begun.Got = func(document bson.Raw) { r.docs.Store(c.ID, document) }
		return with(ctx, &claim{s, r, begun, names})
	})
}

// Claim makes the claim the holder if there is none. For one of many it takes a document over
// from a holder that the look ahead has found to be over.
func (k *claim) Claim(ctx context.Context) (reply, mongolease.Tenure, error) {
	switch {
	case k.over != nil:
		return k.TakeOver(ctx, record{Document: mongolease.Document{Holders: []mongolease.Holder{*k.over}}})
	case k.create:
		return k.take(ctx, mongolease.Acquire, mongobase.Upsert, k.free())
	}
	return k.take(ctx, mongolease.Acquire, mongobase.After, k.free())
}

func (k *claim) take(ctx context.Context, what mongolease.Step, opts *options.FindOneAndUpdateOptionsBuilder, who ...bson.E) (reply, mongolease.Tenure, error) {
	u, t := k.holding(k)
	filter := append(slices.Clip(k.names), who...)
	if k.one {
		filter = append(filter, bson.E{Key: "$and", Value: bson.A{k.filter, k.ready(k.base.Present())}})
	}
	coll := k.base.Durable
	if k.soft { // docs/design.md §4.10
		coll = k.base.Once
	}
	image, err := k.steps.Send(ctx, what, coll, filter, bson.D(u), opts)
	return image, t, err
}

// Refused reports that the filter matched nothing, or that the document that was to be made
// exists.
func (k *claim) Refused(image reply, err error) bool {
	if err != nil {
		return k.create && mongo.IsDuplicateKeyError(err)
	}
	return !image.Found()
}

// TakeOver puts the claim in the place of a holder that is over, or takes a document that has
// become free. Its filter names the holder's beat, so a holder that was renewed since is safe.
func (k *claim) TakeOver(ctx context.Context, seen record) (reply, mongolease.Tenure, error) {
	who := []bson.E{k.free()}
	for _, h := range seen.Holders {
		who = append(k.Named(h.ID), k.lock.Still(h))
	}
	return k.take(ctx, mongolease.TakeOver, mongobase.After, who...)
}

func (k *claim) Word(ctx context.Context) (reply, error) {
	image, err := k.steps.LeaveWord(ctx, k.lease, append(slices.Clip(k.names), append(k.ours(), k.held())...))
	k.saw(image.Image)
	return image, err
}

func (k *claim) Look(ctx context.Context) (reply, error) {
	image, err := k.steps.FindOne(ctx, k.names)
	k.saw(image.Image)
	return image, err
}

func (k *claim) CleanUp(ctx context.Context) (wanted bool, err error) {
	removed, err := k.steps.Send(ctx, mongolease.Undo, k.base.Durable, append(slices.Clip(k.names), k.Named(k.lease.ID)...), bson.D(k.leaving(true)), mongobase.After)
	k.freed.add(k.lease.Key, removed.Image.Lookup("_id"))
	return removed.Found(), err
}

// Missed answers a claim of one of many: there are others to claim.
func (k *claim) Missed() error {
	if k.one {
		return errMissed
	}
	return nil
}

// Absent answers a claim of a document that does not exist. If the server refused to insert it,
// the refusal comes from another unique index than the key's.
func (k *claim) Absent(refusal error) error {
	if refusal != nil {
		return mongoerr.Mark(refusal)
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
		return store.Grant{}, mongoerr.NotApplied(errAlone)
	}
	return s.try(ctx, to, func(ctx context.Context, c *claim) (store.Grant, error) {
		// Waiters for one document may ask for different values of its other fields.
		others := slices.DeleteFunc(slices.Clone(c.names), func(f bson.E) bool { return f.Key == "_id" })
		if e.changesAny(others) { // then it may no longer be the document that was asked for
			return store.Grant{}, mongoerr.NotApplied(errAlone)
		}
		return s.steps.Transfer(ctx, from, c.lease, c, func(ctx context.Context) (reply, mongolease.Tenure, error) {
			u, t := s.holding(c)
			image, err := s.modify(ctx, mongolease.HandOver, from, append(others, s.alive(from.ID)...), e.join(u))
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
	return s.steps.Undo(ctx, claim, from, func(ctx context.Context, _ *mongobase.Attempt) (found bool, err error) {
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
		image, err = s.modify(ctx, mongolease.Undo, r, append(s.lock.Alive(s.base.Bearing()), holder...), e.join(s.leaving(true)))
		if err != nil || image.Found() {
			return image, err
		}
	}
	return s.modify(ctx, mongolease.Undo, r, holder, s.leaving(true))
}
