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
	commands // the number of kinds
)

var commandNames = [commands]string{
	"findAndModify", "find", "getMore", "killCursors", "insert", "update", "delete", "aggregate", "hello", "ping", "listCollections",
	"listIndexes", "createIndexes", "create", "drop", "collStats",
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
	*mongo.Cursor
	base *Base
}

// Next and TryNext are the driver's.
func (c *Cursor) Next(ctx context.Context) bool {
	c.countNext()
	return c.Cursor.Next(ctx)
}

func (c *Cursor) TryNext(ctx context.Context) bool {
	c.countNext()
	return c.Cursor.TryNext(ctx)
}

func (c *Cursor) countNext() {
	if c.RemainingBatchLength() == 0 && c.ID() != 0 {
		c.base.Count(GetMore)
	}
}

// All reads what is left into a slice, and closes the cursor.
func (c *Cursor) All(ctx context.Context) (all []bson.Raw, err error) {
	defer c.Close(ctx)
	for c.Next(ctx) {
		all = append(all, slices.Clone(c.Current))
	}
	return all, c.Err()
}

// Close ends the cursor, also at the server if it is open there.
func (c *Cursor) Close(ctx context.Context) {
	if c.ID() != 0 {
		c.base.Count(KillCursors)
	}
	_ = c.Cursor.Close(ctx) // the server ends it by itself soon enough
}
