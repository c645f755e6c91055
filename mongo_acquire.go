package mongolock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// A mongoClaim is one claim on its way through the commands of its attempt.
type mongoClaim struct {
	store.Claim
	attempt *mongoAttempt
	sent    mongoclock.Moment // when the call began: trust counts from here
	worded  bool              // it has left word
}

// A mongoTerm is what a claim writes: when it begins and ends.
type mongoTerm struct{ since, until time.Time }

var errUndone = errors.New("this claim was undone before it was made")

func joinNotApplied(err error) error { return fmt.Errorf("%w (%w)", err, store.ErrNotApplied) }

// Acquire claims a key with one upsert, which inserts the document or takes over
// one whose holders have all run out. Where there is another it meets the unique
// index on _id, and that refusal is looked into: see contest.
func (m *mongoStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	claim, err := m.claim(ctx, c)
	if err != nil {
		return store.Grant{}, err
	}
	acquire := m.acquire
	if c.Mode != store.Exclusive {
		acquire = m.share
	}
	g, err := acquire(claim.attempt.in(ctx), claim)
	if err == nil {
		err = m.indexOnce(ctx, claim, g)
	}
	m.over(c.ID, claim.attempt, err)
	return g, err
}

// claim opens the attempt. Nothing of the claim is sent yet.
func (m *mongoStore) claim(ctx context.Context, c store.Claim) (*mongoClaim, error) {
	claim := &mongoClaim{Claim: c, sent: m.clock.Now()}
	if err := knownMode(c.Mode); err != nil {
		return nil, err
	}
	if m.memory.wasUndone(c.ID) {
		return nil, joinNotApplied(errUndone)
	}
	if _, err := m.read(ctx); err != nil {
		return nil, joinNotApplied(err)
	}
	var err error
	if claim.attempt, err = m.begin(c.TTL); err != nil {
		return nil, joinNotApplied(err)
	}
	return claim, nil
}

func (m *mongoStore) acquire(ctx context.Context, c *mongoClaim) (store.Grant, error) {
	if c.Held && c.Want > 0 && !knob.WordAfterLook { // a look, which the word alone is: nothing of the claim is sent if it is held
		image, err := m.leaveWord(ctx, c)
		switch {
		case err != nil:
			return store.Grant{}, joinNotApplied(err)
		case image.found:
			return m.judge(ctx, c, image)
		}
	}
	now, _ := m.clock.Read()
	update, term := c.document(now)
	filter := m.ours(c.Key, runOut(fieldExpireAt, now.Earliest))
	reply, err := m.modify(ctx, filter, update, mongoUpsert)
	switch {
	case err == nil:
		return m.grant(ctx, c, reply, term)
	case mongoerr.ClassOf(err) != mongoerr.DuplicateID:
		return store.Grant{}, refusedOrUnknown(reply, err)
	}
	c.attempt.answered(reply, true)
	return m.contest(ctx, c)
}

// document is the update that makes the claim the key's only holder: the whole map.
func (c *mongoClaim) document(now mongoclock.Reading) (bson.D, mongoTerm) {
	var t mongoTerm
	t.since, t.until = now.Expiry(c.TTL)
	return mongoToken(bson.D{
		{Key: "$set", Value: bson.D{
			{Key: fieldMode, Value: string(c.Mode)},
			{Key: fieldLimit, Value: c.Limit},
			{Key: fieldHolders, Value: bson.D{{Key: c.ID, Value: c.holder(t)}}},
			{Key: fieldExpireAt, Value: mongoDate(t.until)},
			{Key: fieldRev, Value: bson.NewObjectID()},
		}},
		stampAt,
	}), t
}

func (c *mongoClaim) holder(t mongoTerm) bson.D {
	return bson.D{
		{Key: fieldOwner, Value: c.Owner},
		{Key: fieldNote, Value: c.Note},
		{Key: fieldSince, Value: mongoDate(t.since)},
		{Key: fieldExpireAt, Value: mongoDate(t.until)},
	}
}

// contest looks at what stands in the way, leaving word if the claim asks for it,
// and takes the key over if no holder is alive any more.
func (m *mongoStore) contest(ctx context.Context, c *mongoClaim) (store.Grant, error) {
	image, err := m.obstacle(ctx, c)
	switch {
	case err != nil:
		return store.Grant{}, c.attempt.notApplied(err)
	case !image.found:
		return m.refuse(ctx, c, mongoRecord{key: c.Key})
	}
	return m.judge(ctx, c, image)
}

