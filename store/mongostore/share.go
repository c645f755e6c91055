package mongostore

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

const (
	// fullAt is how large a document may grow: half of what the server takes.
	fullAt = 8 << 20

	// joinRaces is how many races a claim may lose before it is answered "held", with a status
	// that gives no reason to wait. The engine then asks again.
	joinRaces = 20
)

// share acquires a key in shared or permits mode. If the key is free, the command is the same
// upsert; otherwise the claim joins, with a compare-and-swap on the document that a find
// showed. Whether the key is held is a guess, by the claim's hint or by what was seen lately.
//
// The joins of one process on one key go one at a time: of several at once all but one would
// lose, and read again.
func (s *Store) share(ctx context.Context, c *claim) (store.Grant, error) {
	leave, err := s.joins.enter(ctx, c.Key)
	if err != nil {
		return store.Grant{}, mongoerr.NotApplied(err)
	}
	defer leave()
	var image reply
	if c.Held || s.joins.expected(c.Key, s.base.Clock.Now()) {
		if image, err = s.find(ctx, c.Key); err != nil {
			return store.Grant{}, c.Attempt.NotApplied(err)
		}
	}
	for range joinRaces {
		if !image.Found() {
			term := s.tenure(c)
			reply, err := s.insert(ctx, c, c.document(term), term)
			switch {
			case err == nil:
				return s.steps.Grant(ctx, c.Claim, reply, term)
			case mongoerr.ClassOf(err) != mongoerr.DuplicateID:
				return store.Grant{}, mongobase.RefusedOrUnknown(reply.Reply, err)
			}
			c.Attempt.Answered(reply.Reply, true)
		} else {
			g, done, err := s.join(ctx, c, image)
			if done || err != nil {
				return g, err
			}
		}
		if image, err = s.find(ctx, c.Key); err != nil {
			return store.Grant{}, c.Attempt.NotApplied(err)
		}
	}
	return store.Grant{}, s.steps.Refuse(ctx, c.Claim, contender{s, c}, image.Record)
}

// noWriter adds to condition what that no writer is waiting. In a document of exclusive mode
// the word counts for nothing, because its writer was served.
func noWriter(what bson.E, now mongoclock.Reading) []bson.E {
	none := bson.D{mongolease.NotAfter(fieldExclusiveWanted, now.Earliest)}
	return []bson.E{what, {Key: "$or", Value: bson.A{none, bson.D{exclusively}}}}
}

// alone is document for a claim in shared or permits mode that finds no live holder. It removes
// a writer's word that was left under an exclusive holder.
func (c *claim) alone(t mongolease.Tenure) bson.D {
	return append(c.document(t), bson.E{Key: "$unset", Value: bson.D{{Key: fieldExclusiveWanted, Value: ""}}})
}

// join makes the claim a holder beside those in the image, or refuses it because of what the
// image shows. done is false if the document has changed since.
func (s *Store) join(ctx context.Context, c *claim, image reply) (g store.Grant, done bool, err error) {
	now, over, err := s.judging(ctx, c, &image)
	if err != nil {
		return g, true, err
	}
	seen := image.Record
	live := len(seen.Holders) - len(over)
	s.joins.saw(c.Key, s.base.Clock.Now(), live > 0 && seen.mode != store.Exclusive)
	held, refusal := unwelcome(c, seen, live, now)
	switch {
	case held && c.Want > 0 && !c.worded:
		return s.joinAfterWord(ctx, c)
	case held:
		return g, true, s.steps.Refuse(ctx, c.Claim, contender{s, c}, seen)
	case refusal != nil:
		return g, true, s.steps.Settle(ctx, c.Claim, contender{s, c}, refusal)
	}
	if _, landed := seen.Holder(c.ID); landed {
		return g, true, s.steps.RefuseTwin(ctx, c.Claim, contender{s, c})
	}
	c.Attempt.Rev = seen.rev
	term := s.tenure(c)
	filter, update := joining(c, seen, over, now, term)
	reply, err := s.write(ctx, mongolease.Join, c, filter, update, mongobase.After)
	switch {
	case err != nil:
		return g, true, mongobase.RefusedOrUnknown(reply.Reply, err)
	case reply.Found():
		s.joins.saw(c.Key, s.base.Clock.Now(), true)
		g, err = s.steps.Grant(ctx, c.Claim, reply, term)
		return g, true, err
	}
	c.Attempt.Answered(reply.Reply, true) // lost to a quicker claim
	s.joins.lost.Add(1)
	return g, false, nil
}

