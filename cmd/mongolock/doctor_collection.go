package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/mongostore"
)

// collection says whether locks can be kept in it.
func (x *exam) collection(ctx context.Context) []finding {
	name := x.real.Database().Name() + "." + x.real.Name()
	if !x.there {
		return fine("%s is not there yet; the first grant makes it. What follows is tried in %s, which is dropped", name, x.coll.Name())
	}
	specs, err := x.d.db.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: x.real.Name()}})
	if err != nil || len(specs) == 0 {
		return warn("grant listCollections, or see to it yourself that it is a plain collection", "%s cannot be looked at: whether it is capped is not known", name)
	}
	spec := specs[0]
	plain := "locks need a plain collection: use another, or make it again while nobody holds a lock"
	if spec.Type != "" && spec.Type != "collection" {
		return fail(plain, "%s is a %s", name, spec.Type)
	}
	if is, _ := spec.Options.Lookup("capped").BooleanOK(); is {
		return fail(plain, "%s is capped: it drops old locks to make room, held or not", name)
	}
	if locale, has := spec.Options.Lookup("collation", "locale").StringValueOK(); has && locale != "simple" {
		return fail(plain, "%s has a collation (%s): two keys may be taken for one", name, locale)
	}
	return x.foreign(ctx, name)
}

// foreign looks for documents that are not the library's.
func (x *exam) foreign(ctx context.Context, name string) []finding {
	filter := bson.D{{Key: "mongolock", Value: bson.D{{Key: "$exists", Value: false}}}, {Key: "pathlock", Value: bson.D{{Key: "$exists", Value: false}}}}
	var doc struct {
		ID bson.RawValue `bson:"_id"`
	}
	err := x.real.FindOne(ctx, filter, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Decode(&doc)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return fine("%s is a plain collection", name)
	case err != nil:
		return nil // the check rights reports it
	}
	return warn("keep nothing else in the collection of the locks", "%s has documents that are not locks, such as _id %s: their keys cannot be taken", name, doc.ID)
}

// expired returns the document of a scratch key, as a holder leaves it that ran out long ago:
// any claim may take it over, and the TTL index removes it.
func expired(id string) bson.D {
	past := time.UnixMilli(0)
	return bson.D{
		{Key: "_id", Value: id}, {Key: "mongolock", Value: 1}, {Key: "mode", Value: "exclusive"},
		{Key: "holders", Value: bson.D{}}, {Key: "expireAt", Value: past}, {Key: "rev", Value: int64(1)}, {Key: "at", Value: past},
	}
}

// rights tries each right that the library needs.
func (x *exam) rights(ctx context.Context) []finding {
	id := x.scratch + ":rights"
	where := bson.D{{Key: "_id", Value: id}}
	var all []finding
	var have []string
	try := func(right, without string, err error) {
		switch {
		case err == nil || errors.Is(err, mongo.ErrNoDocuments):
			have = append(have, right)
		case refusesUser(err):
			all = append(all, fail("grant "+right+" on "+x.coll.Name()+" (docs/reference.md has the role)", "without the right to %s: %s", right, without)...)
		default:
			all = append(all, fail(whatToDo(err), "%s fails: %s", right, reason(err))...)
		}
	}
	try("find", "nothing works", x.coll.FindOne(ctx, where).Err())
	_, err := x.coll.InsertOne(ctx, expired(id))
	try("insert", "no key can be taken", err)
	_, err = x.coll.UpdateOne(ctx, where, bson.D{{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}}})
	try("update", "no key can be taken or renewed", err)
	_, err = x.coll.DeleteOne(ctx, where)
	try("remove", "nothing can be released: keys stay taken until they run out", err)
	if len(have) > 0 {
		all = append(fine("may %s", strings.Join(have, ", ")), all...)
	}
	return all
}

// advice has what to do about errors of the server, by their codes.
var advice = map[int]string{
	14031: "the server's disk is full: no lock can be taken, renewed or given back until there is room",
	10107: "the server is not the primary: is an election going on?",
	91:    "the server is shutting down",
	64:    "a majority of the members does not acknowledge writes in time: are enough of them up?",
	100:   "the set has too few members for a majority",
}

func whatToDo(err error) string {
	var refused mongo.ServerError
	for code, do := range advice {
		if errors.As(err, &refused) && refused.HasErrorCode(code) {
			return do
		}
	}
	return ""
}

