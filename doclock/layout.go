package doclock

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// A layout tells the steps of internal/mongolease where the lock is in a document.
type layout struct{ s *docStore }

func (l layout) Where(r store.Ref, more ...bson.E) (bson.D, error) { return l.s.where(r, more...) }

func (l layout) Holds(id string) []bson.E { return l.s.named(id) }

func (l layout) Unbroken(string) []bson.E { return l.s.unbroken() }

func (l layout) Alive(id string, earliest time.Time) []bson.E {
	return append(l.s.named(id), l.s.living(earliest)...)
}

func (l layout) Extend(_ string, since, until time.Time) *update {
	u := &update{stamp: true}
	if !since.IsZero() {
		u.max(l.s.path(fieldSince), since)
	}
	u.max(l.s.path(fieldExpireAt), until)
	return u
}

func (layout) Touch(stamp bool) *update { return &update{stamp: true, token: stamp} }

func (l layout) Send(ctx context.Context, what mongolease.Step, coll *mongo.Collection, filter bson.D, u *update, opts *options.FindOneAndUpdateOptionsBuilder) (reply, error) {
	return l.s.send(ctx, what, coll, filter, u, opts)
}

func (l layout) Model(what mongolease.Step, filter bson.D, u *update) mongo.WriteModel {
	if l.s.tamper != nil {
		filter = l.s.tamper(what, filter)
	}
	return &mongo.UpdateOneModel{Filter: filter, Update: l.s.document(u)}
}

func (l layout) Find(ctx context.Context, r store.Ref) (reply, error) {
	fields, err := l.s.where(r)
	if err != nil {
		return reply{}, err
	}
	return l.s.find(ctx, fields)
}

func (l layout) FindMany(ctx context.Context, coll *mongo.Collection, refs []store.Ref) ([]reply, error) {
	return l.s.images(ctx, coll, refs)
}

// A contender is a claim with the commands of this store.
type contender struct {
	*docStore
	c *claim
}

func (k contender) Claim(ctx context.Context) (reply, mongolease.Tenure, error) {
	opts := mongobase.After
	if k.c.create {
		opts = mongobase.Upsert
	}
	return k.claimFree(ctx, mongolease.Acquire, opts)
}

// claimFree makes the claim the holder if nobody is.
func (k contender) claimFree(ctx context.Context, what mongolease.Step, opts *options.FindOneAndUpdateOptionsBuilder) (reply, mongolease.Tenure, error) {
	u, t := k.holding(k.c, k.base.Now())
	image, err := k.send(ctx, what, k.base.Durable, k.freely(k.c), u, opts)
	return image, t, err
}

// Refused: the filter matched nothing, or the document that was to be made is there.
func (k contender) Refused(image reply, err error) bool {
	if err != nil {
		return k.c.create && mongo.IsDuplicateKeyError(err)
	}
	return !image.Found()
}

// TakeOver repeats the claim's command with the newest sample of the server's clock. Its
// filter names the expiry that it may take over, so a holder that was renewed since is
// safe.
func (k contender) TakeOver(ctx context.Context, _ record, _ mongoclock.Reading) (reply, mongolease.Tenure, error) {
	return k.claimFree(ctx, mongolease.TakeOver, mongobase.After)
}

// Word writes that somebody waits, if the claim says so, and the server's time. The
// lock's at is then a sample, and the claim's session has moved on.
func (k contender) Word(ctx context.Context) (reply, error) {
	u := &update{stamp: true}
	if k.c.Want > 0 {
		_, until := k.base.Now().Expiry(k.c.Want)
		u.max(k.path(fieldWanted), until)
	}
	filter := append(slices.Clone(k.c.fields), k.ours()...)
	filter = append(filter, bson.E{Key: k.path(fieldID), Value: bson.D{{Key: "$exists", Value: true}}})
	image, err := k.send(ctx, mongolease.Word, k.base.Soft, filter, u, mongobase.After)
	if err == nil {
		k.c.Attempt.Answered(image.Reply, false)
	}
	k.c.saw(image.Image)
	return image, err
}

func (k contender) Look(ctx context.Context) (reply, error) {
	image, err := k.find(ctx, k.c.fields)
	k.c.saw(image.Image)
	return image, err
}

func (k contender) CleanUp(ctx context.Context) (wanted bool, err error) {
	removed, err := k.modify(ctx, mongolease.Undo, append(slices.Clone(k.c.fields), k.named(k.c.ID)...), k.leaving(true))
	k.freed.add(k.c.Key, removed.Image)
	return removed.Found(), err
}

// Missed: among many there are others to claim.
func (k contender) Missed() error {
	if k.c.one {
		return errMissed
	}
	return nil
}

// Absent is the answer to a claim of a document that is not there. If the server refused
// to insert it, the refusal comes from another unique index than that of the key.
func (k contender) Absent(refusal error) error {
	if refusal != nil {
		return mongoerr.Mark(refusal)
	}
	filter, err := textOf(k.c.fields)
	if err != nil {
		filter = k.c.Key
	}
	return &notFoundError{filter}
}
