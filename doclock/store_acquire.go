package doclock

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// A claim is a store.Claim on its way through the commands of its attempt.
type claim struct {
	store.Claim
	*request
	fields  bson.D // the filter that names the document
	attempt *mongobase.Attempt
	sent    mongoclock.Moment // when the call began: trust counts from here
}

// errMissed: the document drawn from a pool is no longer claimable.
var errMissed = errors.New("doclock: somebody else was quicker")

// Acquire locks a document with one update, whose filter requires that nobody holds
// it. If that matches nothing, a read tells why: see contest.
func (s *docStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	cl, err := s.claim(ctx, c)
	if err != nil {
		return store.Grant{}, err
	}
	g, err := s.acquire(cl.attempt.In(ctx), cl)
	s.base.Over(cl.attempt, err == nil || store.IsCertain(err))
	return g, err
}

// claim opens the attempt and sends nothing of the claim yet.
func (s *docStore) claim(ctx context.Context, c store.Claim) (*claim, error) {
	if err := modeIs(c.Mode); err != nil {
		return nil, err
	}
	cl := &claim{Claim: c, request: requestOf(ctx), sent: s.base.Clock.Now()}
	if cl.request == nil {
		cl.request = new(request)
	}
	var err error
	if cl.fields, err = filterOf(c.Key); err != nil {
		return nil, mongoerr.NotApplied(err)
	}
	cl.attempt, err = s.base.Begin(ctx, c.ID, c.TTL)
	return cl, err
}

func (s *docStore) acquire(ctx context.Context, c *claim) (store.Grant, error) {
	if c.Held && c.Want > 0 { // the write of the word is also the look: if the document is held, nothing of the claim is sent
		image, err := s.leaveWord(ctx, c)
		switch {
		case err != nil:
			return store.Grant{}, mongoerr.NotApplied(err)
		case image.Found():
			return s.judge(ctx, c, image)
		}
	}
	u, t := s.holding(c, s.base.Now())
	reply, err := s.modify(ctx, s.freely(c), u, c.create)
	switch {
	case err == nil && reply.Found():
		return s.grant(ctx, c, reply, t)
	case err != nil && !(c.create && mongo.IsDuplicateKeyError(err)):
		return store.Grant{}, mongobase.RefusedOrUnknown(reply, err)
	}
	c.attempt.Answered(reply, true)
	return s.contest(ctx, c, err)
}

// freely is the filter of the claim: its document, if nobody holds it.
func (s *docStore) freely(c *claim) bson.D {
	now := s.base.Now()
	filter := slices.Clone(c.fields)
	switch {
	case s.broken.anyLock:
		return filter
	case c.one:
		return append(filter, bson.E{Key: "$and", Value: bson.A{c.filter, s.claimable(now.Earliest)}})
	}
	return append(filter, s.free(now.Earliest))
}

// contest reads what stands in the claim's way, and leaves the claim's word (the mark
// that somebody waits) if it asks for that. If nothing stands in the way any more, it
// claims once more. refusal is the server's duplicate key error, if there was one.
func (s *docStore) contest(ctx context.Context, c *claim, refusal error) (store.Grant, error) {
	if c.one { // there are other documents: the reason does not matter
		return store.Grant{}, s.settleRefusal(ctx, c, mongoerr.NotApplied(errMissed))
	}
	image, err := s.obstacle(ctx, c)
	switch {
	case err != nil:
		return store.Grant{}, c.attempt.NotApplied(err)
	case image.Found():
		return s.judge(ctx, c, image)
	case refusal != nil: // from another unique index than that of the key, as it seems
		return store.Grant{}, s.settleRefusal(ctx, c, mongoerr.Mark(refusal))
	}
	return store.Grant{}, s.settleRefusal(ctx, c, &notFoundError{c.Key})
}

// judge claims once more if the image of the document shows no live holder.
func (s *docStore) judge(ctx context.Context, c *claim, image mongobase.Reply) (store.Grant, error) {
	rec := s.read(image)
	if rec.foreign != "" {
		return store.Grant{}, s.settleRefusal(ctx, c, s.foreign(rec))
	}
	if rec.id == c.ID {
		return s.refuseTwin(ctx, c)
	}
	now := s.base.Now()
	if rec.held(now.Earliest) && !now.Fresh {
		var err error
		if now, err = s.base.ReadFresh(ctx); err != nil {
			return store.Grant{}, c.attempt.NotApplied(err)
		}
	}
	if rec.held(now.Earliest) {
		return s.refuse(ctx, c, rec)
	}
	return s.again(ctx, c)
}

// again repeats the claim's command with the newest sample of the server's clock. Its
// filter names the expiry that it may take over, so a holder renewed since is safe.
func (s *docStore) again(ctx context.Context, c *claim) (store.Grant, error) {
	u, t := s.holding(c, s.base.Now())
	reply, err := s.modify(ctx, s.freely(c), u, false)
	if err != nil {
		return store.Grant{}, mongobase.RefusedOrUnknown(reply, err)
	}
	if reply.Found() {
		return s.grant(ctx, c, reply, t)
	}
	c.attempt.Answered(reply, true) // somebody else was quicker
	image, err := s.base.Find(ctx, c.fields)
	switch {
	case err != nil:
		return store.Grant{}, c.attempt.NotApplied(err)
	case !image.Found():
		return store.Grant{}, s.settleRefusal(ctx, c, &notFoundError{c.Key})
	}
	switch rec := s.read(image); {
	case rec.foreign != "":
		return store.Grant{}, s.settleRefusal(ctx, c, s.foreign(rec))
	case rec.id == c.ID:
		return s.refuseTwin(ctx, c)
	default:
		return s.refuse(ctx, c, rec)
	}
}

