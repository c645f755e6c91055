package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

const (
	// fullAt is how large a document may grow: half of what the server takes.
	fullAt = 8 << 20

	// joinRaces is how many races a claim may lose before it is answered that the
	// key is held, by a status that says it is welcome. The engine asks again.
	joinRaces = 20
)

// share is acquire for who shares the key. Where nobody is in, it is the same upsert;
// else the claim joins, by a compare-and-swap on what a find showed. Whether somebody
// is in it guesses: by the claim's hint, or as it was so lately.
//
// The joins of one process on one key go one at a time: of several at once all but
// one would lose, and read again.
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
			reply, term, err := s.insert(ctx, c)
			switch {
			case err == nil:
				return s.steps.Grant(ctx, c.Claim, reply, term)
			case mongoerr.ClassOf(err) != mongoerr.DuplicateID:
				return store.Grant{}, mongobase.RefusedOrUnknown(reply.Reply, err)
			}
			c.Attempt.Answered(reply.Reply, true)
		} else {
			g, done, err := s.join(ctx, c, image.Record)
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

// insert is row 1 of the protocol, for who shares.
func (s *Store) insert(ctx context.Context, c *claim) (reply, mongolease.Tenure, error) {
	now := s.base.Now()
	update, term := c.alone(now)
	filter := ours(c.Key, noWriter(runOut(fieldExpireAt, now.Earliest), now)...)
	reply, err := s.write(ctx, mongolease.Acquire, c, filter, update, mongobase.Upsert)
	return reply, term, err
}

// noWriter is what, and that no writer waits. In a document that somebody has alone,
// or had, the word is that of one who was served.
func noWriter(what bson.E, now mongoclock.Reading) []bson.E {
	none := bson.D{{Key: fieldExclusiveWanted, Value: bson.D{
		{Key: "$not", Value: bson.D{{Key: "$gt", Value: mongobase.Date(now.Earliest)}}},
	}}}
	return []bson.E{what, {Key: "$or", Value: bson.A{none, bson.D{exclusively}}}}
}

// alone is document, for who shares and finds nobody in: a word that was left for who
// had the key alone goes.
func (c *claim) alone(now mongoclock.Reading) (bson.D, mongolease.Tenure) {
	update, term := c.document(now)
	return append(update, bson.E{Key: "$unset", Value: bson.D{{Key: fieldExclusiveWanted, Value: ""}}}), term
}

// join makes the claim a holder beside those in the image, or is refused for what
// the image shows. Not done: the document is another by now.
func (s *Store) join(ctx context.Context, c *claim, seen record) (g store.Grant, done bool, err error) {
	now, err := s.judging(ctx, c, &seen)
	if err != nil {
		return g, true, err
	}
	live := seen.live(now.Earliest)
	s.joins.saw(c.Key, s.base.Clock.Now(), live > 0 && seen.mode != store.Exclusive)
	if refusal := unwelcome(c, seen, live, now); refusal != nil {
		held := errors.Is(refusal, errUnwelcome)
		if held && c.Want > 0 && !c.worded {
			return s.joinAfterWord(ctx, c)
		}
		if held {
			return g, true, s.steps.Refuse(ctx, c.Claim, contender{s, c}, seen)
		}
		return g, true, s.steps.Settle(ctx, c.Claim, contender{s, c}, refusal)
	}
	if _, landed := seen.Holder(c.ID); landed {
		return g, true, s.steps.RefuseTwin(ctx, c.Claim, contender{s, c})
	}
	c.Attempt.Rev = seen.rev
	filter, update, term := joining(c, seen, live, now)
	reply, err := s.write(ctx, mongolease.Join, c, filter, update, mongobase.After)
	switch {
	case err != nil:
		return g, true, mongobase.RefusedOrUnknown(reply.Reply, err)
	case reply.Found():
		s.joins.saw(c.Key, s.base.Clock.Now(), true)
		g, err = s.steps.Grant(ctx, c.Claim, reply, term)
		return g, true, err
	}
	c.Attempt.Answered(reply.Reply, true) // lost to somebody quicker
	s.joins.lost.Add(1)
	return g, false, nil
}

// joinAfterWord leaves word and looks at what that showed: the key may have been
// freed since it was found held, and then nobody would answer the word.
func (s *Store) joinAfterWord(ctx context.Context, c *claim) (g store.Grant, done bool, err error) {
	c.worded = true
	image, err := s.leaveWord(ctx, c)
	switch {
	case err != nil:
		return g, true, c.Attempt.NotApplied(err)
	case !image.Found():
		return g, false, nil
	}
	return s.join(ctx, c, image.Record)
}

// judging is the server's time to judge the image by: by an old sample nobody may be
// taken for live who has run out. Through a mongos only a write tells it, and the
// image is then that of the write.
func (s *Store) judging(ctx context.Context, c *claim, seen *record) (mongoclock.Reading, error) {
	now := s.base.Now()
	if now.Fresh || !seen.Held(now.Earliest) && !seen.exclusiveWanted.After(now.Earliest) {
		return now, nil
	}
	if !s.base.Kind().Router {
		now, err := s.base.ReadFresh(ctx)
		if err != nil {
			err = c.Attempt.NotApplied(err)
		}
		return now, err
	}
	image, err := s.leaveWord(ctx, c)
	if err != nil {
		return now, c.Attempt.NotApplied(err)
	}
	if image.Found() {
		*seen = image.Record
	}
	now = s.base.Now()
	return now, nil
}

var errUnwelcome = fmt.Errorf("%w", store.ErrHeld) // told from a verdict by identity

// unwelcome is why the claim may not join: nil if it may, errUnwelcome if it has to
// wait.
func unwelcome(c *claim, seen record, live int, now mongoclock.Reading) error {
	switch {
	case seen.foreign != "":
		return seen.Foreign()
	case live > 0 && seen.mode != store.Exclusive && (seen.mode != c.Mode || seen.limit != c.Limit):
		return &store.MismatchError{Key: c.Key, Live: seen.mode, Limit: seen.limit, Claim: c.Claim.Claim}
	case seen.reserved(now.Earliest),
		live > 0 && seen.mode == store.Exclusive,
		live > 0 && seen.mode == store.Permits && live >= seen.limit:
		return errUnwelcome
	case seen.size+len(c.Owner)+len(c.Note) > fullAt:
		return fmt.Errorf("%w: %q has %d", store.ErrTooLarge, c.Key, len(seen.holders))
	}
	return nil
}

// joining is the compare-and-swap that lets the claim in. It names the revision that
// was seen, which any holder that came or was dropped since has changed, and the end
// of each that it drops: renewals do not change the revision. For the same reason it
// writes field by field where others stay: in the whole map stood ends of theirs that
// are over.
func joining(c *claim, seen record, live int, now mongoclock.Reading) (filter, update bson.D, term mongolease.Tenure) {
	filter = ours(c.Key, noWriter(bson.E{Key: fieldRev, Value: seen.rev}, now)...)
	dropped := bson.D{}
	for _, h := range seen.holders {
		if h.ExpireAt.After(now.Earliest) {
			continue
		}
		filter = append(filter, runOut(of(h.ID, fieldExpireAt), now.Earliest))
		dropped = append(dropped, bson.E{Key: fieldHolders + "." + h.ID, Value: ""})
	}
	if live == 0 {
		update, term = c.alone(now)
		return filter, update, term
	}
	term = c.Tenure(now)
	set := bson.D{{Key: fieldHolders + "." + c.ID, Value: c.holder(term)}, newRev()}
	if knob.JoinWritesMap {
		set[0], dropped = bson.E{Key: fieldHolders, Value: seen.mapWith(c, term, now.Earliest)}, nil
	}
	update = bson.D{
		{Key: "$set", Value: set},
		{Key: "$max", Value: bson.D{{Key: fieldExpireAt, Value: mongobase.Date(term.Until)}}},
		stampAt,
	}
	if len(dropped) > 0 {
		update = append(update, bson.E{Key: "$unset", Value: dropped})
	}
	return filter, update, term
}

// live counts who has not surely run out.
func (r record) live(earliest time.Time) (n int) {
	for _, h := range r.holders {
		if h.ExpireAt.After(earliest) {
			n++
		}
	}
	return n
}

// reserved reports whether a waiting writer's word keeps new sharers out.
func (r record) reserved(earliest time.Time) bool {
	return !knob.JoinIgnoresWord && r.mode != store.Exclusive && r.exclusiveWanted.After(earliest)
}
