package doclock

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

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
	byKey, err := filterOf(c.Key)
	if err != nil {
		return store.Grant{}, server.NotApplied(err)
	}
	r, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		r = new(request)
	}
	names := byKey
	if r.fields != nil {
		names = r.fields
	}
	ctx, a, err := s.base.Begin(ctx, c.ID, c.TTL)
	if err != nil {
		return store.Grant{}, err
	}
	claimed := &lease.Claim{Claim: c, Steps: &s.steps, Attempt: a, Names: byKey, Asks: names, Ours: s.locked(names)}
	g, err := with(ctx, &claim{s, r, claimed, names})
	if err == nil {
		doc := claimed.Granted.Image
		s.remember(c.ID, granted{key: c.Key, doc: doc.Lookup("_id"), residue: readMarks(doc, string(s.lock)).residue()})
		r.docs.Store(c.ID, doc)
	}
	return g, claimed.Over(err)
}

// acquire locks a document. One that is offered to the claim is taken without a look. One that is
// known to be locked, or awaited, is not asked for before a look. A claim of one of many does not
// look: there are others to claim. Nor does it heed a line.
func (k *claim) acquire(ctx context.Context) (store.Grant, error) {
	c := k.lease
	if c.Offered && c.Place != "" {
		for range 2 { // the first may be there before the release, beside which its notice is sent
			image, t, err := k.takeOffer(ctx)
			if err != nil || image.Found() {
				return c.Answer(ctx, image, t, err)
			}
			c.Attempt.Answered(image.Reply, true)
		}
		c.InLine = true
	}
	if (c.Held || c.InLine) && !k.one {
		image, err := c.Stand(ctx)
		switch {
		case err != nil:
			return store.Grant{}, c.Attempt.NotApplied(err)
		case image.Found() && (len(image.Holders) > 0 || len(image.Line) > 0):
			k.saw(image.Image)
			return k.contest(ctx, image)
		}
	}
	image, t, err := k.first(ctx)
	if !k.refused(image, err) {
		return c.Answer(ctx, image, t, err)
	}
	c.Attempt.Answered(image.Reply, true)
	if k.one {
		return store.Grant{}, k.settle(ctx, server.NotApplied(errMissed))
	}
	if image, err = k.obstacle(ctx, err); err != nil {
		return store.Grant{}, err
	}
	return k.contest(ctx, image)
}

// contest takes a document over if no holder is live any more, and it is the claim's turn.
func (k *claim) contest(ctx context.Context, seen lease.Image) (store.Grant, error) {
	c := k.lease
	if _, landed := seen.Has(c.ID); landed || seen.Foreign != nil {
		return store.Grant{}, k.settle(ctx, c.Refused(seen.Document))
	}
	left, _, err := c.Judge(ctx, seen)
	if err != nil {
		return store.Grant{}, err
	}
	if len(left.Holders) > 0 || !left.Turn(&c.Claim) {
		return store.Grant{}, k.settle(ctx, c.Refused(seen.Document))
	}
	still, out := c.Pass(left)
	image, t, err := k.takeOver(ctx, seen.Document, still, out)
	if err != nil || image.Found() {
		return c.Answer(ctx, image, t, err)
	}
	c.Attempt.Answered(image.Reply, true) // lost to a quicker claim
	if seen, err = k.obstacle(ctx, nil); err != nil {
		return store.Grant{}, err
	}
	return store.Grant{}, k.settle(ctx, c.Refused(seen.Document))
}

// obstacle returns the document that has refused the claim. An error is the claim's answer.
// refusal is that of the server, if it had one.
func (k *claim) obstacle(ctx context.Context, refusal error) (lease.Image, error) {
	seen, err := k.lease.Obstacle(ctx)
	k.saw(seen.Image)
	switch {
	case err != nil:
		return seen, k.lease.Attempt.NotApplied(err)
	case !seen.Found():
		return seen, k.settle(ctx, k.absent(refusal))
	}
	return seen, nil
}

// settle answers a refusal once it is certain, as that of store/mongostore does.
func (k *claim) settle(ctx context.Context, refusal error) error {
	c := k.lease
	if !c.Attempt.Twin {
		return refusal
	}
	left, err := k.steps.Send(ctx, lease.Command{
		Step: lease.Undo, To: k.base.MajorityJournaled, Filter: slices.Concat(k.names, k.steps.Named(c.ID)), Update: bson.D(k.leaving(true)),
	})
	k.freed.add(c.Key, left.Image.Lookup("_id"))
	if err != nil {
		return err
	}
	c.Attempt.Twin = false
	_ = k.Notify(ctx, lease.Offers(left.Status(c.Key, k.base.Present()))...)
	return refusal
}

// first sends the first command, which is applied if the document is free. For one of many it
// takes a document over from a holder that the look ahead has found to be over.
func (k *claim) first(ctx context.Context) (lease.Image, lease.Validity, error) {
	switch {
	case k.over != nil:
		return k.takeOver(ctx, lease.Document{Holders: []lease.Holder{*k.over}}, nil, nil)
	case k.one:
		return k.take(ctx, lease.Acquire, server.After, nil, k.unheld())
	case k.create:
		return k.take(ctx, lease.Acquire, server.Upsert, nil, k.free())
	}
	return k.take(ctx, lease.Acquire, server.After, nil, k.free())
}

