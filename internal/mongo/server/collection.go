package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// A Collection is a collection under each of the library's write concerns, whatever concern it
// has, with the server that keeps it.
type Collection struct {
	*Server

	MajorityJournaled *mongo.Collection // see Modify
	Majority          *mongo.Collection
	W1                *mongo.Collection // reads too
	W1NoRetry         *mongo.Collection // for updates that the driver does not send again; see Modify

	Committed *mongo.Collection // reads only what a majority has

	noJ      atomic.Bool
	attempts attempts
}

// New makes a Collection. It sends nothing. now is the local clock; nil is the monotonic clock.
func New(coll *mongo.Collection, now func() Moment) *Collection {
	journaled := true
	w1 := Under(coll, writeconcern.W1())
	return &Collection{
		Server:            newServer(w1, now),
		MajorityJournaled: Under(coll, &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}),
		Majority:          Under(coll, writeconcern.Majority()),
		W1:                w1,
		W1NoRetry:         w1.Clone(),
		Committed:         w1.Clone(options.Collection().SetReadConcern(readconcern.Majority())),
	}
}

// Under returns coll with the library's concerns, and with the driver's own codecs: the
// caller's codecs could write a string as anything.
func Under(coll *mongo.Collection, w *writeconcern.WriteConcern) *mongo.Collection {
	return coll.Clone(options.Collection().
		SetWriteConcern(w).
		SetReadConcern(readconcern.Local()).
		SetReadPreference(readpref.Primary()).
		SetBSONOptions(&options.BSONOptions{}).
		SetRegistry(bson.NewRegistry()))
}

// Bare returns ctx without the caller's session: a lock that is acquired inside a transaction
// must neither wait for its commit nor vanish with its abort.
func Bare(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }

// A Reply is the answer of a command about one document.
type Reply struct {
	Image bson.Raw // nil: nothing matched
	Sent  Moment
	Took  time.Duration
}

func (r Reply) Seen() Moment { return r.Sent.Add(r.Took) }

// Found reports whether the command matched a document, or inserted one.
func (r Reply) Found() bool { return r.Image != nil }

// The options of a Modify.
var (
	After  = options.FindOneAndUpdate().SetReturnDocument(options.After)
	Before = options.FindOneAndUpdate().SetReturnDocument(options.Before)
	Upsert = options.FindOneAndUpdate().SetReturnDocument(options.After).SetUpsert(true)
)

// Modify updates one document of one of the collections and returns its image. If a server
// without a journal refuses j, a command on MajorityJournaled is sent once more without it, and so are
// all later ones. The server refused it before it touched anything, so this is not a second
// attempt.
//
// On W1NoRetry it sends a command that has no transaction number and that the driver does not send
// again. It can be applied at most once, and only on one primary: a server remembers what a
// repeated command did only together with its write, which may be rolled back. The image is
// then the after-image, whatever opts say.
func (c *Collection) Modify(ctx context.Context, coll *mongo.Collection, filter, update bson.D, opts ...options.Lister[options.FindOneAndUpdateOptions]) (Reply, error) {
	filter = ByID(filter)
	return c.Send(coll, func(coll *mongo.Collection) (bson.Raw, error) {
		if coll == c.W1NoRetry {
			return once(ctx, coll, filter, update)
		}
		return coll.FindOneAndUpdate(ctx, filter, update, opts...).Raw()
	})
}

// once updates one document by a command that the driver does not send again.
func once(ctx context.Context, coll *mongo.Collection, filter bson.D, update any) (bson.Raw, error) {
	command, err := bson.Marshal(bson.D{
		{Key: "findAndModify", Value: coll.Name()}, {Key: "query", Value: filter}, {Key: "update", Value: update}, {Key: "new", Value: true},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}},
	})
	if err != nil {
		return nil, err
	}
	reply, err := coll.Database().RunCommand(ctx, bson.Raw(command)).Raw()
	if err != nil {
		return nil, err
	}
	image, found := reply.Lookup("value").DocumentOK()
	if !found {
		return nil, mongo.ErrNoDocuments
	}
	return image, nil
}

func (c *Collection) Remove(ctx context.Context, coll *mongo.Collection, filter bson.D, opts ...options.Lister[options.FindOneAndDeleteOptions]) (Reply, error) {
	filter = ByID(filter)
	return c.Send(coll, func(coll *mongo.Collection) (bson.Raw, error) {
		return coll.FindOneAndDelete(ctx, filter, opts...).Raw()
	})
}