// judge takes a key over if no holder is alive in the image of its document.
func (m *mongoStore) judge(ctx context.Context, c *mongoClaim, image mongoReply) (store.Grant, error) {
	if image.record.foreign != "" {
		return store.Grant{}, m.settleRefusal(ctx, c, errForeign(image.record))
	}
	if _, landed := image.record.holder(c.ID); landed {
		return m.refuseTwin(ctx, c)
	}
	now, _ := m.clock.Read()
	if image.record.held(now.Earliest) && !now.Fresh {
		var err error
		if now, err = m.readFresh(ctx); err != nil {
			return store.Grant{}, c.attempt.notApplied(err)
		}
	}
	if image.record.held(now.Earliest) {
		return m.refuse(ctx, c, image.record)
	}
	return m.swap(ctx, c, image.record, now)
}

// obstacle answers the document that refused the claim. To leave word, or where no
// clock but a write's judges (through a mongos), it writes; else it only reads.
func (m *mongoStore) obstacle(ctx context.Context, c *mongoClaim) (mongoReply, error) {
	now, _ := m.clock.Read()
	blind := m.server.Load().router && !now.Fresh
	if c.Want <= 0 && !blind {
		return m.find(ctx, c.Key)
	}
	var seen mongoReply
	if knob.WordAfterLook {
		seen = m.lookFirst(ctx, c)
	}
	image, err := m.leaveWord(ctx, c)
	if knob.WordAfterLook {
		return seen, err
	}
	if err == nil && !image.found { // gone by now, or somebody else's
		return m.find(ctx, c.Key)
	}
	return image, err
}

// leaveWord writes that somebody waits, if the claim says so, and the server's time.
// The document's at is then a sample, and the claim's session has moved on. Who wants
// alone what others share leaves a writer's word besides.
func (m *mongoStore) leaveWord(ctx context.Context, c *mongoClaim) (mongoReply, error) {
	if c.Reserve() <= 0 {
		return m.word(ctx, c, false)
	}
	guess := m.joins.expected(c.Key, m.clock.Now())
	if guess {
		if image, err := m.word(ctx, c, true); err != nil || image.found {
			return image, err
		}
	}
	image, err := m.word(ctx, c, false)
	if seen := &image.record; err != nil || !image.found || guess || seen.foreign != "" || seen.mode == store.Exclusive || !seen.held(m.present()) {
		return image, err
	}
	m.joins.saw(c.Key, m.clock.Now(), true)
	if again, err := m.word(ctx, c, true); err != nil || again.found {
		return again, err
	}
	return image, nil
}

// word is the command of leaveWord. That of a writer finds only what others share:
// among those who want the key alone it would keep readers out for nothing.
func (m *mongoStore) word(ctx context.Context, c *mongoClaim, writer bool) (mongoReply, error) {
	filter, update := m.ours(c.Key), bson.D{stampAt}
	if c.Want > 0 {
		now, _ := m.clock.Read()
		_, until := now.Expiry(c.Want)
		word := bson.D{{Key: fieldWanted, Value: mongoDate(until)}}
		if writer {
			_, until = now.Expiry(c.Reserve())
			word = append(word, bson.E{Key: fieldExclusiveWanted, Value: mongoDate(until)})
			filter = append(filter, bson.E{Key: fieldMode, Value: bson.D{{Key: "$ne", Value: string(store.Exclusive)}}})
		}
		update = bson.D{{Key: "$max", Value: word}, stampAt}
	}
	image, err := m.modifyIn(ctx, m.soft, filter, update, mongoAfter)
	if err != nil {
		return image, err
	}
	c.attempt.answered(image, false)
	m.timed(image)
	return image, nil
}

