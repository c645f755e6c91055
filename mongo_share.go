package mongolock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

const (
	// mongoFull is how large a document may grow: half of what the server takes.
	mongoFull = 8 << 20

	// mongoJoins is how many races a claim may lose before it is answered that the
	// key is held, by a status that says it is welcome. The engine asks again.
	mongoJoins = 20
)

// share is acquire for who shares the key. Where nobody is in, it is the same upsert;
// else the claim joins, by a compare-and-swap on what a find showed. Whether somebody
// is in it guesses: by the claim's hint, or as it was so lately.
//
// The joins of one process on one key go one at a time: of several at once all but
// one would lose, and read again.
func (m *mongoStore) share(ctx context.Context, c *mongoClaim) (store.Grant, error) {
	leave, err := m.joins.enter(ctx, c.Key)
	if err != nil {
		return store.Grant{}, mongoerr.NotApplied(err)
	}
	defer leave()
	var image mongoReply
	if c.Held || m.joins.expected(c.Key, m.base.Clock.Now()) {
		if image, err = m.find(ctx, c.Key); err != nil {
			return store.Grant{}, c.attempt.NotApplied(err)
		}
	}
	for range mongoJoins {
		if !image.Found() {
			reply, term, err := m.insert(ctx, c)
			switch {
			case err == nil:
				return m.grant(ctx, c, reply, term)
			case mongoerr.ClassOf(err) != mongoerr.DuplicateID:
				return store.Grant{}, mongobase.RefusedOrUnknown(reply.Reply, err)
			}
			c.attempt.Answered(reply.Reply, true)
		} else {
			g, done, err := m.join(ctx, c, image.record)
			if done || err != nil {
				return g, err
			}
		}
		if image, err = m.find(ctx, c.Key); err != nil {
			return store.Grant{}, c.attempt.NotApplied(err)
		}
	}
	return m.refuse(ctx, c, image.record)
}

// insert is row 1 of the protocol, for who shares.
func (m *mongoStore) insert(ctx context.Context, c *mongoClaim) (mongoReply, mongoTerm, error) {
	now := m.base.Now()
	update, term := c.alone(now)
	filter := m.ours(c.Key, m.noWriter(runOut(fieldExpireAt, now.Earliest), now)...)
	reply, err := m.write(ctx, c, filter, update, mongobase.Upsert)
	return reply, term, err
}

// noWriter is what, and that no writer waits. In a document that somebody has alone,
// or had, the word is that of one who was served.
func (m *mongoStore) noWriter(what bson.E, now mongoclock.Reading) []bson.E {
	if m.broken.joinIgnoresWord {
		return []bson.E{what}
	}
	none := bson.D{{Key: fieldExclusiveWanted, Value: bson.D{
		{Key: "$not", Value: bson.D{{Key: "$gt", Value: mongobase.Date(now.Earliest)}}},
	}}}
	return []bson.E{what, {Key: "$or", Value: bson.A{none, bson.D{mongoExclusive}}}}
}

// alone is document, for who shares and finds nobody in: a word that was left for who
// had the key alone goes.
func (c *mongoClaim) alone(now mongoclock.Reading) (bson.D, mongoTerm) {
	update, term := c.document(now)
	return append(update, bson.E{Key: "$unset", Value: bson.D{{Key: fieldExclusiveWanted, Value: ""}}}), term
}

// join makes the claim a holder beside those in the image, or is refused for what
// the image shows. Not done: the document is another by now.
func (m *mongoStore) join(ctx context.Context, c *mongoClaim, seen mongoRecord) (g store.Grant, done bool, err error) {
	now, err := m.judging(ctx, c, &seen)
	if err != nil {
		return g, true, err
	}
	live := seen.live(now.Earliest)
	m.joins.saw(c.Key, m.base.Clock.Now(), live > 0 && seen.mode != store.Exclusive)
	if refusal := m.unwelcome(c, seen, live, now); refusal != nil {
		held := errors.Is(refusal, errUnwelcome)
		if held && c.Want > 0 && !c.worded {
			return m.joinAfterWord(ctx, c)
		}
		if held {
			g, err = m.refuse(ctx, c, seen)
			return g, true, err
		}
		return g, true, m.settleRefusal(ctx, c, refusal)
	}
	if _, landed := seen.holder(c.ID); landed {
		g, err = m.refuseTwin(ctx, c)
		return g, true, err
	}
	c.attempt.Rev = seen.rev
	filter, update, term := m.joining(c, seen, live, now)
	reply, err := m.write(ctx, c, filter, update, mongobase.After)
	switch {
	case err != nil:
		return g, true, mongobase.RefusedOrUnknown(reply.Reply, err)
	case reply.Found():
		m.joins.saw(c.Key, m.base.Clock.Now(), true)
		g, err = m.grant(ctx, c, reply, term)
		return g, true, err
	}
	c.attempt.Answered(reply.Reply, true) // lost to somebody quicker
	m.joins.lost.Add(1)
	return g, false, nil
}

