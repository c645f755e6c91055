package mongostore

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// A claim is one claim on its way through the commands of its attempt.
type claim struct {
	store.Claim
	attempt *mongobase.Attempt
	sent    mongoclock.Moment // when the call began: trust counts from here
	worded  bool              // it has left word
}

// A tenure is what a claim writes: when it begins and ends, and the revision that
// the document has then. (A join keeps its revision to itself.)
type tenure struct {
	since, until time.Time
	rev          bson.ObjectID
}

// Acquire claims a key with one upsert, which inserts the document or takes over
// one whose holders have all run out. Where there is another it meets the unique
// index on _id, and that refusal is looked into: see contest.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	claim, err := s.claim(ctx, c)
	if err != nil {
		return store.Grant{}, err
	}
	acquire := s.acquire
	if c.Mode != store.Exclusive {
		acquire = s.share
	}
	g, err := acquire(claim.attempt.In(ctx), claim)
	if err == nil {
		err = s.indexOnce(ctx, claim, g)
	}
	s.base.Over(claim.attempt, err == nil || store.IsCertain(err))
	return g, err
}

// claim opens the attempt. Nothing of the claim is sent yet.
func (s *Store) claim(ctx context.Context, c store.Claim) (*claim, error) {
	claim := &claim{Claim: c, sent: s.base.Clock.Now()}
	if err := knownMode(c.Mode); err != nil {
		return nil, err
	}
	var err error
	claim.attempt, err = s.base.Begin(ctx, c.ID, c.TTL)
	return claim, err
}

func (s *Store) acquire(ctx context.Context, c *claim) (store.Grant, error) {
	if c.Held && c.Want > 0 && !knob.WordAfterLook { // a look, which the word alone is: nothing of the claim is sent if it is held
		image, err := s.leaveWord(ctx, c)
		switch {
		case err != nil:
			return store.Grant{}, mongoerr.NotApplied(err)
		case image.Found():
			return s.judge(ctx, c, image)
		}
	}
	now := s.base.Now()
	update, term := c.document(now)
	filter := ours(c.Key, runOut(fieldExpireAt, now.Earliest))
	reply, err := s.write(ctx, stepAcquire, c, filter, update, mongobase.Upsert)
	switch {
	case err == nil:
		return s.grant(ctx, c, reply, term)
	case mongoerr.ClassOf(err) != mongoerr.DuplicateID:
		return store.Grant{}, mongobase.RefusedOrUnknown(reply.Reply, err)
	}
	c.attempt.Answered(reply.Reply, true)
	return s.contest(ctx, c)
}

// document is the update that makes the claim the key's only holder: the whole map.
func (c *claim) document(now mongoclock.Reading) (bson.D, tenure) {
	t := tenure{rev: bson.NewObjectID()}
	t.since, t.until = now.Expiry(c.TTL)
	return bson.D{
		{Key: "$set", Value: bson.D{
			{Key: fieldMode, Value: string(c.Mode)},
			{Key: fieldLimit, Value: c.Limit},
			{Key: fieldHolders, Value: bson.D{{Key: c.ID, Value: c.holder(t)}}},
			{Key: fieldExpireAt, Value: mongobase.Date(t.until)},
			{Key: fieldRev, Value: t.rev},
		}},
		stampAt,
	}, t
}

func (c *claim) holder(t tenure) bson.D {
	return bson.D{
		{Key: fieldOwner, Value: c.Owner},
		{Key: fieldNote, Value: c.Note},
		{Key: fieldSince, Value: mongobase.Date(t.since)},
		{Key: fieldExpireAt, Value: mongobase.Date(t.until)},
	}
}

// contest looks at what stands in the way, leaving word if the claim asks for it,
// and takes the key over if no holder is alive any more.
func (s *Store) contest(ctx context.Context, c *claim) (store.Grant, error) {
	image, err := s.obstacle(ctx, c)
	switch {
	case err != nil:
		return store.Grant{}, c.attempt.NotApplied(err)
	case !image.Found():
		return s.refuse(ctx, c, record{key: c.Key})
	}
	return s.judge(ctx, c, image)
}

