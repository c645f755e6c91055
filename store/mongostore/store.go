package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

const (
	// fullAt is how large a document may grow: half of what the server takes.
	fullAt = 8 << 20

	// races is how many races a claim may lose before it is answered "held", with a status
	// that gives no reason to wait. The engine then asks again.
	races = 20
)

// Acquire claims a key, in an attempt of its own.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := knownMode(c.Mode); err != nil {
		return store.Grant{}, err
	}
	if !s.fit.Load() {
		if err := s.refuseUnfit(ctx); err != nil {
			return store.Grant{}, server.NotApplied(err)
		}
	}
	within, claim, err := s.begin(ctx, c)
	if err != nil {
		return store.Grant{}, err
	}
	g, err := s.claim(within, claim)
	if err = claim.Over(err); err == nil && !s.indexed.Swap(true) {
		s.firstIndex(ctx, claim, g)
	}
	return g, err
}

func knownMode(mode store.Mode) error {
	switch mode {
	case store.Exclusive, store.Shared, store.Permits:
		return nil
	}
	return server.NotApplied(fmt.Errorf("mode %q: %w", mode, errors.ErrUnsupported))
}

// begin begins the attempt of a claim, which is in the context that it returns.
func (s *Store) begin(ctx context.Context, c store.Claim) (context.Context, *lease.Claim, error) {
	ctx, a, err := s.base.Begin(ctx, c.ID, c.TTL)
	name := bson.D{{Key: "_id", Value: c.Key}}
	return ctx, &lease.Claim{Claim: c, Steps: &s.steps, Attempt: a, Names: name, Asks: name, Ours: ours(c.Key)}, err
}

// claim is one loop for all modes: insert, look, judge, swap. The insert is an upsert: if the key has a
// document already, the unique index on _id refuses it. A key that is offered to an exclusive claim is
// taken without a look, by the claim's place; if that misses, once more before anything longer.
//
// An exclusive claim that lost a swap is refused. A sharer tries again, as several may come at one
// time. Those of one process go one at a time: of several at once all but one would lose, and read
// again.
func (s *Store) claim(ctx context.Context, c *lease.Claim) (store.Grant, error) {
	if c.Mode != store.Exclusive {
		leave, err := s.joins.enter(ctx, c.Key)
		if err != nil {
			return store.Grant{}, server.NotApplied(err)
		}
		defer leave()
	} else if c.Offered && c.Place != "" {
		for range 2 { // the first may be there before the release, beside which its notice is sent
			offer, t := s.offer(c)
			image, err := s.steps.Send(ctx, offer)
			if err != nil || image.Found() {
				return c.Answer(ctx, image, t, err)
			}
			c.Attempt.Answered(image.Reply, true)
		}
		c.InLine = true
	}
	seen, err := s.firstLook(ctx, c)
	if err != nil {
		return store.Grant{}, err
	}
	for range races {
		var next lease.Command
		var t lease.Validity
		if !seen.Found() {
			next, t = s.insert(c)
		} else if next, t, err = s.judge(ctx, c, seen); err != nil {
			return store.Grant{}, err
		}
		inserts := next.Step == lease.Acquire
		image, err := s.steps.Send(ctx, next)
		if err == nil && (inserts || image.Found()) || err != nil && server.ClassOf(err) != server.DuplicateID {
			return c.Answer(ctx, image, t, err)
		}
		c.Attempt.Answered(image.Reply, true)
		if seen, err = s.lookAgain(ctx, c); err != nil {
			return store.Grant{}, err
		}
		if !inserts && c.Mode == store.Exclusive {
			break
		}
	}
	return store.Grant{}, s.refuse(ctx, c, seen)
}

