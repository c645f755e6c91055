package mongobase

import (
	"context"
	"slices"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A Command is a kind of command that a store sends.
type Command int

// The commands.
const (
	FindAndModify Command = iota
	Find
	GetMore
	KillCursors
	Insert
	Update
	Delete
	Aggregate
	Hello // or isMaster
	Ping
	ListCollections
	ListIndexes
	CreateIndexes
	Create
	Drop
	CollStats
	BuildInfo
	ServerStatus
	ReplSetGetConfig
	commands // the number of kinds
)

var commandNames = [commands]string{
	"findAndModify", "find", "getMore", "killCursors", "insert", "update", "delete", "aggregate", "hello", "ping", "listCollections",
	"listIndexes", "createIndexes", "create", "drop", "collStats", "buildInfo", "serverStatus", "replSetGetConfig",
}

// Count counts a command that is given to the driver. The driver may send it again by itself,
// or find no server for it, and tells neither.
func (b *Base) Count(c Command) { b.sent[c].Add(1) }

type counts [commands]atomic.Uint64

// Commands returns the number of commands sent so far, by name.
func (b *Base) Commands() map[string]uint64 {
	all := make(map[string]uint64, commands)
	for c := range b.sent {
		all[commandNames[c]] = b.sent[c].Load()
	}
	return all
}

// countBulk counts the commands of a bulk: one for each kind of write in it.
func (b *Base) countBulk(models []mongo.WriteModel) {
	var updates, deletes bool
	for _, m := range models {
		switch m.(type) {
		case *mongo.UpdateOneModel, *mongo.UpdateManyModel:
			updates = true
		case *mongo.DeleteOneModel:
			deletes = true
		}
	}
	if updates {
		b.Count(Update)
	}
	if deletes {
		b.Count(Delete)
	}
}

// BulkWrite sends an unordered bulk to one of the collections.
func (b *Base) BulkWrite(ctx context.Context, coll *mongo.Collection, models []mongo.WriteModel) (*mongo.BulkWriteResult, error) {
	b.countBulk(models)
	return coll.BulkWrite(ctx, models, unordered)
}

// FindMany reads documents of one of the collections.
func (b *Base) FindMany(ctx context.Context, coll *mongo.Collection, filter bson.D, opts ...options.Lister[options.FindOptions]) (*Cursor, error) {
	b.Count(Find)
	cursor, err := coll.Find(ctx, filter, opts...)
	if err != nil {
		return nil, err
	}
	return &Cursor{cursor, b}, nil
}

// A Cursor is the driver's cursor, and counts its commands.
type Cursor struct {
	cursor *mongo.Cursor
	base   *Base
}

// Next moves on to the next document.
func (c *Cursor) Next(ctx context.Context) bool {
	c.base.CountNext(c.cursor)
	return c.cursor.Next(ctx)
}

// Current returns the document that the cursor stands at.
func (c *Cursor) Current() bson.Raw { return c.cursor.Current }

// Left returns how many documents of the server's last answer are still to come.
func (c *Cursor) Left() int { return c.cursor.RemainingBatchLength() }

// Err returns the fault that ended the cursor.
func (c *Cursor) Err() error { return c.cursor.Err() }

// Close ends the cursor.
func (c *Cursor) Close(ctx context.Context) { _ = c.base.CloseCursor(ctx, c.cursor) } // the server ends it by itself soon enough

// All reads what is left into a slice, and closes the cursor.
func (c *Cursor) All(ctx context.Context) (all []bson.Raw, err error) {
	defer c.Close(ctx)
	for c.Next(ctx) {
		all = append(all, slices.Clone(c.Current()))
	}
	return all, c.Err()
}

// CountNext counts the command that the next step of a cursor will send, if it sends one.
func (b *Base) CountNext(cursor *mongo.Cursor) {
	if cursor.RemainingBatchLength() == 0 && cursor.ID() != 0 {
		b.Count(GetMore)
	}
}

// CloseCursor ends a cursor, also at the server if it is open there.
func (b *Base) CloseCursor(ctx context.Context, cursor *mongo.Cursor) error {
	if cursor.ID() != 0 {
		b.Count(KillCursors)
	}
	return cursor.Close(ctx)
}
