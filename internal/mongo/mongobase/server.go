package mongobase

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
)

// A Kind is the part of the first hello that does not change.
type Kind struct {
	Router   bool // a mongos: its clock is not the one of the documents
	Set      bool // a member of a replica set, or in front of some
	Sessions bool
	Numbers  bool // writes may carry transaction numbers
}

// KindOf returns what a hello tells of the kind; Numbers takes more than that.
func KindOf(hello bson.Raw) Kind {
	name, _ := hello.Lookup("msg").StringValueOK()
	_, member := hello.Lookup("setName").StringValueOK()
	router := name == "isdbgrid"
	return Kind{Router: router, Set: member || router, Sessions: hello.Lookup("logicalSessionTimeoutMinutes").IsNumber()}
}

// SayHello returns the server's hello, or its isMaster if the server is too old for hello.
func SayHello(ctx context.Context, db *mongo.Database) (hello bson.Raw, old bool, err error) {
	hello, err = db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	if mongoerr.ClassOf(err) == mongoerr.NoCommand {
		hello, err = db.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Raw()
		return hello, true, err
	}
	return hello, false, err
}

// Kind returns the kind of the server. It is known after the first Read.
func (b *Base) Kind() Kind {
	if k := b.kind.Load(); k != nil {
		return *k
	}
	return Kind{}
}

// ManyClocks reports whether each document may be on a shard with a clock of its own. Then no date
// in a document ends a holder: it is over once it was silent for its TTL.
func (b *Base) ManyClocks() bool { return b.Kind().Router && !b.Unsharded }

func (b *Base) Known() (r mongoclock.Reading, known bool) {
	if b.kind.Load() == nil {
		return r, false
	}
	return b.Clock.Read()
}

// Sure is Read after a new hello, if there may have been an election since the last one.
func (b *Base) Sure(ctx context.Context) error {
	_, known := b.Known()
	switch {
	case known && b.Kind().Router:
		if b.Clock.Now().Sub(mongoclock.Moment(b.shardingSeen.Load())) < shardingAged {
			return nil
		}
		return b.checkSharding(ctx)
	case !known:
		return b.greet(ctx)
	case !b.epochs.due():
		return nil
	}
	_, err := b.ask(ctx)
	return err
}

// greet sends the first hello, which all callers that need it at one time share.
func (b *Base) greet(ctx context.Context) error {
	return b.greeting.Ask(ctx, func(ctx context.Context) error {
		if _, known := b.Known(); known {
			return nil
		}
		_, err := b.ask(ctx)
		return err
	})
}

func (b *Base) Bearing() Bearing { return b.epochs.bearing(b.Clock) }

// Believes reports whether a server time, drawn for a command that was sent at sent and is
// answered by got, may be of the clock that the command went by. If not, the machine slept
// unnoticed or another one answered, and no trust may rest on what was written by that clock.
func (b *Base) Believes(by Bearing, server time.Time, sent, got mongoclock.Moment) bool {
	most := stepSeen
	if b.Kind().Router {
		most = shardsApart
	}
	if by.Allows(server, sent, got, most) {
		return true
	}
	b.epochs.disbelieve()
	return false
}

// Refresh asks for the election again if the answer at hand is old, or may be wrong. A fault
// changes nothing.
func (b *Base) Refresh(ctx context.Context) {
	if !b.Kind().Router && b.epochs.aged() {
		_, _ = b.ask(ctx)
	}
}

// Read returns the server's clock as of now; it sends a hello if the clock is not known yet.
func (b *Base) Read(ctx context.Context) (mongoclock.Reading, error) {
	if r, known := b.Known(); known {
		return r, nil
	}
	if err := b.greet(ctx); err != nil {
		return mongoclock.Reading{}, err
	}
	return b.Now(), nil
}

// ReadFresh is Read, with a new sample if the present one is too old to judge whether a holder
// has run out.
func (b *Base) ReadFresh(ctx context.Context) error {
	r, err := b.Read(ctx)
	if err != nil || r.Fresh || b.Kind().Router {
		return err
	}
	_, err = b.ask(ctx)
	return err
}

func (b *Base) Now() mongoclock.Reading {
	r, _ := b.Clock.Read()
	return r
}

// Present returns the latest server time that has surely come.
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

// Timed takes the time in an after-image as a sample: the command that returned the image drew
// it.
func (b *Base) Timed(r Reply, at time.Time) {
	if at.IsZero() {
		return
	}
	if !b.Kind().Router && b.Clock.Surprised(at, r.Sent, stepSeen) {
		b.epochs.suspect(true)
	}
	b.Clock.Observe(at, r.Sent)
}

// Hello asks the server for its kind and its time, which it takes as a sample. It returns when
// it was sent.
func (b *Base) Hello(ctx context.Context) (server time.Time, sent mongoclock.Moment, err error) {
	a, err := b.ask(ctx)
	return a.server, a.sent, err
}

// An answer is what one hello told.
type answer struct {
	server time.Time
	sent   mongoclock.Moment

	epoch            bson.ObjectID
	elections, known bool
	sure             bool // the epoch goes on, and its dates can be trusted
}

func (b *Base) ask(ctx context.Context) (a answer, err error) {
	a.sent = b.Clock.Now()
	reply, _, err := SayHello(Bare(ctx), b.Soft.Database())
	if err != nil {
		return answer{}, err
	}
	var ok bool
	if a.server, ok = Time(reply.Lookup("localTime")); !ok {
		return answer{}, errors.New("the server does not tell its time")
	}
	if deposed(reply) {
		return answer{}, errors.New("the server that answers is no primary any more")
	}
	kind := KindOf(reply)
	if kind.Router {
		b.Clock.ObserveForWriting(a.server, a.sent)
	} else {
		jumped := b.Clock.Surprised(a.server, a.sent, stepSeen)
		b.Clock.Observe(a.server, a.sent)
		a.epoch, a.elections, a.known = epochOf(reply)
		var stepped bool
		a.sure, stepped = b.epochs.heard(a, jumped)
		if to := b.log.Load(); stepped && to != nil { // or this machine slept unnoticed
			to.Warn("mongolock: the database's clock was stepped: for ten minutes no lease is judged by it", "collection", b.Soft.Name())
		}
	}
	if b.kind.Load() != nil {
		return a, nil
	}
	return a, b.meet(ctx, kind)
}

// deposed reports whether the answer comes from a member that stepped down: its clock is not
// the primary's.
func deposed(hello bson.Raw) bool {
	for _, field := range []string{"isWritablePrimary", "ismaster"} {
		if is, ok := hello.Lookup(field).BooleanOK(); ok {
			return !is
		}
	}
	return false
}

// meet records the server's kind from the first hello, or refuses a server that cannot
// hold locks. It logs if the server is of a kind on which faults cost more.
func (b *Base) meet(ctx context.Context, k Kind) error {
	k.Numbers = k.Sessions && b.retries && k.Set
	if k.Router {
		if err := b.checkSharding(ctx); err != nil {
			return err
		}
	}
	if to := b.log.Load(); b.kind.CompareAndSwap(nil, &k) && to != nil && !k.Numbers {
		to.Info("mongolock: writes have no transaction numbers here: after a fault a key may stay taken for a TTL",
			"collection", b.Soft.Name(), "standalone", !k.Set, "sessions", k.Sessions, "retryWrites", b.retries)
	}
	return nil
}