// durable writes as grants are written: acknowledged by a majority, in its journal.
func (x *exam) durable(ctx context.Context) []finding {
	journaled := true
	coll := x.d.db.Collection(x.coll.Name(), options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}))
	id := x.scratch + ":durable"
	begun := time.Now()
	_, err := coll.InsertOne(ctx, expired(id))
	took := time.Since(begun)
	if err != nil {
		if refusesUser(err) {
			return nil // the check rights has reported it
		}
		return fail(whatToDo(err), "a write with majority and journal fails: %s", reason(err))
	}
	_, _ = x.coll.DeleteOne(ctx, bson.D{{Key: "_id", Value: id}}) // leftBehind checks whether it is gone
	if took > x.c.margin() {
		return warn("use a longer TTL; look why the set acknowledges so slowly", "a majority acknowledged a write after %s, over the margin of %v", span(took), x.c.margin())
	}
	return fine("a majority acknowledged a write after %s, with its journal", span(took))
}

// index looks for the TTL index.
func (x *exam) index(ctx context.Context) []finding {
	const name = "mongolock_expireAt"
	if !x.there {
		return fine("the TTL index is made at the first grant")
	}
	specs, err := x.real.Indexes().ListSpecifications(ctx)
	if err != nil {
		return warn("grant listIndexes to see it", "whether the TTL index is there cannot be seen: %s", reason(err))
	}
	for _, spec := range specs {
		switch {
		case spec.Name != name:
		case spec.ExpireAfterSeconds == nil || *spec.ExpireAfterSeconds < 600:
			return fail("drop it and create it again (docs/recipes.js)", "the index %s removes locks too soon, or not by time", name)
		default:
			return fine("the TTL index is there: what crashed holders leave is removed after %v", time.Duration(*spec.ExpireAfterSeconds)*time.Second)
		}
	}
	if x.facts.Product == "FerretDB" {
		return warn("remove what ran out by hand now and then", "no TTL index: the server has none")
	}
	return warn("the next grant makes it, unless the right createIndex is missing or WithoutIndex is set; or see docs/reference.md", "the TTL index is not there: what crashed holders leave stays")
}

// wakeUps checks whether waiters hear of a key that becomes free.
func (x *exam) wakeUps(ctx context.Context) []finding {
	poll := "without wake-ups waiters poll, up to a second late"
	if specs, err := x.d.db.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: x.wakes().Name()}}); x.woke && err == nil && len(specs) > 0 {
		if is, _ := specs[0].Options.Lookup("capped").BooleanOK(); !is {
			return warn("drop it: the next client that waits makes it again", "the collection %s is not capped: %s", x.wakes().Name(), poll)
		}
	}
	feed, err := mongostore.FeedOn(x.coll)
	if err != nil {
		return fail("", "%s", reason(err))
	}
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	took, err := hear(ctx, feed)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return warn("grant find, insert, createCollection and convertToCapped on "+x.wakes().Name()+", unless the server has no capped collections", "%s: %s", poll, reason(err))
	case err != nil:
		return warn("", "a wake-up was not heard: %s; %s", reason(err), poll)
	}
	return fine("a wake-up is heard after %s", span(took))
}

// hear sends a notice that no waiter heeds, and waits until it comes back.
func hear(ctx context.Context, feed store.Feed) (time.Duration, error) {
	notice := store.Notice{Topic: "doctor", Key: "doctor", Kind: "tried"}
	var sent time.Time
	for n, err := range feed.Watch(ctx, store.Audience{Topics: []string{notice.Topic}}) {
		switch {
		case err != nil:
			return 0, err
		case n == (store.Notice{}) && sent.IsZero(): // the cursor stands at the end
			sent = time.Now()
			if err := feed.Notify(ctx, notice); err != nil {
				return 0, err
			}
		case n == notice:
			return time.Since(sent), nil
		}
	}
	if ctx.Err() != nil {
		return 0, errors.New("nothing came within 8s")
	}
	return 0, errors.New("the collection could not be read to its end")
}

// leftBehind checks that everything that the checks wrote is gone.
func (x *exam) leftBehind(ctx context.Context) []finding {
	_, err := x.coll.DeleteMany(ctx, x.mine())
	n, counted := x.coll.CountDocuments(ctx, x.mine())
	switch {
	case err != nil || counted != nil:
		return warn("they hold nothing, and the TTL index removes them", "keys that were tried may be left: %s…", x.scratch)
	case n > 0:
		return warn("they hold nothing, and the TTL index removes them", "%d keys that were tried are left: %s…", n, x.scratch)
	}
	return fine("nothing")
}