// joinAfterWord leaves word and looks at what that showed: the key may have been
// freed since it was found held, and then nobody would answer the word.
func (m *mongoStore) joinAfterWord(ctx context.Context, c *mongoClaim) (g store.Grant, done bool, err error) {
	c.worded = true
	image, err := m.leaveWord(ctx, c)
	switch {
	case err != nil:
		return g, true, c.attempt.NotApplied(err)
	case !image.Found():
		return g, false, nil
	}
	return m.join(ctx, c, image.record)
}

// judging is the server's time to judge the image by: by an old sample nobody may be
// taken for live who has run out. Through a mongos only a write tells it, and the
// image is then that of the write.
func (m *mongoStore) judging(ctx context.Context, c *mongoClaim, seen *mongoRecord) (mongoclock.Reading, error) {
	now := m.base.Now()
	if now.Fresh || !seen.held(now.Earliest) && !seen.exclusiveWanted.After(now.Earliest) {
		return now, nil
	}
	if !m.base.Kind().Router {
		now, err := m.base.ReadFresh(ctx)
		if err != nil {
			err = c.attempt.NotApplied(err)
		}
		return now, err
	}
	image, err := m.leaveWord(ctx, c)
	if err != nil {
		return now, c.attempt.NotApplied(err)
	}
	if image.Found() {
		*seen = image.record
	}
	now = m.base.Now()
	return now, nil
}

var errUnwelcome = fmt.Errorf("%w", store.ErrHeld) // told from a verdict by identity

// unwelcome is why the claim may not join: nil if it may, errUnwelcome if it has to
// wait.
func (m *mongoStore) unwelcome(c *mongoClaim, seen mongoRecord, live int, now mongoclock.Reading) error {
	switch {
	case seen.foreign != "":
		return errForeign(seen)
	case live > 0 && seen.mode != store.Exclusive && (seen.mode != c.Mode || seen.limit != c.Limit):
		return &store.MismatchError{Key: c.Key, Live: seen.mode, Limit: seen.limit, Claim: c.Claim}
	case !m.broken.joinIgnoresWord && seen.mode != store.Exclusive && seen.exclusiveWanted.After(now.Earliest),
		live > 0 && seen.mode == store.Exclusive,
		live > 0 && seen.mode == store.Permits && live >= seen.limit:
		return errUnwelcome
	case seen.size+len(c.Owner)+len(c.Note) > mongoFull:
		return fmt.Errorf("%w: %q has %d", store.ErrTooLarge, c.Key, len(seen.holders))
	}
	return nil
}

// joining is the compare-and-swap that lets the claim in. It names the revision that
// was seen, which any holder that came or was dropped since has changed, and the end
// of each that it drops: renewals do not change the revision. For the same reason it
// writes field by field where others stay: in the whole map stood ends of theirs that
// are over.
func (m *mongoStore) joining(c *mongoClaim, seen mongoRecord, live int, now mongoclock.Reading) (filter, update bson.D, term mongoTerm) {
	filter = m.ours(c.Key, m.noWriter(bson.E{Key: fieldRev, Value: seen.rev}, now)...)
	dropped := bson.D{}
	for _, h := range seen.holders {
		if h.ExpireAt.After(now.Earliest) {
			continue
		}
		if !m.broken.joinDropsTheLiving {
			filter = append(filter, runOut(of(h.ID, fieldExpireAt), now.Earliest))
		}
		dropped = append(dropped, bson.E{Key: fieldHolders + "." + h.ID, Value: ""})
	}
	now = m.base.Now()
	if live == 0 {
		update, term = c.alone(now)
		return filter, update, term
	}
	term.since, term.until = now.Expiry(c.TTL)
	set := bson.D{{Key: fieldHolders + "." + c.ID, Value: c.holder(term)}}
	if !m.broken.joinKeepsRev {
		set = append(set, newRev())
	}
	if m.broken.joinWritesMap {
		set[0] = bson.E{Key: fieldHolders, Value: seen.mapWith(c, term, now.Earliest)}
		dropped = nil
	}
	update = bson.D{
		{Key: "$set", Value: set},
		{Key: "$max", Value: bson.D{{Key: fieldExpireAt, Value: mongobase.Date(term.until)}}},
		stampAt,
	}
	if len(dropped) > 0 {
		update = append(update, bson.E{Key: "$unset", Value: dropped})
	}
	return filter, update, term
}

// mapWith is the map of holders as it was seen, and the claim: for the control that
// shows why a join does not write it.
func (r mongoRecord) mapWith(c *mongoClaim, t mongoTerm, earliest time.Time) bson.D {
	all := bson.D{{Key: c.ID, Value: c.holder(t)}}
	for _, h := range r.holders {
		if h.ExpireAt.After(earliest) {
			old := mongoClaim{Claim: store.Claim{Owner: h.Owner, Note: h.Note}}
			all = append(all, bson.E{Key: h.ID, Value: old.holder(mongoTerm{since: h.Since, until: h.ExpireAt})})
		}
	}
	return all
}

// live counts who has not surely run out.
func (r mongoRecord) live(earliest time.Time) (n int) {
	for _, h := range r.holders {
		if h.ExpireAt.After(earliest) {
			n++
		}
	}
	return n
}
