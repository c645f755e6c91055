package mongolock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// A mongoStore keeps the holders of a key in one document of a collection. It is
// written to docs/design.md §3 and §4, whose table its commands follow row by row:
//
//	mongo.go          the store, its commands
//	mongo_acquire.go  acquire, and what follows a refusal
//	mongo_share.go    acquire and join, for those who share a key
//	mongo_joins.go    whose turn it is to join, in this process
//	mongo_grant.go    from an applied claim to a grant: token, time left
//	mongo_transfer.go hand over inside a process, Resume
//	mongo_renew.go    renew, one and many
//	mongo_release.go  release, MinHold's release, break
//	mongo_leave.go    leave, for those who share; clean-up of a join
//	mongo_undo.go     clean-up after an unknown outcome
//	mongo_look.go     reads
//	mongo_leases.go   what is remembered of a lease
//	mongo_doc.go      the document
//	mongo_index.go    the TTL index
//	mongo_feed.go     wake-ups
//
// The collection under our own concerns, the server, its clock and the session of
// a claim are internal/mongobase's.
type mongoStore struct {
	base *mongobase.Base
	feed mongoFeed

	noIndex    bool
	indexed    atomic.Bool // the first grant made the index, or tried to
	indexTries atomic.Int32
	logger     *slog.Logger

	leases mongoLeases
	joins  mongoQueue
	broken mongoFaults
}

// mongoOptions are what New passes on.
type mongoOptions struct {
	noIndex bool
	logger  *slog.Logger             // default: slog.Default()
	now     func() mongoclock.Moment // default: the monotonic clock; tests have their own
}

// mongoFaults take one safety out each, for the tests that show they are needed.
type mongoFaults struct {
	swapWithoutRev    bool // compare-and-swap by key alone
	dropTheLiving     bool // compare-and-swap without the dropped holders' expiry
	unmarked          bool // filters that do not ask for mongolock: 1
	deadlineFromOld   bool // a deadline from the sample at hand, not from the reply's
	undoElsewhere     bool // clean-up in a session of its own
	releaseByKeyAlone bool
	handOverByKey     bool

	joinWritesMap      bool // a join that writes the whole map of holders
	joinKeepsRev       bool // a join that leaves rev as it is
	joinIgnoresWord    bool // a join that does not ask for a writer's word
	joinDropsTheLiving bool // a join that does not name the end of whom it drops
	deleteWithoutRev   bool // the last to leave deletes by key
	undoDeletes        bool // clean-up of a join that deletes the document
}

func newMongoStore(coll *mongo.Collection, opts mongoOptions) (*mongoStore, error) {
	if coll == nil {
		return nil, errors.New("mongolock: New: the collection is nil")
	}
	if opts.logger == nil {
		opts.logger = slog.Default()
	}
	m := &mongoStore{
		base:    mongobase.New(coll, opts.now),
		noIndex: opts.noIndex,
		logger:  opts.logger,
		broken:  mongoKnobs(),
	}
	m.feed.now, m.feed.await = m.base.Clock.Now, mongoFeedAwait
	m.feed.coll = mongobase.Under(coll.Database().Collection(coll.Name()+mongoFeedSuffix), writeconcern.W1())
	return m, nil
}

// A mongoReply is the answer of one command, and what it says.
type mongoReply struct {
	mongobase.Reply
	record mongoRecord
}

// modify updates one document durably and answers its after-image.
func (m *mongoStore) modify(ctx context.Context, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (mongoReply, error) {
	return m.modifyIn(ctx, m.base.Durable, filter, update, opts)
}

// modifyIn is modify under the write concern of coll. All updates stamp the document
// with the server's time, which is taken for a sample.
func (m *mongoStore) modifyIn(ctx context.Context, coll *mongo.Collection, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (mongoReply, error) {
	r, err := m.base.Modify(ctx, coll, filter, update, opts)
	reply := mongoRead(r, readRecord)
	m.base.Timed(r, reply.record.at)
	return reply, err
}

// remove deletes one document, of which it answers the words that were left in it.
func (m *mongoStore) remove(ctx context.Context, coll *mongo.Collection, filter bson.D) (mongoReply, error) {
	r, err := m.base.Remove(ctx, coll, filter)
	return mongoRead(r, readWords), err
}

// find reads one document, whoever's it is.
func (m *mongoStore) find(ctx context.Context, key string) (mongoReply, error) {
	r, err := m.base.Find(ctx, bson.D{{Key: "_id", Value: key}})
	return mongoRead(r, readRecord), err
}

func mongoRead(r mongobase.Reply, read func(bson.Raw) mongoRecord) mongoReply {
	if !r.Found() {
		return mongoReply{Reply: r}
	}
	return mongoReply{Reply: r, record: read(r.Image)}
}

// knownMode answers an error for a mode that there is not.
func knownMode(mode store.Mode) error {
	switch mode {
	case store.Exclusive, store.Shared, store.Permits:
		return nil
	}
	return mongoerr.NotApplied(fmt.Errorf("mode %q: %w", mode, errors.ErrUnsupported))
}

// inMode asks for a document in that mode.
func inMode(mode store.Mode) bson.E { return bson.E{Key: fieldMode, Value: string(mode)} }