// firstLook looks at a key that is probably in use, by the claim's hints or, for a sharer, by what was
// seen lately. It finds nothing if that is not known. A claim that waits joins the line, or says that it
// still waits, and that is its look. But a sharer looks before it joins, so that a mismatch leaves no
// place in the line, unless the key was shared lately.
func (s *Store) firstLook(ctx context.Context, c *lease.Claim) (seen lease.Image, err error) {
	if c.Mode == store.Exclusive {
		if c.Full {
			full, err := s.steps.Find(ctx, c.Asks)
			if err != nil {
				return seen, c.Attempt.NotApplied(err)
			}
			if len(s.steps.Status(c.Key, full.Document).Waiting("")) >= store.LineMost {
				return seen, s.refuse(ctx, c, full)
			}
		}
		if c.Held || c.InLine {
			seen, err = c.Stand(ctx)
		}
	} else {
		shared := s.joins.expected(c.Key, s.base.Clock.Now())
		switch {
		case c.Place == "":
		case c.InLine || c.Offered:
			seen, err = c.StillWaits(ctx)
		case c.Held && shared:
			seen, err = c.Stand(ctx)
		}
		c.Stands = seen.Found()
		if err == nil && !c.Stands && (c.Held || c.InLine || c.Offered || shared) {
			seen, err = s.steps.Find(ctx, c.Asks)
		}
	}
	if err != nil {
		err = c.Attempt.NotApplied(err)
	}
	return seen, err
}

// lookAgain looks at a key of which the claim was refused. For an exclusive claim it finds the document,
// or answers that the key has become free: "held", with a status that makes the engine ask again at once.
func (s *Store) lookAgain(ctx context.Context, c *lease.Claim) (seen lease.Image, err error) {
	if c.Mode == store.Exclusive {
		seen, err = c.Obstacle(ctx)
	} else {
		seen, err = s.steps.Find(ctx, c.Asks)
	}
	switch {
	case err != nil:
		err = c.Attempt.NotApplied(err)
	case c.Mode == store.Exclusive && !seen.Found():
		err = s.settle(ctx, c, &store.HeldError{Status: lease.Document{}.Status(c.Key, s.base.Present())})
	}
	return seen, err
}

// judge returns the swap by which a claim takes the key that it has seen, or refuses the claim.
func (s *Store) judge(ctx context.Context, c *lease.Claim, seen lease.Image) (next lease.Command, t lease.Validity, err error) {
	if _, landed := seen.Has(c.ID); landed || seen.Foreign != nil {
		return next, t, s.refuse(ctx, c, seen)
	}
	left, over, err := c.Judge(ctx, seen)
	if err != nil {
		return next, t, err
	}
	admitted := admits(c, left)
	if c.Mode != store.Exclusive {
		s.joins.saw(c.Key, s.base.Clock.Now(), admitted || left.Mode == store.Shared || left.Mode == store.Permits)
		switch mismatch := left.Mode != "" && left.Mode != store.Exclusive && left.Mode != c.Mode; {
		case mismatch:
			if stands(left, c.Place) { // if it stays it is passed, and after a while stale
				_, _ = s.steps.StepOut(ctx, c.Ours, c.Place)
			}
			return next, t, s.settle(ctx, c, &store.MismatchError{Key: c.Key, Live: left.Mode, Claim: c.Claim})
		case admitted && seen.Size+len(c.Owner)+len(c.Note) > fullAt:
			return next, t, s.settle(ctx, c, fmt.Errorf("%w: %q has %d", store.ErrTooLarge, c.Key, len(seen.Holders)))
		case !admitted && c.Place != "" && !c.Stands:
			c.Stands = true // the key may have been freed since it was seen, and then no release would tell the claim
			if seen, err = c.Obstacle(ctx); err != nil {
				return next, t, c.Attempt.NotApplied(err)
			}
			if seen.Found() {
				return s.judge(ctx, c, seen)
			}
			next, t = s.insert(c)
			return next, t, nil
		}
	}
	if !admitted {
		return next, t, s.refuse(ctx, c, seen)
	}
	next, t = s.swap(c, seen.Document, left, over)
	return next, t, nil
}

// admits reports whether a claim may have the key beside the holders that are left, and whether it is
// its turn. They count whatever their dates say: they were not judged to be over.
func admits(c *lease.Claim, left store.Status) bool {
	taken := 0
	for _, h := range left.Holders {
		taken += max(1, h.Weight)
	}
	return (taken == 0 || c.Mode != store.Exclusive && left.Mode != store.Exclusive) &&
		(c.Mode != store.Permits || taken+max(1, c.Weight) <= c.Limit) && left.Turn(&c.Claim)
}