// obstacle returns the document that the claim did not get. It writes if the claim
// leaves a word, or if only a write tells the server's time (through a mongos); otherwise
// it only reads.
func (s *docStore) obstacle(ctx context.Context, c *claim) (mongobase.Reply, error) {
	blind := s.base.Kind().Router && !s.base.Now().Fresh
	if c.Want <= 0 && !blind {
		return s.base.Find(ctx, c.fields)
	}
	image, err := s.leaveWord(ctx, c)
	if err == nil && !image.Found() { // free by now, or gone, or foreign
		return s.base.Find(ctx, c.fields)
	}
	return image, err
}

// leaveWord writes the claim's word, if it has one, and the server's time. The lock's
// at is then a sample of that clock, and the claim's session has moved on.
func (s *docStore) leaveWord(ctx context.Context, c *claim) (mongobase.Reply, error) {
	u := &update{stamp: true}
	if c.Want > 0 {
		_, until := s.base.Now().Expiry(c.Want)
		u.max(s.path(fieldWanted), until)
	}
	filter := append(slices.Clone(c.fields),
		bson.E{Key: s.path(fieldMark), Value: shape},
		bson.E{Key: s.path(fieldID), Value: bson.D{{Key: "$exists", Value: true}}})
	image, err := s.send(ctx, s.base.Soft, filter, u, mongobase.After)
	if err != nil {
		return image, err
	}
	c.attempt.Answered(image, false)
	s.base.Timed(image, s.read(image).at)
	return image, nil
}

// refuse returns that the document was held, with its present state. If the word did
// not get into the document, nobody would wake the claimant: then refuse returns a
// status without holders, as the document was free for a moment, and the claimant asks
// again.
func (s *docStore) refuse(ctx context.Context, c *claim, seen record) (store.Grant, error) {
	now := s.base.Present()
	if c.Want > 0 && !seen.wantedAt(now.Add(c.Want/2)) {
		seen = record{}
	}
	return store.Grant{}, s.settleRefusal(ctx, c, &store.HeldError{Status: seen.status(c.Key, now)})
}

// refuseTwin removes the claim's twin: a copy of its own command, sent by the driver's
// retry, which was applied after the refusal. Its reply, and so its token, is lost.
func (s *docStore) refuseTwin(ctx context.Context, c *claim) (store.Grant, error) {
	c.attempt.Twin = true
	return s.refuse(ctx, c, record{})
}

// settleRefusal returns a refusal once it is certain. If the refused command may have a
// twin on its way, the twin is cleaned up first, in its own session and inside this
// call. If that fails, the outcome is unknown and the engine's Undo goes on with it.
func (s *docStore) settleRefusal(ctx context.Context, c *claim, refusal error) error {
	if !c.attempt.Twin {
		return refusal
	}
	removed, err := s.modify(ctx, append(slices.Clone(c.fields), s.named(c.ID)...), s.leaving(true), false)
	if err != nil {
		return err
	}
	c.attempt.Twin = false
	if removed.Found() { // the engine does not learn that the twin held the document for a moment
		_ = s.Notify(ctx, store.Notice{Topic: store.TopicLocks, Key: c.Key, Kind: store.KindFreed})
	}
	return refusal
}

// Transfer puts a claim in the place of a live holder with one update, which also
// writes what the holder is to save as it leaves. After a lost reply Undo removes
// whichever of the two holds the document, and saves that if need be. A transfer that
// is applied later finds no holder.
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
	g, err := s.transfer(c.attempt.In(ctx), from, c, e)
	s.base.Over(c.attempt, err == nil || store.IsCertain(err))
	if err == nil {
		s.forget(from.ID)
	}
	return g, err
}

func (s *docStore) transfer(ctx context.Context, from store.Ref, c *claim, e *ending) (store.Grant, error) {
	filter, err := s.where(from, s.alive(from.ID)...)
	if err != nil {
		return store.Grant{}, err
	}
	u, t := s.holding(c, s.base.Now())
	e.join(u)
	reply, err := s.modify(ctx, filter, u, false)
	if err != nil {
		return store.Grant{}, mongobase.RefusedOrUnknown(reply, err)
	}
	if reply.Found() {
		s.land(e)
		return s.grant(ctx, c, reply, t)
	}
	c.attempt.Answered(reply, true)
	image, err := s.base.Find(ctx, c.fields)
	if err != nil {
		return store.Grant{}, c.attempt.NotApplied(err)
	}
	if s.read(image).id == c.ID {
		c.attempt.Twin = true
	}
	return store.Grant{}, s.settleRefusal(ctx, c, s.why(image, from.ID))
}