// joinAfterWord leaves word, and tries again with the image that this showed: the key may have
// been freed since it was found held, and then no release would see the word.
func (s *Store) joinAfterWord(ctx context.Context, c *claim) (g store.Grant, done bool, err error) {
	c.worded = true
	image, err := s.leaveWord(ctx, c)
	switch {
	case err != nil:
		return g, true, c.Attempt.NotApplied(err)
	case !image.Found():
		return g, false, nil
	}
	return s.join(ctx, c, image)
}

// judging tells which holders in the image are over, and by what time a writer's word is
// judged. If the sample at hand is old, a word that is over could seem valid, so a new sample
// is drawn. Through a mongos only a write tells the time, and the image becomes that of the
// write.
func (s *Store) judging(ctx context.Context, c *claim, seen *reply) (now mongoclock.Reading, over map[string]bool, err error) {
	now = s.base.Now()
	if !now.Fresh && (s.base.Kind().Router || seen.Record.exclusiveWanted.After(now.Earliest)) {
		if now, err = s.sample(ctx, c, seen); err != nil {
			return now, nil, c.Attempt.NotApplied(err)
		}
	}
	if over, err = s.steps.Judge(ctx, c.Claim, *seen); err != nil {
		return now, nil, c.Attempt.NotApplied(err)
	}
	return s.base.Now(), over, nil
}

func (s *Store) sample(ctx context.Context, c *claim, seen *reply) (mongoclock.Reading, error) {
	if !s.base.Kind().Router {
		return s.base.ReadFresh(ctx)
	}
	image, err := s.leaveWord(ctx, c)
	if err == nil && image.Found() {
		*seen = image
	}
	return s.base.Now(), err
}

// unwelcome says why the claim may not join: others hold the key, or another verdict.
func unwelcome(c *claim, seen record, live int, now mongoclock.Reading) (held bool, refusal error) {
	switch {
	case seen.Stranger != "":
		return false, seen.Foreign()
	case live > 0 && seen.mode != store.Exclusive && (seen.mode != c.Mode || seen.limit != c.Limit):
		return false, &store.MismatchError{Key: c.Key, Live: seen.mode, Limit: seen.limit, Claim: c.Claim.Claim}
	case seen.reserved(now.Earliest),
		live > 0 && seen.mode == store.Exclusive,
		live > 0 && seen.mode == store.Permits && live >= seen.limit:
		return true, nil
	case seen.size+len(c.Owner)+len(c.Note) > fullAt:
		return false, fmt.Errorf("%w: %q has %d", store.ErrTooLarge, c.Key, len(seen.Holders))
	}
	return false, nil
}

// joining returns the compare-and-swap of a join. Its filter names the revision that was seen,
// which changes whenever a holder is added or dropped. It also names the beat of each holder
// that it drops, because renewals do not change the revision. For the same reason it writes
// single fields if other holders stay: the whole map would put their old ends back.
func joining(c *claim, seen record, over map[string]bool, now mongoclock.Reading, t mongolease.Tenure) (filter, update bson.D) {
	filter = ours(c.Key, noWriter(bson.E{Key: fieldRev, Value: seen.rev}, now)...)
	dropped := bson.D{}
	for _, h := range seen.Holders {
		if !over[h.ID] {
			continue
		}
		filter = append(filter, holder(h.ID).Still(h))
		dropped = append(dropped, bson.E{Key: fieldHolders + "." + h.ID, Value: ""})
	}
	if len(over) == len(seen.Holders) {
		filter = append(filter, seen.under()...)
		update = withRev(c.alone(t), t.Rev)
		if seen.session != "" {
			update = bson.D(mongobase.Change(update).Unset(fieldSession))
		}
		if len(seen.sessions) > 0 {
			update = bson.D(mongobase.Change(update).Unset(fieldSessions))
		}
		return filter, update
	}
	set := bson.D{{Key: fieldHolders + "." + c.ID, Value: c.Holder(t)}, {Key: fieldRev, Value: t.Rev}}
	update = bson.D{
		{Key: "$set", Value: set},
		{Key: "$max", Value: bson.D{{Key: fieldExpireAt, Value: mongobase.Date(t.Until)}}},
		stampAt,
	}
	if len(dropped) > 0 {
		update = append(update, bson.E{Key: "$unset", Value: dropped})
	}
	return c.prune(seen, over, filter, update)
}

// reserved reports whether a waiting writer's word keeps new sharers out.
func (r record) reserved(earliest time.Time) bool {
	return r.mode != store.Exclusive && r.exclusiveWanted.After(earliest)
}
