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
func (x *exam) collection(ctx context.Context) {
	const check = "collection"
	name := x.real.Database().Name() + "." + x.real.Name()
	if !x.there {
		x.fine(check, "%s is not there yet; the first grant makes it. What follows is tried in %s, which is dropped", name, x.coll.Name())
		return
	}
	specs, err := x.d.db.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: x.real.Name()}})
	if err != nil || len(specs) == 0 {
		x.warn(check, "grant listCollections, or see to it yourself that it is a plain collection", "%s cannot be looked at: whether it is capped is not known", name)
		return
	}
	const plain = "locks need a plain collection: use another, or make it again while nobody holds a lock"
	spec := specs[0]
	capped, _ := spec.Options.Lookup("capped").BooleanOK()
	locale, _ := spec.Options.Lookup("collation", "locale").StringValueOK()
	var foreign struct {
		ID bson.RawValue `bson:"_id"`
	}
	filter := bson.D{{Key: "mongolock", Value: bson.D{{Key: "$exists", Value: false}}}, {Key: "pathlock", Value: bson.D{{Key: "$exists", Value: false}}}}
	err = x.real.FindOne(ctx, filter, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Decode(&foreign)
	switch {
	case spec.Type != "" && spec.Type != "collection":
		x.fail(check, plain, "%s is a %s", name, spec.Type)
	case capped:
		x.fail(check, plain, "%s is capped: it drops old locks to make room, held or not", name)
	case locale != "" && locale != "simple":
		x.fail(check, plain, "%s has a collation (%s): two keys may be taken for one", name, locale)
	case err == nil:
		x.warn(check, "keep nothing else in the collection of the locks", "%s has documents that are not locks, such as _id %s: their keys cannot be taken", name, foreign.ID)
	case errors.Is(err, mongo.ErrNoDocuments): // of other errors the check rights tells
		x.fine(check, "%s is a plain collection", name)
	}
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
func (x *exam) rights(ctx context.Context) {
	const check = "rights"
	id := x.scratch + ":rights"
	where := bson.D{{Key: "_id", Value: id}}
	var have []string
	try := func(right, without string, err error) {
		switch {
		case err == nil || errors.Is(err, mongo.ErrNoDocuments):
			have = append(have, right)
		case refusesUser(err):
			x.fail(check, "grant "+right+" on "+x.coll.Name()+" (docs/reference.md has the role)", "without the right to %s: %s", right, without)
		default:
			x.fail(check, whatToDo(err), "%s fails: %s", right, reason(err))
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
		x.fine(check, "may %s", strings.Join(have, ", "))
	}
}

// whatToDo has what to do about errors of the server, by their codes.
func whatToDo(err error) string {
	var refused mongo.ServerError
	for code, do := range map[int]string{
		14031: "the server's disk is full: no lock can be taken, renewed or given back until there is room",
		10107: "the server is not the primary: is an election going on?",
		91:    "the server is shutting down",
		64:    "a majority of the members does not acknowledge writes in time: are enough of them up?",
		100:   "the set has too few members for a majority",
	} {
		if errors.As(err, &refused) && refused.HasErrorCode(code) {
			return do
		}
	}
	return ""
}

// durable writes as grants are written: acknowledged by a majority, in its journal.
func (x *exam) durable(ctx context.Context) {
	const check = "durable writes"
	journaled := true
	coll := x.coll.Clone(options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}))
	begun := time.Now()
	_, err := coll.InsertOne(ctx, expired(x.scratch+":durable"))
	took := time.Since(begun)
	switch {
	case err != nil && refusesUser(err): // the check rights has reported it
	case err != nil:
		x.fail(check, whatToDo(err), "a write with majority and journal fails: %s", reason(err))
	case took > x.c.margin():
		x.warn(check, "use a longer TTL; look why the set acknowledges so slowly", "a majority acknowledged a write after %s, over the margin of %v", span(took), x.c.margin())
	default:
		x.fine(check, "a majority acknowledged a write after %s, with its journal", span(took))
	}
}

// index looks for the TTL index.
func (x *exam) index(ctx context.Context) {
	const check, name = "index", "mongolock_expireAt"
	if !x.there {
		x.fine(check, "the TTL index is made at the first grant")
		return
	}
	specs, err := x.real.Indexes().ListSpecifications(ctx)
	if err != nil {
		x.warn(check, "grant listIndexes to see it", "whether the TTL index is there cannot be seen: %s", reason(err))
		return
	}
	for _, spec := range specs {
		switch after := spec.ExpireAfterSeconds; {
		case spec.Name != name:
		case after == nil || *after < 600:
			x.fail(check, "drop it and create it again (docs/recipes.js)", "the index %s removes locks too soon, or not by time", name)
			return
		default:
			x.fine(check, "the TTL index is there: what crashed holders leave is removed after %v", time.Duration(*after)*time.Second)
			return
		}
	}
	if x.facts.Product == "FerretDB" {
		x.warn(check, "remove what ran out by hand now and then", "no TTL index: the server has none")
		return
	}
	x.warn(check, "the next grant makes it, unless the right createIndex is missing or WithoutIndex is set; or see docs/reference.md", "the TTL index is not there: what crashed holders leave stays")
}

// wakeUps checks whether waiters hear of a key that becomes free.
func (x *exam) wakeUps(ctx context.Context) {
	const check, poll = "wake-ups", "without wake-ups waiters poll, up to a second late"
	name := x.wakes().Name()
	if specs, err := x.d.db.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: name}}); err == nil && len(specs) > 0 {
		if capped, _ := specs[0].Options.Lookup("capped").BooleanOK(); !capped {
			x.warn(check, "drop it: the next client that waits makes it again", "the collection %s is not capped: %s", name, poll)
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	feed, err := mongostore.FeedOn(x.coll)
	took := time.Duration(0)
	if err == nil {
		took, err = hear(ctx, feed)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		x.warn(check, "grant find, insert, createCollection and convertToCapped on "+name+", unless the server has no capped collections", "%s: %s", poll, reason(err))
	case err != nil:
		x.warn(check, "", "a wake-up was not heard: %s; %s", reason(err), poll)
	default:
		x.fine(check, "a wake-up is heard after %s", span(took))
	}
}

// hear sends a notice that no waiter heeds, and waits until it comes back.
func hear(ctx context.Context, feed store.Feed) (time.Duration, error) {
	notice := store.Notice{Topic: "doctor", Key: "doctor", Kind: "tried"}
	var sent time.Time
	for n, err := range feed.Watch(ctx, store.Audience{Topics: []string{notice.Topic}}) {
		if err == nil && n == (store.Notice{}) && sent.IsZero() { // the cursor stands at the end
			sent = time.Now()
			err = feed.Notify(ctx, notice)
		}
		if err != nil || n == notice {
			return time.Since(sent), err
		}
	}
	return 0, errors.New("nothing came within 8s")
}