func (k *claim) take(ctx context.Context, what lease.Step, opts *options.FindOneAndUpdateOptionsBuilder, out update, who ...bson.E) (lease.Image, lease.Validity, error) {
	u, t := k.holding(k)
	filter := append(slices.Clip(k.names), who...)
	if k.one {
		filter = append(filter, bson.E{Key: "$and", Value: bson.A{k.filter, k.ready(k.base.Present())}})
	}
	coll := k.base.MajorityJournaled
	if k.soft { // docs/internals/design.md §4.10
		coll = k.base.W1NoRetry
	}
	image, err := k.steps.Send(ctx, lease.Command{Step: what, To: coll, Filter: filter, Update: bson.D(u.Join(out)), As: opts, Grants: k.lease.ID})
	return image, t, err
}

// refused reports that the filter matched nothing, or that the document that was to be made
// exists.
func (k *claim) refused(image lease.Image, err error) bool {
	if err != nil {
		return k.create && mongo.IsDuplicateKeyError(err)
	}
	return !image.Found()
}

// takeOffer takes a document that nobody holds, by the claim's place alone: while that is the
// first in line nobody else is granted the document.
func (k *claim) takeOffer(ctx context.Context) (lease.Image, lease.Validity, error) {
	who := append(k.ours(), lease.Lacks(k.path(fieldID)), k.lock.At(0, k.lease.Place))
	return k.take(ctx, lease.Offer, server.After, k.lock.Without(k.lease.Place), who...)
}

// takeOver puts the claim in the place of a holder that is over, or takes a document that has
// become free. Its filter names the holder's beat, so a holder that was renewed since is safe.
func (k *claim) takeOver(ctx context.Context, seen lease.Document, still []bson.E, out update) (lease.Image, lease.Validity, error) {
	var who []bson.E
	for _, h := range seen.Holders {
		who = append(k.steps.Named(h.ID), k.lock.Still(h))
	}
	switch {
	case len(who) > 0:
	case len(seen.Line) > 0:
		who = append(k.ours(), lease.Lacks(k.path(fieldID)))
	default:
		return k.take(ctx, lease.TakeOver, server.After, nil, k.free())
	}
	return k.take(ctx, lease.TakeOver, server.After, out, append(who, still...)...)
}

// locked is the filter of the document if it has a lock of this package, with a holder or without.
func (s *docStore) locked(names bson.D) bson.D {
	return append(append(slices.Clip(names), s.ours()...), bson.E{Key: "$or", Value: bson.A{bson.D{lease.Lacks(s.path(fieldID))}, bson.D{s.held()}}})
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
		if !s.steps.Trusts(from.ID) { // its end will be judged, by the clock of the present election
			s.base.Refresh(ctx)
		}
		u, t := s.holding(c)
		if to.Place != "" { // the line stays as it is otherwise
			u = u.Join(s.lock.Without(to.Place))
		}
		image, err := s.handOver(ctx, from, c, append(others, s.alive(from.ID)...), e.join(u))
		e.answered(image.Found(), err)
		if err != nil || image.Found() {
			g, err := c.lease.Answer(ctx, image, t, err)
			if err == nil {
				s.forget(from.ID)
			}
			return g, err
		}
		c.lease.Attempt.Answered(image.Reply, true)
		seen, err := s.find(ctx, to.Ref)
		if err != nil {
			return store.Grant{}, c.lease.Attempt.NotApplied(err)
		}
		c.lease.Landed(seen.Document)
		return store.Grant{}, c.settle(ctx, seen.Why(from.ID))
	})
}

func (s *docStore) handOver(ctx context.Context, from store.Ref, c *claim, conditions []bson.E, u update) (lease.Image, error) {
	name, err := s.name(from)
	if err != nil {
		return lease.Image{}, err
	}
	return s.steps.Send(ctx, lease.Command{Step: lease.HandOver, To: s.base.MajorityJournaled, Filter: append(name, conditions...), Update: bson.D(u), Grants: c.lease.ID})
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
	ctx, a := s.base.BeginUndo(ctx, claim.ID)
	image, err := s.takeOut(ctx, where, s.identified(bson.D{{Key: "$in", Value: which}}))
	if err == nil {
		s.freed.add(where.Key, image.Image.Lookup("_id"))
		s.forget(claim.ID)
		if from != nil {
			s.forget(from.ID)
		}
	}
	return s.base.Undone(a, image.Found() || from != nil, err)
}

// takeOut removes the holder from the document. If the old holder of a hand-over had something
// to save, it is saved now, even if for the second time: the old holder was promised that its
// save is carried through, and the new one was told nothing. As in any release, a broken holder
// saves nothing.
func (s *docStore) takeOut(ctx context.Context, r store.Ref, holder []bson.E) (image lease.Image, err error) {
	if e := s.ending(r.ID); e != nil {
		image, err = s.send(ctx, lease.Undo, s.base.MajorityJournaled, r, append(s.lock.Alive(s.base.ClockBasis()), holder...), e.join(s.leaving(true)))
		if err != nil || image.Found() {
			return image, err
		}
	}
	return s.send(ctx, lease.Undo, s.base.MajorityJournaled, r, holder, s.leaving(true))
}
