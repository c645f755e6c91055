package main

import (
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// byHand has the commands that one would write with the driver alone, with the write
// concerns of the library.
type byHand struct {
	durable, soft *mongo.Collection
}

func handOn(coll *mongo.Collection) byHand {
	journaled := true
	under := func(w *writeconcern.WriteConcern) *mongo.Collection {
		return coll.Clone(options.Collection().SetWriteConcern(w))
	}
	return byHand{
		durable: under(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}),
		soft:    under(writeconcern.W1()),
	}
}

const handTTL = time.Hour

// filter matches the document of a key under these conditions.
func (h byHand) filter(key string, conditions ...bson.E) bson.D {
	return append(bson.D{{Key: "_id", Value: key}, {Key: "mongolock", Value: 1}}, conditions...)
}

var exclusive = bson.E{Key: "mode", Value: "exclusive"}

// pair sends the two commands of a lease of a free key.
func (h byHand) pair(ctx context.Context, key string) {
	must(h.acquire(ctx, key)).remove(ctx)
}

// acquire takes a free key.
func (h byHand) acquire(ctx context.Context, key string) (*handLock, error) {
	l := &handLock{h, key, crypto.Text(), bson.NewObjectID()}
	return l, h.durable.FindOneAndUpdate(ctx,
		h.filter(key, bson.E{Key: "rev", Value: l.rev}),
		handDocument(l.id, l.rev, time.Now()),
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Err()
}

// sideBySide sends the commands of leases of many free keys: the claims side by side, and then the
// releases.
func (h byHand) sideBySide(ctx context.Context, many int) {
	held := make([]*handLock, many)
	sideBySide(many, func(i int) { held[i] = must(h.acquire(ctx, fmt.Sprint("by hand ", i))) })
	sideBySide(many, func(i int) { held[i].remove(ctx) })
}

// handDocument returns the update that makes id the only holder.
func handDocument(id string, rev bson.ObjectID, now time.Time) bson.D {
	return bson.D{
		{Key: "$set", Value: handFields(id, rev, now)},
		{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}},
	}
}

func handFields(id string, rev bson.ObjectID, now time.Time) bson.D {
	until := now.Add(handTTL)
	return bson.D{
		{Key: "mode", Value: "exclusive"}, {Key: "limit", Value: 1},
		{Key: "holders", Value: bson.D{{Key: id, Value: bson.D{
			{Key: "owner", Value: "owner/12345"}, {Key: "note", Value: ""}, {Key: "since", Value: now}, {Key: "expireAt", Value: until},
			{Key: "ttl", Value: handTTL.Milliseconds()}, {Key: "beat", Value: now.UnixNano()}, {Key: "epoch", Value: handEpoch},
		}}}},
		{Key: "expireAt", Value: until}, {Key: "rev", Value: rev},
	}
}

// handEpoch is the election that the holders by hand name.
var handEpoch = bson.NewObjectID()

// handHeld returns the document of a key that id holds.
func handHeld(key, id string, rev bson.ObjectID, now time.Time) bson.D {
	return append(bson.D{{Key: "_id", Value: key}, {Key: "mongolock", Value: 1}, {Key: "at", Value: now}}, handFields(id, rev, now)...)
}

// trusted has the conditions under which a renewal finds a holder that is still trusted.
func trusted(id string, now time.Time) bson.D {
	holder := "holders." + id
	return bson.D{
		{Key: holder + ".broken", Value: bson.D{{Key: "$exists", Value: false}}},
		{Key: holder + ".released", Value: bson.D{{Key: "$exists", Value: false}}},
		{Key: holder + ".beat", Value: bson.D{{Key: "$lt", Value: now.UnixNano()}}},
	}
}

// barest sends the smallest pair of commands that could be called a lock.
func (h byHand) barest(ctx context.Context, key string) {
	err := h.durable.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: key}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}}, options.FindOneAndUpdate().SetUpsert(true)).Err()
	if !errors.Is(err, mongo.ErrNoDocuments) {
		check(err)
	}
	must(h.soft.DeleteOne(ctx, bson.D{{Key: "_id", Value: key}}))
}

// A handLock is a key that byHand holds.
type handLock struct {
	byHand
	key, id string
	rev     bson.ObjectID
}

func (h byHand) lock(ctx context.Context, key string) *handLock {
	l := &handLock{h, key, crypto.Text(), bson.NewObjectID()}
	must(h.durable.InsertOne(ctx, handHeld(key, l.id, l.rev, time.Now())))
	return l
}

// handOver replaces the holder with a new one, by the update of a handoff inside a
// process.
func (l *handLock) handOver(ctx context.Context) {
	filter := l.filter(l.key, bson.E{Key: "rev", Value: l.rev})
	l.id, l.rev = crypto.Text(), bson.NewObjectID()
	check(l.durable.FindOneAndUpdate(ctx, filter, handDocument(l.id, l.rev, time.Now()),
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Err())
}

// touch is one findOneAndUpdate of an existing document, by its _id alone.
func (h byHand) touch(ctx context.Context, key string, n int) {
	check(h.durable.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: key}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: n}}}}).Err())
}

