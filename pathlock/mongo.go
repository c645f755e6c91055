package pathlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/feed"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A Mongo keeps trees in a collection, one document for each lock. OnMongo makes one.
//
//	mongo.go           the collection, its options and its indexes
//	mongo_document.go  the documents, and the values by which they are found
//	mongo_lock.go      Lock: add, look, clear the way, keep or withdraw
//	mongo_look.go      the reads
//	mongo_over.go      when a lock has run out
//	mongo_judge.go     what a Lock concludes from a read
//	mongo_refresh.go   Refresh
//	mongo_end.go       Release, and the removal of locks that will not be used
//	mongo_word.go      the word of waiters
type Mongo struct {
	base  *server.Collection
	wakes store.Feed // beside the collection

	noIndex bool
	indexed atomic.Bool // the first Lock made the indexes, or tried to
}

// A MongoOption changes a Mongo.
type MongoOption interface{ apply(*Mongo) error }

type mongoOption func(*Mongo) error

func (o mongoOption) apply(m *Mongo) error { return o(m) }

// WithoutIndex leaves the indexes to the caller: the first Lock does not make them. See
// EnsureIndex.
func WithoutIndex() MongoOption {
	return mongoOption(func(m *Mongo) error { m.noIndex = true; return nil })
}

// OnMongo makes a storage in a collection, which may be that of the locks of package mongolock.
// It sends nothing. It sets its own write concerns, read concern and read preference. The
// collection must not be sharded.
func OnMongo(coll *mongo.Collection, opts ...MongoOption) (*Mongo, error) {
	return onMongo(coll, server.Monotonic(), opts...)
}

func onMongo(coll *mongo.Collection, now func() server.Moment, opts ...MongoOption) (*Mongo, error) {
	m := new(Mongo)
	err := apply("MongoOption", m, opts)
	if coll == nil {
		err = errors.Join(errors.New("pathlock: OnMongo: the collection is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	m.base = server.New(coll, now)
	m.wakes = feed.Beside(m.base)
	m.base.Unsharded = true // the look between insert and grant must be of one primary
	return m, nil
}

// mongoIndexes returns the indexes. By the first two each request finds only the locks in its
// way. The third removes the records of locks that ran out an hour ago and that no request
// found; it decides nothing. (The driver changes the models that it is given, so each call
// needs its own.)
func mongoIndexes() []mongo.IndexModel {
	return []mongo.IndexModel{
		{Keys: bson.D{{Key: fieldOn, Value: 1}}, Options: options.Index().SetName("pathlock_on").SetSparse(true)},
		{Keys: bson.D{{Key: fieldUnder, Value: 1}}, Options: options.Index().SetName("pathlock_under").SetSparse(true)},
		{Keys: bson.D{{Key: fieldUntil, Value: 1}}, Options: options.Index().SetName("pathlock_until").
			SetExpireAfterSeconds(int32(time.Hour / time.Second)).SetPartialFilterExpression(bson.D{{Key: fieldVersion, Value: mongoVersion}})},
	}
}

const indexFor = 5 * time.Second // bounds the attempt of the first Lock to make the indexes

// EnsureIndex makes the indexes, unless they exist. The first Lock does so too, unless
// WithoutIndex forbids it. Without them every request reads the whole collection.
func (m *Mongo) EnsureIndex(ctx context.Context) error {
	ctx = server.Bare(ctx)
	_, err := m.base.W1.Indexes().CreateMany(ctx, mongoIndexes())
	if err == nil {
		return nil
	}
	errs := []error{err}
	if errors.As(err, new(mongo.CommandError)) { // for one of them: a server may lack TTL or partial indexes
		errs = nil
		for _, index := range mongoIndexes() {
			_, err := m.base.W1.Indexes().CreateOne(ctx, index)
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pathlock: EnsureIndex: %w", err)
	}
	return nil
}

// indexOnce makes the indexes before the first Lock. A failure does not affect the lock.
func (m *mongoTree) indexOnce(ctx context.Context) {
	if m.noIndex || m.indexed.Swap(true) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, indexFor)
	defer cancel()
	if err := m.EnsureIndex(ctx); err != nil {
		m.logger.Warn("pathlock: an index is missing: requests are slow, or the records of expired locks stay",
			"collection", m.base.W1.Name(), "error", err)
	}
}

func (m *Mongo) open(name string, logger *slog.Logger) treeStore {
	return &mongoTree{Mongo: m, name: name, logger: logger}
}

// A mongoTree is the store of one tree in a collection. It remembers only the tree's word.
type mongoTree struct {
	*Mongo
	name   string
	logger *slog.Logger
	knownWord
	refused atomic.Int64 // the moment when the last lock was refused; 0: none was
	met     atomic.Bool  // the document under the tree's name was read, and is ours
}

func (m *mongoTree) feed() store.Feed { return m.wakes }

func (m *mongoTree) prompt() bool { return false }
