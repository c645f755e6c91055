package pathlock

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongoerr"
)

// sample asks for the server's time. A router's is another machine's and judges
// nobody, so there the document itself is asked, by a write that changes nothing else.
func (m *Mongo) sample(ctx context.Context, found mongoFound) error {
	if s := m.met.Load(); s == nil || !s.router {
		if err := m.hello(ctx); err != nil {
			return notApplied(err)
		}
	}
	if !m.met.Load().router || found.raw == nil {
		return nil
	}
	sent := m.clock.Now()
	image, err := m.voted.FindOneAndUpdate(ctx,
		bson.D{{Key: "_id", Value: found.raw.Lookup("_id")}, {Key: fieldMark, Value: mongoVersion}},
		bson.D{{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(bson.D{{Key: fieldAt, Value: 1}})).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil
	}
	if err != nil {
		return notApplied(err)
	}
	if at, ok := timeOf(image.Lookup(fieldAt)); ok {
		m.clock.Observe(at, sent)
	}
	return nil
}

// hello asks the server who it is and what its clock shows.
func (m *Mongo) hello(ctx context.Context) error {
	db := m.voted.Database()
	sent := m.clock.Now()
	reply, err := db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	if mongoerr.ClassOf(err) == mongoerr.NoCommand { // 4.4.0 and 4.4.1
		sent = m.clock.Now()
		reply, err = db.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Raw()
	}
	if err != nil {
		return err
	}
	at, ok := timeOf(reply.Lookup("localTime"))
	if !ok {
		return errors.New("the server does not tell its time")
	}
	kind, _ := reply.Lookup("msg").StringValueOK()
	if kind != "isdbgrid" {
		m.clock.Observe(at, sent)
		m.met.Store(&mongoServer{})
		return nil
	}
	m.clock.ObserveForWriting(at, sent)
	if m.met.Load() != nil {
		return nil
	}
	// Each shard has a clock of its own, and one that judged by another's would judge
	// wrong.
	stats, err := db.RunCommand(ctx, bson.D{{Key: "collStats", Value: m.voted.Name()}}).Raw()
	if c := mongoerr.ClassOf(err); err != nil && c != mongoerr.Refused && c != mongoerr.NoCommand {
		return err
	}
	if is, _ := stats.Lookup("sharded").BooleanOK(); err == nil && is {
		return fmt.Errorf("the collection %s.%s is sharded: trees need one that is not", db.Name(), m.voted.Name())
	}
	m.met.Store(&mongoServer{router: true})
	return nil
}