// judge takes a key over if no holder is alive in the image of its document.
func (s *Store) judge(ctx context.Context, c *claim, image reply) (store.Grant, error) {
	if image.record.foreign != "" {
		return store.Grant{}, s.settleRefusal(ctx, c, errForeign(image.record))
	}
	if _, landed := image.record.holder(c.ID); landed {
		return s.refuseTwin(ctx, c)
	}
	now := s.base.Now()
	if image.record.held(now.Earliest) && !now.Fresh {
		var err error
		if now, err = s.base.ReadFresh(ctx); err != nil {
			return store.Grant{}, c.attempt.NotApplied(err)
		}
	}
	if image.record.held(now.Earliest) {
		return s.refuse(ctx, c, image.record)
	}
	return s.swap(ctx, c, image.record, now)
}

// obstacle answers the document that refused the claim. To leave word, or where no
// clock but a write's judges (through a mongos), it writes; else it only reads.
func (s *Store) obstacle(ctx context.Context, c *claim) (reply, error) {
	now := s.base.Now()
	blind := s.base.Kind().Router && !now.Fresh
	if c.Want <= 0 && !blind {
		return s.find(ctx, c.Key)
	}
	var seen reply
	if knob.WordAfterLook {
		seen = s.lookFirst(ctx, c)
	}
	image, err := s.leaveWord(ctx, c)
	if knob.WordAfterLook {
		return seen, err
	}
	if err == nil && !image.Found() { // gone by now, or somebody else's
		return s.find(ctx, c.Key)
	}
	return image, err
}

// leaveWord writes that somebody waits, if the claim says so, and the server's time.
// The document's at is then a sample, and the claim's session has moved on. Who wants
// alone what others share leaves a writer's word besides.
func (s *Store) leaveWord(ctx context.Context, c *claim) (reply, error) {
	if c.Reserve() <= 0 {
		return s.word(ctx, c, false)
	}
	guess := s.joins.expected(c.Key, s.base.Clock.Now())
	if guess {
		if image, err := s.word(ctx, c, true); err != nil || image.Found() {
			return image, err
		}
	}
	image, err := s.word(ctx, c, false)
	if seen := &image.record; err != nil || !image.Found() || guess || seen.foreign != "" || seen.mode == store.Exclusive || !seen.held(s.base.Present()) {
		return image, err
	}
	s.joins.saw(c.Key, s.base.Clock.Now(), true)
	if again, err := s.word(ctx, c, true); err != nil || again.Found() {
		return again, err
	}
	return image, nil
}

// word is the command of leaveWord. That of a writer finds only what others share:
// among those who want the key alone it would keep readers out for nothing.
func (s *Store) word(ctx context.Context, c *claim, writer bool) (reply, error) {
	filter, update := ours(c.Key), bson.D{stampAt}
	if c.Want > 0 {
		now := s.base.Now()
		_, until := now.Expiry(c.Want)
		word := bson.D{{Key: fieldWanted, Value: mongobase.Date(until)}}
		if writer {
			_, until = now.Expiry(c.Reserve())
			word = append(word, bson.E{Key: fieldExclusiveWanted, Value: mongobase.Date(until)})
			filter = append(filter, bson.E{Key: fieldMode, Value: bson.D{{Key: "$ne", Value: string(store.Exclusive)}}})
		}
		update = bson.D{{Key: "$max", Value: word}, stampAt}
	}
	image, err := s.modifyIn(ctx, stepWord, s.base.Soft, filter, update, mongobase.After)
	if err != nil {
		return image, err
	}
	c.attempt.Answered(image.Reply, false)
	return image, nil
}

