package mongobase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
)

// A Kind is the part of the first hello that does not change.
type Kind struct {
	Router   bool // a mongos: its clock is not that of the documents
	Set      bool // a member of a replica set, or in front of some
	Sessions bool
	Numbers  bool // writes may carry transaction numbers
}

// Kind is what the server is. It is known after the first Read.
func (b *Base) Kind() Kind {
	if k := b.kind.Load(); k != nil {
		return *k
	}
	return Kind{}
}

// Known is the server's clock, if that and the server are known.
func (b *Base) Known() (r mongoclock.Reading, known bool) {
	if b.kind.Load() == nil {
		return r, false
	}
	return b.Clock.Read()
}

// Read is the server's clock now; hello asks for it if nobody has told yet.
func (b *Base) Read(ctx context.Context) (mongoclock.Reading, error) {
	if r, known := b.Known(); known {
		return r, nil
	}
	if _, _, err := b.Hello(ctx); err != nil {
		return mongoclock.Reading{}, err
	}
	return b.Now(), nil
}

// ReadFresh is Read, with a new sample if the one at hand is too old to judge whether a
// holder has run out.
func (b *Base) ReadFresh(ctx context.Context) (mongoclock.Reading, error) {
	r, err := b.Read(ctx)
	if err != nil || r.Fresh || b.Kind().Router {
		return r, err
	}
	if _, _, err := b.Hello(ctx); err != nil {
		return mongoclock.Reading{}, err
	}
	return b.Now(), nil
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

// Timed takes the time in an after-image as a sample: it was drawn by the command that
// answers with it.
func (b *Base) Timed(r Reply, at time.Time) {
	if !at.IsZero() {
		b.Clock.Observe(at, r.Sent)
	}
}

// Hello asks the server for its kind and its time, which it takes as a sample. It tells
// when it was sent.
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
	server, ok := Time(reply.Lookup("localTime"))
	if !ok {
		return time.Time{}, 0, errors.New("the server does not tell its time")
	}
	if isRouter(reply) {
		b.Clock.ObserveForWriting(server, sent)
	} else {
		b.Clock.Observe(server, sent)
	}
	if b.kind.Load() != nil {
		return server, sent, nil
	}
	return server, sent, b.meet(ctx, reply)
}

func isRouter(hello bson.Raw) bool {
	kind, _ := hello.Lookup("msg").StringValueOK()
	return kind == "isdbgrid"
}

// meet records the server's kind from the first hello, or refuses a server that cannot
// hold locks.
func (b *Base) meet(ctx context.Context, hello bson.Raw) error {
	_, member := hello.Lookup("setName").StringValueOK()
	k := &Kind{Router: isRouter(hello)}
	k.Set = k.Router || member
	k.Sessions = hello.Lookup("logicalSessionTimeoutMinutes").IsNumber()
	k.Numbers = k.Sessions && b.retries && k.Set
	if k.Router {
		if err := b.refuseSharded(ctx); err != nil {
			return err
		}
	}
	b.kind.Store(k)
	return nil
}

// refuseSharded answers an error for a sharded collection: each shard has a clock of its
// own, and a client would judge one shard's holders by another's clock. collStats tells
// whether it is sharded; under a strict API the number of shards that answer $collStats.
func (b *Base) refuseSharded(ctx context.Context) error {
	db, name := b.Soft.Database(), b.Soft.Name()
	sharded := func() error {
		return fmt.Errorf("the collection %s.%s is sharded: locks need one that is not", db.Name(), name)
	}
	stats, err := db.RunCommand(ctx, bson.D{{Key: "collStats", Value: name}}).Raw()
	if err == nil {
		if is, _ := stats.Lookup("sharded").BooleanOK(); is {
			return sharded()
		}
		return nil
	}
	cursor, err := b.Soft.Aggregate(ctx, mongo.Pipeline{{{Key: "$collStats", Value: bson.D{{Key: "count", Value: bson.D{}}}}}})
	if err != nil {
		if c := mongoerr.ClassOf(err); c == mongoerr.Refused || c == mongoerr.NoCommand {
			return nil // not there yet, or no right to look
		}
		return err
	}
	defer cursor.Close(ctx)
	shards := 0
	for cursor.Next(ctx) {
		shards++
	}
	if shards > 1 {
		return sharded()
	}
	return cursor.Err()
}
