package mongostore

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// AcquireMany claims keys with two commands, side by side. One inserts the documents of all
// keys; the other tells the server's time, from which the time left counts. A key that has a
// document is refused, through the unique index on _id, without reading that document.
//
// All inserts have one session and one transaction number: the driver may send them again and
// none is done twice. Servers without transaction numbers are not asked.
func (s *Store) AcquireMany(ctx context.Context, batch []store.Claim) []store.Claimed {
	t := &together{Store: s, answers: make([]store.Claimed, len(batch))}
	if len(batch) == 0 {
		return t.answers
	}
	if err := t.begin(ctx, batch); err != nil {
		t.fail(err)
		return t.answers
	}
	t.insert(ctx)
	t.settleRefused(ctx)
	for i, c := range t.claims {
		t.unknown[i] = t.answers[i].Err != nil && !store.IsCertain(t.answers[i].Err)
		s.base.Over(c.Attempt, !t.unknown[i])
	}
	if i := slices.IndexFunc(t.answers, func(a store.Claimed) bool { return a.Err == nil }); i >= 0 {
		s.indexOnce(ctx, t.claims[i], t.answers[i].Grant)
	}
	return t.answers
}

// together holds the claims of one bulk while they are under way.
type together struct {
	*Store
	claims  []*claim
	tenures []mongolease.Tenure
	answers []store.Claimed
	refused []int  // by the unique index on _id
	unknown []bool // the outcome is unknown, once all are answered
	twins   bool   // the refused may have twins on their way
}

func (t *together) fail(err error) {
	for i := range t.answers {
		t.answers[i].Err = err
	}
}

// begin opens the attempts. Nothing of the claims is sent yet.
func (t *together) begin(ctx context.Context, batch []store.Claim) error {
	if slices.ContainsFunc(batch, func(c store.Claim) bool { return c.Mode != store.Exclusive }) {
		return mongoerr.NotApplied(errors.ErrUnsupported)
	}
	if err := t.refuseUnfitOnce(ctx); err != nil {
		return mongoerr.NotApplied(err)
	}
	sent, ids, most := t.base.Clock.Now(), make([]string, len(batch)), time.Duration(0)
	for i, c := range batch {
		ids[i], most = c.ID, max(most, c.TTL)
	}
	attempts, err := t.base.BeginMany(ctx, ids, most, t.undo)
	for i, a := range attempts {
		c := t.claim(&mongolease.Claim{Claim: batch[i], Attempt: a, Sent: sent})
		t.claims, t.tenures = append(t.claims, c), append(t.tenures, t.tenure(c))
	}
	t.unknown = make([]bool, len(attempts))
	return err
}

// A drawnTime is a time of the server, and when it was asked for. Behind a router there is one
// for each claim that was applied, from its shard.
type drawnTime struct {
	server []time.Time
	asked  mongoclock.Moment
	err    error
}

// insert sends the two commands, and answers the claims.
//
// The server's time is asked for beside the inserts, because it need not be drawn after
// them: how long the server honours a document does not depend on when it was written. But it
// must be drawn after the claims began, or a clock that slept since would be trusted. Through a
// router each document's shard draws it, once the document is there.
//
// That command goes outside of the session. Its operationTime may come from a primary that was
// deposed since the inserts, and then the next grant's may be smaller.
func (t *together) insert(ctx context.Context) {
	within := t.claims[0].Attempt.In(ctx)
	documents := make([]bson.D, len(t.claims))
	for i, c := range t.claims {
		documents[i] = c.inserted(t.tenures[i])
	}
	draw := func(applied []store.Ref) (d drawnTime) {
		d.server, d.asked, d.err = t.steps.Drawn(mongobase.Bare(ctx), applied)
		return d
	}
	beside, router := make(chan drawnTime, 1), t.base.Kind().Router
	if router {
		beside <- drawnTime{}
	} else {
		go func() { beside <- draw(nil) }()
	}
	sent, failed, err := t.base.InsertMany(within, documents)
	now := <-beside // even if it is not needed: cutting it off would cost the connection, and make the server's clock doubtful
	if err != nil {
		t.fail(mongobase.RefusedOrUnknown(sent, err))
		return
	}
	var applied []int
	var refs []store.Ref
	for i, c := range t.claims {
		switch refusal := failed[i]; {
		case refusal == nil:
			applied, refs = append(applied, i), append(refs, c.Ref)
		case mongoerr.ClassOf(refusal) == mongoerr.DuplicateID:
			c.Attempt.Answered(sent, true)
			t.twins, t.refused = c.Attempt.Twin, append(t.refused, i)
			t.answers[i].Err = t.absent(c.Key)
		default:
			t.answers[i].Err = mongobase.RefusedOrUnknown(sent, refusal)
		}
	}
	if len(refs) > 0 && (router || now.err != nil) { // it fails together with another command's connection, and the driver does not repeat it
		now = draw(refs)
	}
	for n, i := range applied {
		if t.answers[i].Err = now.err; now.err == nil { // otherwise the document is there, and of unknown outcome
			at := now.server[min(n, len(now.server)-1)]
			t.answers[i].Grant, t.answers[i].Err = t.steps.Grant(within, t.claims[i].Claim, reply{}, t.tenures[i], at, now.asked)
		}
	}
}