// swap takes over a key whose holders have all run out. It names the revision that
// was seen and each of the holders it drops: a renewal does not change rev, so one
// that was renewed since must not match; and a holder that left must not either,
// hence $lte and never $not $gt.
func (s *Store) swap(ctx context.Context, c *claim, seen record, now mongoclock.Reading) (store.Grant, error) {
	named := []bson.E{{Key: fieldRev, Value: seen.rev}}
	for _, h := range seen.holders {
		named = append(named, runOut(of(h.ID, fieldExpireAt), now.Earliest))
	}
	now = s.base.Now()
	update, term := c.document(now)
	reply, err := s.write(ctx, stepTakeOver, c, ours(c.Key, named...), update, mongobase.After)
	if err != nil {
		return store.Grant{}, mongobase.RefusedOrUnknown(reply.Reply, err)
	}
	if reply.Found() {
		return s.grant(ctx, c, reply, term)
	}
	c.attempt.Answered(reply.Reply, true) // lost to somebody quicker
	image, err := s.find(ctx, c.Key)
	switch {
	case err != nil:
		return store.Grant{}, c.attempt.NotApplied(err)
	case !image.Found():
		return s.refuse(ctx, c, record{key: c.Key})
	case image.record.foreign != "":
		return store.Grant{}, s.settleRefusal(ctx, c, errForeign(image.record))
	}
	if _, landed := image.record.holder(c.ID); landed {
		return s.refuseTwin(ctx, c)
	}
	return s.refuse(ctx, c, image.record)
}

// refuse answers that the key was held, with what is there now. If that is another
// document than the one the word was left in, nobody would wake the claimant: it is
// told that the key was free for a moment, which is so, and asks again.
func (s *Store) refuse(ctx context.Context, c *claim, seen record) (store.Grant, error) {
	now := s.base.Present()
	if c.Want > 0 && !seen.wantedAt(now.Add(c.Want/2)) || // or kept from those who share no more
		c.Want > 0 && c.Mode == store.Exclusive && seen.mode != store.Exclusive && !seen.exclusiveWanted.After(now.Add(c.Reserve()/2)) {
		seen = record{key: c.Key}
	}
	return store.Grant{}, s.settleRefusal(ctx, c, &store.HeldError{Status: seen.status(s.base.Present())})
}

// refuseTwin removes the claim's own twin, which landed after the refusal. Its
// reply, and so its token, is lost.
func (s *Store) refuseTwin(ctx context.Context, c *claim) (store.Grant, error) {
	c.attempt.Twin = true
	return s.refuse(ctx, c, record{key: c.Key})
}

// settleRefusal answers a refusal once it is certain: if the refused command may
// have a twin on its way, that is cleaned up first, in its own session, and inside
// this call. Where that fails the outcome is unknown, and the engine's Undo goes
// on with it.
func (s *Store) settleRefusal(ctx context.Context, c *claim, refusal error) error {
	if !c.attempt.Twin || knob.TwinIgnored {
		return refusal
	}
	removed, err := s.cleanUp(ctx, c.Ref, nil, c.attempt.Rev)
	if err != nil {
		return err
	}
	c.attempt.Twin = false
	if removed.record.wantedAt(s.base.Present()) { // the engine does not learn that it held for a moment
		_ = s.Notify(ctx, store.Notice{Topic: store.TopicLocks, Key: c.Key, Kind: store.KindFreed})
	}
	return refusal
}

var exclusively = inMode(store.Exclusive)

// findMany reads the documents under some keys, each once.
func (s *Store) findMany(ctx context.Context, keys []string) (map[string]record, error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	cursor, err := s.base.Soft.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: keys}}}}, oneBatch(len(keys)))
	if err != nil {
		return nil, err
	}
	defer cursor.Close(ctx)
	found := make(map[string]record, len(keys))
	for cursor.Next(ctx) {
		r := readRecord(cursor.Current)
		found[r.key] = r
	}
	return found, cursor.Err()
}
