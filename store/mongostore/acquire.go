package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// A claim is one claim on its way through the commands of its attempt.
type claim struct {
	*mongolease.Claim
	worded bool // it has left its word: the mark which says that a process waits
	pruned bool // it has tried to remove old sessions from the document; once is enough
}

// Acquire claims a key with one upsert, which inserts the document. If the key has a document
// already, the unique index on _id refuses the upsert. Then the store reads that document, and
// takes the key over if its holders are over.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := knownMode(c.Mode); err != nil {
		return store.Grant{}, err
	}
	if err := s.refuseCappedOnce(ctx); err != nil {
		return store.Grant{}, mongoerr.NotApplied(err)
	}
	return s.steps.Try(ctx, c, func(within context.Context, begun *mongolease.Claim) (g store.Grant, err error) {
		claim := &claim{Claim: begun}
		if c.Mode == store.Exclusive {
			g, err = s.steps.Acquire(within, begun, contender{s, claim})
		} else {
			g, err = s.share(within, claim)
		}
		if err == nil {
			s.indexOnce(ctx, claim, g)
		}
		return g, err
	})
}

// A contender is a claim with the commands of this store.
type contender struct {
	*Store
	c *claim
}

func (k contender) Claim(ctx context.Context) (reply, mongolease.Tenure, error) {
	t := k.tenure(k.c)
	image, err := k.insert(ctx, k.c, k.c.document(t), t)
	return image, t, err
}

// insert sends the upsert of a claim. Its filter names a revision that only the document which
// it makes can have: it finds nothing but its own twin.
func (s *Store) insert(ctx context.Context, c *claim, update bson.D, t mongolease.Tenure) (reply, error) {
	return s.write(ctx, mongolease.Acquire, c, ours(c.Key, bson.E{Key: fieldRev, Value: t.Rev}), update, mongobase.Upsert)
}

// Refused: the upsert met the unique index on _id.
func (contender) Refused(_ reply, err error) bool {
	return mongoerr.ClassOf(err) == mongoerr.DuplicateID
}

// TakeOver takes over a key whose holders are over. Its filter names the revision that was seen
// and the beat of each holder that it drops. A renewal does not change rev, so the filter must
// not match a holder that was renewed since, left, or came under a session.
func (k contender) TakeOver(ctx context.Context, seen record) (reply, mongolease.Tenure, error) {
	named := []bson.E{{Key: fieldRev, Value: seen.rev}}
	for _, h := range seen.Holders {
		named = append(named, holder(h.ID).Still(h))
	}
	named = append(named, seen.under()...)
	t := k.tenure(k.c)
	update := withRev(k.c.document(t), t.Rev)
	if seen.session != "" {
		update = bson.D(mongobase.Change(update).Unset(fieldSession))
	}
	image, err := k.write(ctx, mongolease.TakeOver, k.c, ours(k.c.Key, named...), update, mongobase.After)
	return image, t, err
}

func (k contender) Word(ctx context.Context) (reply, error) {
	return k.leaveWord(ctx, k.c)
}

func (k contender) Look(ctx context.Context) (reply, error) { return k.find(ctx, k.c.Key) }

func (k contender) CleanUp(ctx context.Context) (wanted bool, err error) {
	removed, err := k.cleanUp(ctx, k.c.Ref, nil, k.c.Attempt.Rev)
	return removed.Record.Wanted(k.base.Present()), err
}

func (contender) Missed() error { return nil }

// Absent answers a claim whose key has become free: "held", with a status that makes the engine
// ask again at once.
func (k contender) Absent(error) error {
	return &store.HeldError{Status: record{}.Status(k.c.Key, k.base.Present())}
}

// write sends the update of a claim. It reads no more of the after-image than a grant
// needs.
func (s *Store) write(ctx context.Context, what mongolease.Step, c *claim, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (reply, error) {
	return s.steps.SendReading(ctx, what, s.base.Durable, filter, update, opts, func(image bson.Raw) record { return readGrant(image, c.ID) })
}

// document returns the update that makes the claim the key's only holder. It writes the whole
// map of holders. The caller adds the revision.
func (c *claim) document(t mongolease.Tenure) bson.D {
	return bson.D{
		{Key: "$set", Value: bson.D{
			{Key: fieldMode, Value: string(c.Mode)},
			{Key: fieldLimit, Value: c.Limit},
			{Key: fieldHolders, Value: bson.D{{Key: c.ID, Value: c.Holder(t)}}},
			{Key: fieldExpireAt, Value: mongobase.Date(t.Until)},
		}},
		stampAt,
	}
}

// tenure returns what a claim that is sent now writes.
func (s *Store) tenure(c *claim) mongolease.Tenure {
	t := c.Tenure()
	t.Rev = newRev()
	return t
}

// withRev returns an update that also writes the revision.
func withRev(update bson.D, rev int64) bson.D {
	return bson.D(mongobase.Change(update).Set(fieldRev, rev))
}

// leaveWord writes into the document that a process waits, if the claim says so, and the
// server's time. The document's at is then a sample, and the claim's session has moved on. A
// claim of an exclusive lease on a key that others share also leaves a writer's word.
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
	if seen := &image.Record; err != nil || !image.Found() || guess || seen.Foreign() != nil || seen.mode == store.Exclusive || len(seen.Holders) == 0 {
		return image, err
	}
	s.joins.saw(c.Key, s.base.Clock.Now(), true)
	if again, err := s.word(ctx, c, true); err != nil || again.Found() {
		return again, err
	}
	return image, nil
}

// word sends the command of leaveWord. A writer's word goes only into a document that others
// share: among exclusive holders it would keep readers out for no purpose.
func (s *Store) word(ctx context.Context, c *claim, writer bool) (reply, error) {
	if !writer {
		return s.steps.LeaveWord(ctx, c.Claim, ours(c.Key))
	}
	_, until := s.base.Now().Expiry(c.Reserve())
	return s.steps.LeaveWord(ctx, c.Claim,
		ours(c.Key, bson.E{Key: fieldMode, Value: bson.D{{Key: "$ne", Value: string(store.Exclusive)}}}),
		bson.E{Key: fieldExclusiveWanted, Value: mongobase.Date(until)})
}