func (c *Collection) Find(ctx context.Context, filter bson.D, opts ...options.Lister[options.FindOneOptions]) (Reply, error) {
	return c.Send(c.W1, func(coll *mongo.Collection) (bson.Raw, error) { return coll.FindOne(ctx, filter, opts...).Raw() })
}

// Send sends a command to a collection. On MajorityJournaled it may be sent once more: see Modify.
func (c *Collection) Send(coll *mongo.Collection, command func(*mongo.Collection) (bson.Raw, error)) (Reply, error) {
	if coll == c.MajorityJournaled && c.noJ.Load() {
		coll = c.Majority
	}
	r := Reply{Sent: c.Clock.Now()}
	image, err := command(coll)
	r.Took = c.Clock.Now().Sub(r.Sent)
	if r.Took > Slow || err != nil && ClassOf(err).Troubled() && !errors.Is(err, mongo.ErrNoDocuments) {
		c.Troubled()
	}
	switch {
	case err == nil:
		r.Image = image
		return r, nil
	case errors.Is(err, mongo.ErrNoDocuments):
		return r, nil
	case coll == c.MajorityJournaled && c.lacksJournal(err):
		return c.Send(c.Majority, command)
	}
	return r, err
}

// lacksJournal reports whether an error says that the server has no journal, and remembers it.
func (c *Collection) lacksJournal(err error) bool {
	lacks := ClassOf(err) == NoJournal
	if lacks {
		c.noJ.Store(true)
	}
	return lacks
}

var unordered = options.BulkWrite().SetOrdered(false)

// refused returns the writes of a bulk that were refused, if the error says
// nothing else.
func refused(err error) (failed map[int]error, _ error) {
	var e mongo.BulkWriteException
	if !errors.As(err, &e) || e.WriteConcernError != nil {
		return nil, err
	}
	failed = make(map[int]error, len(e.WriteErrors))
	for _, w := range e.WriteErrors {
		failed[w.Index] = fmt.Errorf("refused: %w", mongo.WriteException{WriteErrors: mongo.WriteErrors{w.WriteError}})
	}
	return failed, nil
}

// Bulk sends updates on MajorityJournaled, unordered: one that fails does not stop the others. The number of
// those that found a document is a total over all of them. Without a journal it is as with Modify.
func (c *Collection) Bulk(ctx context.Context, models []mongo.WriteModel) (found int, failed map[int]error, err error) {
	coll := c.MajorityJournaled
	if c.noJ.Load() {
		coll = c.Majority
	}
	result, err := coll.BulkWrite(ctx, models, unordered)
	if coll == c.MajorityJournaled && c.lacksJournal(err) {
		return c.Bulk(ctx, models)
	}
	if result != nil {
		failed, err = refused(err)
	}
	if err != nil {
		c.Troubled()
		return 0, nil, err
	}
	return int(result.MatchedCount), failed, nil
}

// FindAll reads documents, at most that many, and hands them out one by one. They come in one
// batch; by default a batch would have 101 documents.
func (c *Collection) FindAll(ctx context.Context, coll *mongo.Collection, filter bson.D, most int, each func(bson.Raw), opts ...options.Lister[options.FindOptions]) error {
	batch := options.Find().SetBatchSize(int32(min(most+1, 10_000))) //nolint:gosec // bounded
	cursor, err := coll.Find(ctx, filter, append(opts, batch)...)
	if err != nil {
		return err
	}
	defer cursor.Close(ctx)
	for cursor.Next(ctx) {
		each(slices.Clone(cursor.Current))
	}
	return cursor.Err()
}

// ByID rewrites an $or beside a document's _id as an $and around it. To MongoDB the two are
// equal. A simple planner may read the whole collection for the former: SecantusDB's does.
func ByID(filter bson.D) bson.D {
	named := func(name string) int { return slices.IndexFunc(filter, func(e bson.E) bool { return e.Key == name }) }
	either := named("$or")
	if either < 0 || named("_id") < 0 {
		return filter
	}
	inside := bson.D{filter[either]}
	filter = slices.Clone(filter)
	if all := named("$and"); all >= 0 {
		conditions, _ := filter[all].Value.(bson.A)
		filter[all].Value = append(slices.Clip(conditions), inside)
		return slices.Delete(filter, either, either+1)
	}
	filter[either] = bson.E{Key: "$and", Value: bson.A{inside}}
	return filter
}
