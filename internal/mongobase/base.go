// Package mongobase is what a store on MongoDB stands on, whatever its documents
// look like: the collection under the library's own concerns, the server and its
// clock (docs/design.md §4.2 and §4.3), and the session of an attempt with what is
// remembered of it until its outcome is known (§4.1, §4.6).
//
// It knows nothing of holders. The root's own store, which is older, keeps its
// counterparts in mongo.go and mongo_attempt.go.
package mongobase

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
)

// A Base is a collection, the server that it is on, and that server's clock.
type Base struct {
	Soft *mongo.Collection // w: 1; reads too

	durable *mongo.Collection // majority, journaled
	voted   *mongo.Collection // majority; instead of durable where there is no journal

	Clock   *mongoclock.Clock
	kind    atomic.Pointer[Kind] // known once the clock is
	noJ     atomic.Bool
	retries bool // the driver gives its writes transaction numbers, where the server takes them

	Memory Memory
}

// A Kind is what the first hello said, as far as it does not change.
type Kind struct {
	Router   bool // a mongos: its clock is not that of the documents
	Sessions bool
	Numbers  bool // writes may carry transaction numbers
}

// New makes a Base. It sends nothing. now is the local clock; nil is the monotonic
// one.
func New(coll *mongo.Collection, now func() mongoclock.Moment) *Base {
	if now == nil {
		now = mongoclock.Monotonic()
	}
	journaled := true
	return &Base{
		Soft:    Under(coll, writeconcern.W1()),
		durable: Under(coll, &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}),
		voted:   Under(coll, writeconcern.Majority()),
		Clock:   mongoclock.New(now),
		retries: retries(coll.Database().Client()),
	}
}

// Under is coll with our concerns, and with the driver's own codecs: the caller's
// could write a string as anything.
func Under(coll *mongo.Collection, w *writeconcern.WriteConcern) *mongo.Collection {
	return coll.Clone(options.Collection().
		SetWriteConcern(w).
		SetReadConcern(readconcern.Local()).
		SetReadPreference(readpref.Primary()).
		SetBSONOptions(&options.BSONOptions{}).
		SetRegistry(bson.NewRegistry()))
}

// retries reports whether the client retries writes, and so numbers them. The
// driver keeps that to itself. Not found counts as no: clean-ups are then repeated
// until the attempt's expiry, which costs commands and harms nobody.
func retries(c *mongo.Client) bool {
	field := reflect.ValueOf(c).Elem().FieldByName("retryWrites")
	return field.IsValid() && field.Kind() == reflect.Bool && field.Bool()
}

// Bare takes the caller's session out of a context: a lock asked for inside a
// transaction must neither wait for its commit nor go with its abort.
func Bare(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }

// Kind is what the server is. It is known after the first Read.
func (b *Base) Kind() Kind {
	if k := b.kind.Load(); k != nil {
		return *k
	}
	return Kind{}
}

// Read is the server's clock now; hello asks for it if nobody has told yet.
func (b *Base) Read(ctx context.Context) (mongoclock.Reading, error) {
	if b.kind.Load() != nil {
		if r, known := b.Clock.Read(); known {
			return r, nil
		}
	}
	if _, _, err := b.Hello(ctx); err != nil {
		return mongoclock.Reading{}, err
	}
	r, _ := b.Clock.Read()
	return r, nil
}

// ReadFresh is Read, with a new sample if the one at hand is too old to judge who
// has run out.
func (b *Base) ReadFresh(ctx context.Context) (mongoclock.Reading, error) {
	r, err := b.Read(ctx)
	if err != nil || r.Fresh || b.Kind().Router {
		return r, err
	}
	if _, _, err := b.Hello(ctx); err != nil {
		return mongoclock.Reading{}, err
	}
	r, _ = b.Clock.Read()
	return r, nil
}

// Now is the clock as it is known, without asking anybody.
func (b *Base) Now() mongoclock.Reading {
	r, _ := b.Clock.Read()
	return r
}

