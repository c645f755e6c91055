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

// A claim is one on its way through the commands of its attempt.
type claim struct {
	store.Claim
	*request
	fields  bson.D // that name the document
	attempt *mongobase.Attempt
	sent    mongoclock.Moment // when the call began: trust counts from here
}

var errMissed = errors.New("doclock: somebody else was quicker") // of one of many

// Acquire locks a document by one update of it, whose filter asks that nobody
// holds it. Where that matches nothing a read tells why: see contest.
func (s *docStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	cl, err := s.claim(ctx, c)
	if err != nil {
		return store.Grant{}, err
	}
	g, err := s.acquire(cl.attempt.In(ctx), cl)
	s.base.Over(cl.attempt, err == nil || store.IsCertain(err))
	return g, err
}

// claim opens the attempt. Nothing of the claim is sent yet.
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
	if c.Held && c.Want > 0 { // a look, which the word alone is: nothing of the claim is sent if it is held
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

// freely is the claim's filter: its document, if nobody holds it.
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

// contest looks at what stands in the way, leaving word if the claim asks for it,
// and claims once more if nothing does any longer. refusal is the server's, if it
// was one: a unique index's.
func (s *docStore) contest(ctx context.Context, c *claim, refusal error) (store.Grant, error) {
	if c.one { // there are others: no need to know
		return store.Grant{}, s.settleRefusal(ctx, c, mongoerr.NotApplied(errMissed))
	}
	image, err := s.obstacle(ctx, c)
	switch {
	case err != nil:
		return store.Grant{}, c.attempt.NotApplied(err)
	case image.Found():
		return s.judge(ctx, c, image)
	case refusal != nil: // of another unique index than the key's, as it seems
		return store.Grant{}, s.settleRefusal(ctx, c, mongoerr.Mark(refusal))
	}
	return store.Grant{}, s.settleRefusal(ctx, c, &notFoundError{c.Key})
}

// judge claims once more if nobody is alive in the image of the document.
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

// again repeats the claim's command by what is known of the time by now. It names
// the expiry that it may take over, so a holder renewed since is safe.
func (s *docStore) again(ctx context.Context, c *claim) (store.Grant, error) {
	u, t := s.holding(c, s.base.Now())
	reply, err := s.modify(ctx, s.freely(c), u, false)
	if err != nil {
		return store.Grant{}, mongobase.RefusedOrUnknown(reply, err)
	}
	if reply.Found() {
		return s.grant(ctx, c, reply, t)
	}
	c.attempt.Answered(reply, true) // lost to somebody quicker
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

// obstacle answers the document that the claim did not get. To leave word, or where
// no clock but a write's judges (through a mongos), it writes; else it only reads.
func (s *docStore) obstacle(ctx context.Context, c *claim) (mongobase.Reply, error) {
	blind := s.base.Kind().Router && !s.base.Now().Fresh
	if c.Want <= 0 && !blind {
		return s.base.Find(ctx, c.fields)
	}
	image, err := s.leaveWord(ctx, c)
	if err == nil && !image.Found() { // free by now, or gone, or somebody else's
		return s.base.Find(ctx, c.fields)
	}
	return image, err
}

// leaveWord writes that somebody waits, if the claim says so, and the server's
// time. The lock's at is then a sample, and the claim's session has moved on.
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

// refuse answers that the document was held, with what is there now. If the word
// did not get into it, nobody would wake the claimant: it is told that the key was
// free for a moment, which is so, and asks again.
func (s *docStore) refuse(ctx context.Context, c *claim, seen record) (store.Grant, error) {
	now := s.base.Present()
	if c.Want > 0 && !seen.wantedAt(now.Add(c.Want/2)) {
		seen = record{}
	}
	return store.Grant{}, s.settleRefusal(ctx, c, &store.HeldError{Status: seen.status(c.Key, now)})
}

// refuseTwin removes the claim's own twin, which landed after the refusal. Its
// reply, and so its token, is lost.
func (s *docStore) refuseTwin(ctx context.Context, c *claim) (store.Grant, error) {
	c.attempt.Twin = true
	return s.refuse(ctx, c, record{})
}

// settleRefusal answers a refusal once it is certain: if the refused command may
// have a twin on its way, that is cleaned up first, in its own session, and inside
// this call. Where that fails the outcome is unknown, and the engine's Undo goes
// on with it.
func (s *docStore) settleRefusal(ctx context.Context, c *claim, refusal error) error {
	if !c.attempt.Twin {
		return refusal
	}
	removed, err := s.modify(ctx, append(slices.Clone(c.fields), s.named(c.ID)...), s.leaving(true), false)
	if err != nil {
		return err
	}
	c.attempt.Twin = false
	if removed.Found() { // the engine does not learn that it held for a moment
		_ = s.Notify(ctx, store.Notice{Topic: store.TopicLocks, Key: c.Key, Kind: store.KindFreed})
	}
	return refusal
}

// Transfer puts a claim in the place of a live holder with one update. What the
// holder is to save as it leaves goes with it. After a lost answer Undo removes the
// one or the other, saving it if need be; a transfer that comes later finds no holder.
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