func stands(s store.Status, p store.Place) bool {
	return p != "" && slices.ContainsFunc(s.Line, func(w store.Waiter) bool { return w.Place == p })
}

func (s *Store) refuse(ctx context.Context, c *lease.Claim, seen lease.Image) error {
	return s.settle(ctx, c, c.Refused(seen.Document))
}

// settle answers a refusal once it is certain. If the refused command may have a twin on its
// way, the twin is cleaned up first, in its own session, within this call. If that fails the
// outcome is unknown, and the engine's Undo goes on with it. The first in line are told if they may
// have a key that a twin held for a moment.
func (s *Store) settle(ctx context.Context, c *lease.Claim, refusal error) error {
	if !c.Attempt.Twin {
		return refusal
	}
	left, err := s.cleanUp(ctx, c.Ref, nil, c.Attempt.Rev)
	if err != nil {
		return err
	}
	c.Attempt.Twin = false
	_ = s.feed.Notify(ctx, lease.Offers(left.Status(c.Key, s.base.Present()))...)
	return refusal
}

// Transfer puts a claim in the place of a live holder with one update. That is one trip for a release
// and a grant, and leaves no instant at which the key is free. If that finds no such holder, the document tells why.
func (s *Store) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if from.Mode != store.Exclusive || to.Mode != store.Exclusive {
		return store.Grant{}, server.NotApplied(fmt.Errorf("transfer from %s to %s: %w: only an exclusive holder has a place to give", from.Mode, to.Mode, errors.ErrUnsupported))
	}
	ctx, c, err := s.begin(ctx, to)
	if err != nil {
		return store.Grant{}, err
	}
	g, err := s.transfer(ctx, from, c)
	return g, c.Over(err)
}

func (s *Store) transfer(ctx context.Context, from store.Ref, c *lease.Claim) (store.Grant, error) {
	if !s.steps.Trusts(from.ID) { // its end will be judged, by the clock of the present election
		s.base.Refresh(ctx)
	}
	handOver, t := s.handOver(from, c)
	image, err := s.steps.Send(ctx, handOver)
	if err != nil || image.Found() {
		g, err := c.Answer(ctx, image, t, err)
		if err == nil {
			s.steps.Memory.Forget(from.ID)
		}
		return g, err
	}
	c.Attempt.Answered(image.Reply, true)
	seen, err := s.steps.Find(ctx, c.Names)
	if err != nil {
		return store.Grant{}, c.Attempt.NotApplied(err)
	}
	c.Landed(seen.Document)
	return store.Grant{}, s.settle(ctx, c, seen.Why(from.ID))
}

// Undo removes what a claim of unknown outcome left, by its ID and in its session. The removal
// has a higher transaction number, so the server refuses the claim if it comes later, even if
// the removal found nothing.
func (s *Store) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := knownMode(claim.Mode); err != nil {
		return false, err
	}
	ctx, a := s.base.BeginUndo(ctx, claim.ID)
	left, err := s.cleanUp(ctx, claim, from, a.Rev)
	if err == nil {
		s.steps.Memory.Forget(claim.ID)
		if from != nil {
			s.steps.Memory.Forget(from.ID)
		}
	}
	return s.base.Undone(a, left.Found(), err)
}

func (s *Store) cleanUp(ctx context.Context, claim store.Ref, from *store.Ref, joined int64) (left lease.Image, err error) {
	undo := s.undo(claim, from, joined)
	left, err = s.steps.Send(ctx, undo)
	if err == nil {
		s.tidy(ctx, undo.To, claim.Key, left)
	}
	return left, err
}

// Renew gives holders a new end.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	ctx = server.Bare(ctx)
	names := make([]bson.D, len(batch))
	for i, r := range batch {
		names[i] = named(r.Key)
	}
	r := s.steps.Renewing(batch, names)
	for r.Next(ctx) {
		keys := make([]string, len(r.Which))
		for n, i := range r.Which {
			keys[n] = batch[i].Key
		}
		r.Read(s.read(ctx, r.From, keys))
	}
	for i, a := range r.Answers {
		if errors.Is(a.Err, store.ErrGone) {
			s.steps.Memory.Forget(batch[i].ID)
		}
	}
	return r.Answers
}