// Present is the server's time as far as it surely has come.
func (b *Base) Present() time.Time {
	now, known := b.Clock.Read()
	switch {
	case !known:
		return time.Time{}
	case now.Earliest.IsZero(): // through a mongos, before any write: for people, not for judging
		return mongoclock.Floor(now.Latest)
	}
	return now.Earliest
}

// Hello asks the server who it is and what its clock shows, and takes the answer
// for a sample. It tells when it was sent.
func (b *Base) Hello(ctx context.Context) (server time.Time, sent mongoclock.Moment, err error) {
	ctx = Bare(ctx)
	db := b.Soft.Database()
	sent = b.Clock.Now()
	reply, err := db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	if mongoerr.ClassOf(err) == mongoerr.NoCommand { // 4.4.0 and 4.4.1
		sent = b.Clock.Now()
		reply, err = db.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Raw()
	}
	if err != nil {
		return time.Time{}, 0, err
	}
	ms, ok := reply.Lookup("localTime").DateTimeOK()
	if !ok {
		return time.Time{}, 0, errors.New("the server does not tell its time")
	}
	server = time.UnixMilli(ms).UTC()
	if kind, _ := reply.Lookup("msg").StringValueOK(); kind == "isdbgrid" {
		b.Clock.ObserveForWriting(server, sent)
	} else {
		b.Clock.Observe(server, sent)
	}
	if b.kind.Load() != nil {
		return server, sent, nil
	}
	return server, sent, b.meet(ctx, reply)
}

// meet keeps what a first hello says of the server, unless it is none for us.
func (b *Base) meet(ctx context.Context, hello bson.Raw) error {
	kind, _ := hello.Lookup("msg").StringValueOK()
	_, member := hello.Lookup("setName").StringValueOK()
	k := &Kind{Router: kind == "isdbgrid"}
	k.Sessions = hello.Lookup("logicalSessionTimeoutMinutes").IsNumber()
	k.Numbers = k.Sessions && b.retries && (k.Router || member)
	if k.Router {
		if err := b.refuseSharded(ctx); err != nil {
			return err
		}
	}
	b.kind.Store(k)
	return nil
}

// refuseSharded answers an error for a sharded collection: each shard has a clock
// of its own, and one that judged by another's would judge wrong.
func (b *Base) refuseSharded(ctx context.Context) error {
	db, name := b.Soft.Database(), b.Soft.Name()
	stats, err := db.RunCommand(ctx, bson.D{{Key: "collStats", Value: name}}).Raw()
	if err == nil {
		if is, _ := stats.Lookup("sharded").BooleanOK(); is {
			return fmt.Errorf("the collection %s.%s is sharded: locks need one that is not", db.Name(), name)
		}
		return nil
	}
	if c := mongoerr.ClassOf(err); c == mongoerr.Refused || c == mongoerr.NoCommand {
		return nil // not there yet, or no right to look
	}
	return err
}

// A Reply is the answer of one findAndModify.
type Reply struct {
	Image bson.Raw // nil: nothing matched
	Sent  mongoclock.Moment
	Took  time.Duration
}

// Found reports whether the command matched a document, or made one.
func (r Reply) Found() bool { return r.Image != nil }

// Send runs a findAndModify, or a find, and times it.
func (b *Base) Send(command func() *mongo.SingleResult) (Reply, error) {
	r := Reply{Sent: b.Clock.Now()}
	image, err := command().Raw()
	r.Took = b.Clock.Now().Sub(r.Sent)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.Image = image
	return r, nil
}

// Durably runs a write on the durable collection and, where j is refused for want
// of a journal, once more and from then on without: the server refuses that before
// it touches anything, so it is no second attempt.
func (b *Base) Durably(write func(*mongo.Collection) error) error {
	if b.noJ.Load() {
		return write(b.voted)
	}
	err := write(b.durable)
	if mongoerr.ClassOf(err) == mongoerr.NoJournal {
		b.noJ.Store(true)
		return write(b.voted)
	}
	return err
}

// Voted is the collection for a release that it would hurt to lose.
func (b *Base) Voted() *mongo.Collection { return b.voted }