// inserted returns the document that an upsert of the claim would make. Its at is not a time of
// the server; only the reply to a command that writes at is taken for one.
func (c *claim) inserted(t mongolease.Tenure) bson.D {
	return bson.D{
		{Key: "_id", Value: c.Key},
		{Key: fieldMark, Value: shape},
		{Key: fieldRev, Value: t.Rev},
		{Key: fieldMode, Value: string(c.Mode)},
		{Key: fieldLimit, Value: c.Limit},
		{Key: fieldHolders, Value: bson.D{{Key: c.ID, Value: c.Holder(t)}}},
		{Key: fieldExpireAt, Value: mongobase.Date(t.Until)},
		{Key: fieldAt, Value: mongobase.Date(t.Since)},
	}
}

// settleRefused makes the refusals certain: it first cleans up the twins that may be on their
// way. Where that fails, the outcome is unknown.
func (t *together) settleRefused(ctx context.Context) {
	if !t.twins {
		return
	}
	awaited, err := t.remove(t.claims[0].Attempt.In(ctx), t.refused)
	keys := make([]string, len(t.refused))
	for k, i := range t.refused {
		if keys[k] = t.claims[i].Key; err != nil {
			t.answers[i].Err = err
		}
	}
	if awaited {
		freed, _ := t.Look(ctx, keys) // otherwise those who wait find out by themselves
		t.steps.Tell(ctx, freed...)
	}
}

// undo removes the claims of unknown outcome, by their IDs and in their common session.
func (t *together) undo(ctx context.Context) error {
	var which []int
	for i, unknown := range t.unknown {
		if unknown {
			which = append(which, i)
		}
	}
	_, err := t.remove(ctx, which)
	return err
}

// remove removes some claims, in their common session. Those for which somebody waits by now
// leave their documents.
func (t *together) remove(ctx context.Context, which []int) (awaited bool, err error) {
	deletions, leaves := make([]mongo.WriteModel, len(which)), make([]mongo.WriteModel, len(which))
	for k, i := range which {
		c := t.claims[i]
		filter := ours(c.Key, exclusively, exists(fieldHolders+"."+c.ID))
		deletions[k] = t.steps.Deletion(mongolease.Undo, append(slices.Clip(filter), unawaited))
		leaves[k] = t.steps.Model(mongolease.Undo, filter, t.dropping(c.Ref))
	}
	removed, err := t.send(ctx, deletions)
	if err == nil && removed < len(which) {
		removed, err = t.send(ctx, leaves)
		awaited = removed > 0
	}
	if err != nil {
		return awaited, err
	}
	for _, i := range which {
		t.steps.Memory.Forget(t.claims[i].ID)
	}
	return awaited, nil
}

func (t *together) send(ctx context.Context, models []mongo.WriteModel) (removed int, err error) {
	removed, failed, err := t.base.Bulk(ctx, t.base.Durable, models)
	for _, refused := range failed {
		err = errors.Join(err, refused)
	}
	return removed, err
}
