package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// A claim is one claim on its way through the commands of its attempt.
type claim struct {
	*mongolease.Claim
	worded bool // it has left its word: the mark that somebody waits
}

// Acquire claims a key with one upsert. It inserts the document, or takes over one whose
// holders have all run out. Any other document refuses it, through the unique index on
// _id; then the store looks at what stands there.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	claim, err := s.claim(ctx, c)
	if err != nil {
		return store.Grant{}, err
	}
	within := claim.Attempt.In(ctx)
	var g store.Grant
	if c.Mode == store.Exclusive {
		g, err = s.steps.Acquire(within, claim.Claim, contender{s, claim})
	} else {
		g, err = s.share(within, claim)
	}
	if err == nil {
		err = s.indexOnce(ctx, claim, g)
	}
	s.steps.Over(claim.Claim, err)
	return g, err
}

// claim opens the attempt. Nothing of the claim is sent yet.
func (s *Store) claim(ctx context.Context, c store.Claim) (*claim, error) {
	if err := knownMode(c.Mode); err != nil {
		return nil, err
	}
	begun, err := s.steps.Begin(ctx, c)
	return &claim{Claim: begun}, err
}

// A contender is a claim with the commands of this store.
type contender struct {
	*Store
	c *claim
}

func (k contender) Claim(ctx context.Context) (reply, mongolease.Tenure, error) {
	now := k.base.Now()
	update, t := k.c.document(now)
	image, err := k.write(ctx, mongolease.Acquire, k.c, ours(k.c.Key, runOut(fieldExpireAt, now.Earliest)), update, mongobase.Upsert)
	return image, t, err
}

// Refused: the upsert met the unique index on _id.
func (contender) Refused(_ reply, err error) bool {
	return mongoerr.ClassOf(err) == mongoerr.DuplicateID
}

// TakeOver takes over a key whose holders have all run out. Its filter names the revision
// that was seen and the end of each holder that it drops. A renewal does not change rev,
// so a holder that was renewed since must not match; nor must one that left, hence $lte
// and never $not $gt.
func (k contender) TakeOver(ctx context.Context, seen record, now mongoclock.Reading) (reply, mongolease.Tenure, error) {
	named := []bson.E{{Key: fieldRev, Value: seen.rev}}
	for _, h := range seen.holders {
		named = append(named, runOut(of(h.ID, fieldExpireAt), now.Earliest))
	}
	update, t := k.c.document(k.base.Now())
	image, err := k.write(ctx, mongolease.TakeOver, k.c, ours(k.c.Key, named...), update, mongobase.After)
	return image, t, err
}

func (k contender) Word(ctx context.Context) (reply, error) {
	if knob.WordAfterLook {
		seen := k.lookFirst(ctx, k.c)
		_, err := k.leaveWord(ctx, k.c)
		return seen, err
	}
	return k.leaveWord(ctx, k.c)
}

func (k contender) Look(ctx context.Context) (reply, error) { return k.find(ctx, k.c.Key) }

func (k contender) CleanUp(ctx context.Context) (wanted bool, err error) {
	removed, err := k.cleanUp(ctx, k.c.Ref, nil, k.c.Attempt.Rev)
	return removed.Record.Wanted(k.base.Present()), err
}

func (contender) Missed() error { return nil }

// Absent answers a claim whose key is free by now: held for a moment, so that the engine
// asks again.
func (k contender) Absent(error) error {
	return &store.HeldError{Status: record{}.Status(k.c.Key, k.base.Present())}
}

// write sends the update of a claim. It reads no more of the after-image than a grant
// needs.
func (s *Store) write(ctx context.Context, what mongolease.Step, c *claim, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (reply, error) {
	return s.modifyReading(ctx, what, s.base.Durable, filter, update, opts, func(image bson.Raw) record { return readGrant(image, c.ID) })
}

// document is the update that makes the claim the key's only holder. It writes the whole
// map of holders.
func (c *claim) document(now mongoclock.Reading) (bson.D, mongolease.Tenure) {
	t := c.Tenure(now)
	t.Rev = bson.NewObjectID()
	return bson.D{
		{Key: "$set", Value: bson.D{
			{Key: fieldMode, Value: string(c.Mode)},
			{Key: fieldLimit, Value: c.Limit},
			{Key: fieldHolders, Value: bson.D{{Key: c.ID, Value: c.holder(t)}}},
			{Key: fieldExpireAt, Value: mongobase.Date(t.Until)},
			{Key: fieldRev, Value: t.Rev},
		}},
		stampAt,
	}, t
}

func (c *claim) holder(t mongolease.Tenure) bson.D {
	return bson.D{
		{Key: fieldOwner, Value: c.Owner},
		{Key: fieldNote, Value: c.Note},
		{Key: fieldSince, Value: mongobase.Date(t.Since)},
		{Key: fieldExpireAt, Value: mongobase.Date(t.Until)},
	}
}

// leaveWord writes that somebody waits, if the claim says so, and the server's time. The
// document's at is then a sample, and the claim's session has moved on. A claim of an
// exclusive lease on a key that others share also leaves a writer's word.
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
	if seen := &image.Record; err != nil || !image.Found() || guess || seen.Foreign() != nil || seen.mode == store.Exclusive || !seen.Held(s.base.Present()) {
		return image, err
	}
	s.joins.saw(c.Key, s.base.Clock.Now(), true)
	if again, err := s.word(ctx, c, true); err != nil || again.Found() {
		return again, err
	}
	return image, nil
}

// word is the command of leaveWord. A writer's word goes only into a document that others
// share: among exclusive holders it would keep readers out for nothing.
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
	image, err := s.modifyIn(ctx, mongolease.Word, s.base.Soft, filter, update, mongobase.After)
	if err != nil {
		return image, err
	}
	c.Attempt.Answered(image.Reply, false)
	return image, nil
}