// remove frees the key.
func (l *handLock) remove(ctx context.Context) {
	check(l.soft.FindOneAndDelete(ctx, l.filter(l.key, exclusive, bson.E{Key: "holders." + l.id, Value: bson.D{{Key: "$exists", Value: true}}})).Err())
}

// A handBulk has documents that byHand holds, and renews them as the engine renews leases.
type handBulk struct {
	byHand
	keys, ids []string
}

func (h byHand) hold(ctx context.Context, n int) *handBulk {
	b := &handBulk{byHand: h}
	docs := make([]any, n)
	for i := range docs {
		key, id := fmt.Sprint("hand-", i), crypto.Text()
		docs[i] = handHeld(key, id, bson.NewObjectID(), time.Now())
		b.keys, b.ids = append(b.keys, key), append(b.ids, id)
	}
	must(h.durable.InsertMany(ctx, docs))
	return b
}

// renew extends the first n of them, in one bulk.
func (b *handBulk) renew(ctx context.Context, n int) {
	models := make([]mongo.WriteModel, n)
	now := time.Now()
	until := now.Add(handTTL)
	for i, key := range b.keys[:n] {
		holder := "holders." + b.ids[i]
		models[i] = mongo.NewUpdateOneModel().
			SetFilter(append(bson.D{{Key: "_id", Value: key}, {Key: "mongolock", Value: 1}}, trusted(b.ids[i], now)...)).
			SetUpdate(bson.D{
				{Key: "$max", Value: bson.D{
					{Key: holder + ".expireAt", Value: until}, {Key: "expireAt", Value: until}, {Key: holder + ".ttl", Value: handTTL.Milliseconds()},
				}},
				{Key: "$set", Value: bson.D{{Key: holder + ".beat", Value: now.UnixNano()}, {Key: holder + ".epoch", Value: handEpoch}}},
				{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}},
			})
	}
	result := must(b.durable.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false)))
	if result.MatchedCount != int64(len(models)) {
		check(fmt.Errorf("the bulk by hand renewed %d of %d", result.MatchedCount, len(models)))
	}
}

// keyByHand is the key that is handed over by hand, and what the other process is told to do it.
const keyByHand = "by hand"

// notices is the collection of wake-ups of handoffs by hand.
func (h byHand) notices() *mongo.Collection {
	return handOn(h.soft.Database().Collection("notices")).soft
}

func (h byHand) makeNotices(ctx context.Context) {
	check(h.soft.Database().CreateCollection(ctx, "notices", options.CreateCollection().SetCapped(true).SetSizeInBytes(64<<10)))
	must(h.notices().InsertOne(ctx, bson.D{{Key: "key", Value: "none yet"}}))
}

// handOverTo hands a key to the other process with the commands of the library: the notice
// goes out beside the delete.
func (h byHand) handOverTo(ctx context.Context, other *child) (seconds float64) {
	held := h.lock(ctx, keyByHand)
	other.say(keyByHand)
	other.expect("asking")
	<-time.After(20*time.Millisecond + rand.N(pollPause))
	released, noticed := time.Now(), make(chan error, 1)
	go func() {
		_, err := h.notices().InsertOne(ctx, bson.D{{Key: "key", Value: keyByHand}})
		noticed <- err
	}()
	held.remove(ctx)
	check(<-noticed)
	return other.granted(released)
}

// A handWaiter is the other process: it reads notices with a cursor that stays open.
type handWaiter struct {
	byHand
	cursor *mongo.Cursor
}

// wait takes the key when a notice comes, and gives it back.
func (w *handWaiter) wait(ctx context.Context) {
	if w.cursor == nil {
		w.cursor = must(w.notices().Find(ctx, bson.D{}, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(30*time.Second)))
		w.next(ctx) // what was there before
	}
	say("asking")
	w.next(ctx)
	held, err := w.acquire(ctx, keyByHand)
	for mongo.IsDuplicateKeyError(err) { // the notice overtook the delete
		<-time.After(time.Millisecond)
		held, err = w.acquire(ctx, keyByHand)
	}
	check(err)
	say("granted", time.Now().UnixNano())
	held.remove(ctx)
	say("free")
}

func (w *handWaiter) next(ctx context.Context) {
	if !w.cursor.Next(ctx) {
		check(errors.Join(w.cursor.Err(), errors.New("the notices have ended")))
	}
}

func (w *handWaiter) close(ctx context.Context) {
	if w.cursor != nil {
		_ = w.cursor.Close(ctx) // the server ends it by itself soon enough
		w.cursor = nil
	}
}