// swap takes over a key whose holders have all run out. It names the revision that
// was seen and each of the holders it drops: a renewal does not change rev, so one
// that was renewed since must not match; and a holder that left must not either,
// hence $lte and never $not $gt.
func (m *mongoStore) swap(ctx context.Context, c *mongoClaim, seen mongoRecord, now mongoclock.Reading) (store.Grant, error) {
	var named []bson.E
	if !m.broken.swapWithoutRev {
		named = append(named, bson.E{Key: fieldRev, Value: seen.rev})
	}
	if !m.broken.dropTheLiving {
		for _, h := range seen.holders {
			named = append(named, runOut(of(h.ID, fieldExpireAt), now.Earliest))
		}
	}
	now, _ = m.clock.Read()
	update, term := c.document(now)
	reply, err := m.modify(ctx, m.ours(c.Key, named...), update, mongoAfter)
	if err != nil {
		return store.Grant{}, refusedOrUnknown(reply, err)
	}
	if reply.found {
		return m.grant(ctx, c, reply, term)
	}
	c.attempt.answered(reply, true) // lost to somebody quicker
	image, err := m.find(ctx, c.Key)
	switch {
	case err != nil:
		return store.Grant{}, c.attempt.notApplied(err)
	case !image.found:
		return m.refuse(ctx, c, mongoRecord{key: c.Key})
	case image.record.foreign != "":
		return store.Grant{}, m.settleRefusal(ctx, c, errForeign(image.record))
	}
	if _, landed := image.record.holder(c.ID); landed {
		return m.refuseTwin(ctx, c)
	}
	return m.refuse(ctx, c, image.record)
}

// refuse answers that the key was held, with what is there now. If that is another
// document than the one the word was left in, nobody would wake the claimant: it is
// told that the key was free for a moment, which is so, and asks again.
func (m *mongoStore) refuse(ctx context.Context, c *mongoClaim, seen mongoRecord) (store.Grant, error) {
	now := m.present()
	if c.Want > 0 && !seen.wantedAt(now.Add(c.Want/2)) || // or kept from those who share no more
		c.Want > 0 && c.Mode == store.Exclusive && seen.mode != store.Exclusive && !seen.exclusiveWanted.After(now.Add(c.Reserve()/2)) {
		seen = mongoRecord{key: c.Key}
	}
	return store.Grant{}, m.settleRefusal(ctx, c, &store.HeldError{Status: seen.status(m.present())})
}

// refuseTwin removes the claim's own twin, which landed after the refusal. Its
// reply, and so its token, is lost.
func (m *mongoStore) refuseTwin(ctx context.Context, c *mongoClaim) (store.Grant, error) {
	c.attempt.twin = true
	return m.refuse(ctx, c, mongoRecord{key: c.Key})
}

// settleRefusal answers a refusal once it is certain: if the refused command may
// have a twin on its way, that is cleaned up first, in its own session, and inside
// this call. Where that fails the outcome is unknown, and the engine's Undo goes
// on with it.
func (m *mongoStore) settleRefusal(ctx context.Context, c *mongoClaim, refusal error) error {
	if !c.attempt.twin || knob.TwinIgnored {
		return refusal
	}
	removed, err := m.cleanUp(ctx, c.Ref, nil, c.attempt.rev)
	if err != nil {
		return err
	}
	c.attempt.twin = false
	if removed.record.wantedAt(m.present()) { // the engine does not learn that it held for a moment
		_ = m.Notify(ctx, store.Notice{Topic: store.TopicLocks, Key: c.Key, Kind: store.KindFreed})
	}
	return refusal
}

// refusedOrUnknown marks the error of the claim's own command. A refusal that took
// long may be that of a retry, and is then no answer to the first send.
func refusedOrUnknown(r mongoReply, err error) error {
	if r.took > mongoSlow && mongoerr.ClassOf(err) != mongoerr.NotSent {
		return err
	}
	return mongoerr.Mark(err)
}

// present is the server's time as far as it surely has come.
func (m *mongoStore) present() time.Time {
	now, known := m.clock.Read()
	switch {
	case !known:
		return time.Time{}
	case now.Earliest.IsZero(): // through a mongos, before any write: for people, not for judging
		return mongoclock.Floor(now.Latest)
	}
	return now.Earliest
}

var mongoExclusive = inMode(store.Exclusive)

// find reads one document, whoever's it is.
func (m *mongoStore) find(ctx context.Context, key string) (mongoReply, error) {
	return m.reply(func() (bson.Raw, error) { return m.soft.FindOne(ctx, bson.D{{Key: "_id", Value: key}}).Raw() }, readRecord)
}

// findMany reads the documents under some keys, each once.
func (m *mongoStore) findMany(ctx context.Context, keys []string) (map[string]mongoRecord, error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	cursor, err := m.soft.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: keys}}}}, mongoBatch(len(keys)))
	if err != nil {
		return nil, err
	}
	defer cursor.Close(ctx)
	found := make(map[string]mongoRecord, len(keys))
	for cursor.Next(ctx) {
		r := readRecord(cursor.Current)
		found[r.key] = r
	}
	return found, cursor.Err()
}
