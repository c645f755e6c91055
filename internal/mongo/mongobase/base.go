// Package mongobase is the base of every store on MongoDB, whatever its documents look like:
// store/mongostore and those of doclock, schedule and pathlock.
//
// It knows nothing of the fields in which a store keeps its holders.
package mongobase

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
)

// A Base is a collection under each of the library's write concerns, whatever concern the
// collection has, with its server and that server's clock.
type Base struct {
	Durable *mongo.Collection // majority, journaled; see Modify
	Voted   *mongo.Collection // majority
	Soft    *mongo.Collection // w: 1; reads too
	Once    *mongo.Collection // w: 1, for updates that the driver does not send again; see Modify

	Committed *mongo.Collection // reads only what a majority has

	Clock   *mongoclock.Clock
	kind    atomic.Pointer[Kind] // known once the clock is
	noJ     atomic.Bool
	retries bool // the driver gives its writes transaction numbers, where the server takes them

	greeting Shared
	memory   memory
	epochs   epochs
	sights   sights

	// Unsharded makes the store refuse a collection that is sharded by any key.
	Unsharded    bool
	shardingSeen atomic.Int64 // the moment of the last answer

	log atomic.Pointer[slog.Logger] // is told of the server and of clock steps; nil: no logger is
}

// New makes a Base. It sends nothing. now is the local clock; nil is the monotonic clock.
func New(coll *mongo.Collection, now func() mongoclock.Moment) *Base {
	if now == nil {
		now = mongoclock.Monotonic()
	}
	journaled := true
	b := &Base{
		Durable:   Under(coll, &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}),
		Voted:     Under(coll, writeconcern.Majority()),
		Soft:      Under(coll, writeconcern.W1()),
		Committed: Under(coll, writeconcern.W1()).Clone(options.Collection().SetReadConcern(readconcern.Majority())),
		Clock:     mongoclock.New(now),
		retries:   Retries(coll.Database().Client()),
	}
	b.Once = b.Soft.Clone()
	b.epochs.clock = mongoclock.New(now)
	return b
}

func (b *Base) LogTo(l *slog.Logger) { b.log.Store(l) }

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

// Retries reports whether the client retries writes, and so numbers them. The driver does not
// make that public. If it cannot be found, the answer is no: clean-ups are then repeated until
// the attempt's expiry, which costs commands and does no harm.
func Retries(c *mongo.Client) bool {
	field := reflect.ValueOf(c).Elem().FieldByName("retryWrites")
	return field.IsValid() && field.Kind() == reflect.Bool && field.Bool()
}

// Bare returns ctx without the caller's session: a lock that is acquired inside a transaction
// must neither wait for its commit nor vanish with its abort.
func Bare(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }

// A Reply is the answer of a command about one document.
type Reply struct {
	Image bson.Raw // nil: nothing matched
	Sent  mongoclock.Moment
	Took  time.Duration
}

func (r Reply) Seen() mongoclock.Moment { return r.Sent.Add(r.Took) }

// Found reports whether the command matched a document, or inserted one.
func (r Reply) Found() bool { return r.Image != nil }

// The options of a Modify.
var (
	After  = options.FindOneAndUpdate().SetReturnDocument(options.After)
	Before = options.FindOneAndUpdate().SetReturnDocument(options.Before)
	Upsert = options.FindOneAndUpdate().SetReturnDocument(options.After).SetUpsert(true)
)

// Modify updates one document of one of the collections and returns its image. If a server
// without a journal refuses j, a command on Durable is sent once more without it, and so are
// all later ones. The server refused it before it touched anything, so this is not a second
// attempt.
//
// On Once it sends a command that has no transaction number and that the driver does not send
// again. It can be applied at most once, and only on one primary: a server remembers what a
// repeated command did only together with its write, which may be rolled back. The image is
// then the after-image, whatever opts say.
func (b *Base) Modify(ctx context.Context, coll *mongo.Collection, filter, update bson.D, opts ...options.Lister[options.FindOneAndUpdateOptions]) (Reply, error) {
	filter = ByID(filter)
	return b.Send(coll, func(coll *mongo.Collection) (bson.Raw, error) {
		if coll == b.Once {
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

func (b *Base) Remove(ctx context.Context, coll *mongo.Collection, filter bson.D, opts ...options.Lister[options.FindOneAndDeleteOptions]) (Reply, error) {
	filter = ByID(filter)
	return b.Send(coll, func(coll *mongo.Collection) (bson.Raw, error) {
		return coll.FindOneAndDelete(ctx, filter, opts...).Raw()
	})
}

func (b *Base) Find(ctx context.Context, filter bson.D, opts ...options.Lister[options.FindOneOptions]) (Reply, error) {
	return b.Send(b.Soft, func(coll *mongo.Collection) (bson.Raw, error) { return coll.FindOne(ctx, filter, opts...).Raw() })
}

// Send sends a command to a collection. On Durable it may be sent once more: see Modify.
func (b *Base) Send(coll *mongo.Collection, command func(*mongo.Collection) (bson.Raw, error)) (Reply, error) {
	if coll == b.Durable && b.noJ.Load() {
		coll = b.Voted
	}
	r := Reply{Sent: b.Clock.Now()}
	image, err := command(coll)
	r.Took = b.Clock.Now().Sub(r.Sent)
	if r.Took > Slow || err != nil && mongoerr.ClassOf(err).Troubled() && !errors.Is(err, mongo.ErrNoDocuments) {
		b.epochs.suspect(false)
	}
	switch {
	case err == nil:
		r.Image = image
		return r, nil
	case errors.Is(err, mongo.ErrNoDocuments):
		return r, nil
	case coll == b.Durable && b.lacksJournal(err):
		return b.Send(b.Voted, command)
	}
	return r, err
}

// lacksJournal reports whether an error says that the server has no journal, and remembers it.
func (b *Base) lacksJournal(err error) bool {
	lacks := mongoerr.ClassOf(err) == mongoerr.NoJournal
	if lacks {
		b.noJ.Store(true)
	}
	return lacks
}