// Release releases a holder, with one command in most cases.
func (s *Store) Release(ctx context.Context, r store.ReleaseRequest) (store.ReleaseResult, error) {
	if err := knownMode(r.Mode); err != nil {
		return store.ReleaseResult{}, err
	}
	ctx, to := server.Bare(ctx), s.steps.ReleaseConcern(r.ID, r.Keep)
	image, err := s.release(ctx, r, to)
	switch {
	case err != nil:
		return store.ReleaseResult{}, server.Classified(err)
	case image.Found():
		return s.steps.Released(r.Ref, image), nil
	}
	if image, err = s.steps.Find(ctx, named(r.Key)); err == nil { // a leave may have been cut short after its first command
		s.tidy(ctx, to, r.Key, image)
	}
	return store.ReleaseResult{}, s.steps.NotReleased(r.ID, image, err)
}

func (s *Store) release(ctx context.Context, r store.ReleaseRequest, to *mongo.Collection) (lease.Image, error) {
	t, stays, err := s.steps.Stays(ctx, named(r.Key), r.ID, r.Keep)
	switch {
	case err != nil:
		return lease.Image{}, err
	case stays:
		return s.steps.Send(ctx, stay(to, r.Ref, t))
	case r.Mode != store.Exclusive:
		return s.takeOut(ctx, lease.Leave, to, r, held(r.Ref))
	}
	return s.takeOut(ctx, lease.Release, to, r, held(r.Ref))
}

// takeOut deletes the document of an exclusive holder, if nobody is in line; that is a guess,
// unless somebody is known to be. Any other holder leaves the document, which ends if nothing is left in it.
func (s *Store) takeOut(ctx context.Context, what lease.Step, to *mongo.Collection, r store.ReleaseRequest, filter bson.D) (lease.Image, error) {
	if r.Mode == store.Exclusive && !r.Line {
		if image, err := s.steps.Send(ctx, remove(what, to, filter)); err != nil || image.Found() {
			return image, err
		}
	}
	image, err := s.steps.Send(ctx, s.drop(what, to, r.Ref, filter, r.Used))
	if err == nil {
		s.tidy(ctx, to, r.Key, image)
	}
	return image, err
}

// tidy deletes a document in which an image shows neither a holder nor a line.
func (s *Store) tidy(ctx context.Context, to *mongo.Collection, key string, left lease.Image) {
	if left.Found() && left.Foreign == nil && len(left.Holders) == 0 && len(left.Line) == 0 {
		_, _ = s.steps.Send(ctx, last(to, key))
	}
}

// Leave takes a place out of the line, and removes a document that has nothing else. It answers
// with the key as it is then.
func (s *Store) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	ctx = server.Bare(ctx)
	if _, err := s.base.Read(ctx); err != nil {
		return store.Status{Key: key}, server.NotApplied(err)
	}
	var image lease.Image
	var err error
	if p != "" { // no path of a field has an empty part
		image, err = s.steps.StepOut(ctx, ours(key), p)
	}
	if err != nil {
		return store.Status{Key: key}, server.Classified(err)
	}
	if image.Found() {
		s.tidy(ctx, s.base.W1, key, image)
	} else if image, err = s.steps.Find(ctx, named(key)); err != nil {
		return store.Status{Key: key}, server.NotApplied(err)
	}
	return s.steps.Status(key, image.Document), image.Foreign
}

// Break marks a holder, which learns of it at its next renewal, and with now removes the
// holder. Both outlast a failover: an operator must not find a break undone.
func (s *Store) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if err := knownMode(r.Mode); err != nil {
		return err
	}
	ctx = server.Bare(ctx)
	var image lease.Image
	var err error
	if now {
		image, err = s.takeOut(ctx, lease.Break, s.base.MajorityJournaled, store.ReleaseRequest{Ref: r}, ours(r.Key, holds(r.ID), inMode(r.Mode)))
	} else {
		image, err = s.steps.Send(ctx, s.mark(r, reason))
	}
	switch {
	case err != nil:
		return server.Classified(err)
	case !image.Found():
		return lease.GoneIfBroken(s.steps.Explain(ctx, named(r.Key), r.ID))
	}
	return nil
}
