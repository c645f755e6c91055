package mongostore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/mongo/feed"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A Store keeps the holders of each key in one document of a collection. New makes one.
type Store struct {
	base *server.Collection
	feed store.Feed

	fit        atomic.Bool   // nothing was found against the collection
	unfit      server.Shared // for the question whether there is
	indexed    atomic.Bool   // the first grant made the index, or tried to, or need not
	indexTries atomic.Int32
	logger     *slog.Logger

	steps lease.Steps
	joins joinGates
}

// An Option changes a Store. New checks all of them together.
type Option interface{ apply(*config) error }

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

type config struct {
	noIndex bool
	logger  *slog.Logger         // default: slog.Default()
	now     func() server.Moment // default: the monotonic clock; tests have their own
}

// WithoutIndex leaves making the TTL index to the caller: the first grant does not make it. The
// index only removes locks whose holders crashed, an hour after they ran out.
func WithoutIndex() Option {
	return option(func(c *config) error { c.noIndex = true; return nil })
}

// WithLogger sets where the store logs that the TTL index cannot be made, that the database's
// clock was stepped, or that its writes have no transaction numbers. It logs nothing else. The
// default is slog.Default().
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error {
		if l == nil {
			return errors.New("mongostore: WithLogger(nil): the logger is nil")
		}
		c.logger = l
		return nil
	})
}

// New makes a store whose locks are documents of coll: one per key, with the key as its _id. It
// sends nothing yet. The store sets its own write concern, read concern and read preference,
// whatever coll says.
func New(coll *mongo.Collection, opts ...Option) (*Store, error) {
	var conf config
	var errs []error
	if coll == nil {
		errs = append(errs, errors.New("mongostore: New: the collection is nil"))
	}
	for i, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("mongostore: New: option %d is nil", i+1))
			continue
		}
		errs = append(errs, o.apply(&conf))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return open(coll, conf), nil
}

func open(coll *mongo.Collection, conf config) *Store {
	if conf.logger == nil {
		conf.logger = slog.Default()
	}
	s := &Store{base: server.New(coll, conf.now), logger: conf.logger}
	s.indexed.Store(conf.noIndex)
	s.feed = feed.Beside(s.base)
	s.steps.Coll, s.steps.Layout = s.base, layout
	s.base.LogTo(conf.logger)
	return s
}

// Look reads keys with one find, however many there are.
func (s *Store) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx = server.Bare(ctx)
	err := s.base.ReadFresh(ctx)
	var images []lease.Image
	if err == nil {
		images, err = s.read(ctx, s.base.W1, keys)
	}
	if err != nil {
		return nil, server.NotApplied(err)
	}
	return s.steps.Looked(keys, images)
}

// read reads the documents of some keys, in their order, under the read concern of a collection.
func (s *Store) read(ctx context.Context, from *mongo.Collection, keys []string) ([]lease.Image, error) {
	if len(keys) == 1 && from == s.base.W1 {
		image, err := s.steps.Find(ctx, named(keys[0]))
		return []lease.Image{image}, err
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(keys)))
	found := make(map[string]lease.Image, len(distinct))
	err := s.base.FindAll(ctx, from, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: distinct}}}}, len(distinct), func(document bson.Raw) {
		d := s.steps.Read(document)
		found[d.Key] = lease.Image{Reply: server.Reply{Image: document}, Document: d}
	})
	images := make([]lease.Image, len(keys))
	for i, key := range keys {
		images[i] = found[key]
	}
	return images, err
}

// listBatch is how many documents of a list are in memory at a time. By default the server
// sends 16 MB at once.
const listBatch = 500

// List reads the keys that begin with prefix in the order of _id, which for strings is the
// order of their bytes.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		filter := bson.D{{Key: "_id", Value: prefixRange(prefix)}, {Key: fieldVersion, Value: shape}}
		for image, err := range s.steps.List(ctx, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetBatchSize(listBatch)) {
			if err != nil {
				yield(store.Status{}, err)
				return
			}
			if key := image.Key; key != "" && strings.HasPrefix(key, prefix) && !yield(s.steps.Listed(key, image.Document), nil) {
				return
			}
		}
	}
}

// prefixRange returns the bounds of the strings that begin with prefix: from the prefix up to
// the next string that does not begin with it, which is the prefix with its last rune raised.
// (A regular expression would have to be escaped, and reads the whole index if it is not.)
func prefixRange(prefix string) bson.D {
	within := bson.D{{Key: "$gte", Value: prefix}}
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		if last == utf8.RuneError || last == utf8.MaxRune {
			continue
		}
		next := last + 1
		if next == 0xD800 {
			next = 0xE000 // UTF-8 has no surrogates
		}
		return append(within, bson.E{Key: "$lt", Value: prefix + string(next)})
	}
	return within
}

// Notify sends notices with one command, if others may be listening.
func (s *Store) Notify(ctx context.Context, all ...store.Notice) error {
	return s.feed.Notify(ctx, all...)
}

// Watch yields the notices for an audience that are sent from now on.
func (s *Store) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return s.feed.Watch(ctx, of)
}

// FeedOn returns the feed by which stores on coll tell each other, for other programs' notices
// between processes, under topics of their own. They go through a small capped collection
// beside coll. It sends nothing yet.
func FeedOn(coll *mongo.Collection) (store.Feed, error) {
	if coll == nil {
		return nil, errors.New("mongostore: FeedOn: the collection is nil")
	}
	return feed.Beside(server.New(coll, nil)), nil
}

func init() {
	inside.FeedAwait = func(s any, d time.Duration) { s.(*Store).feed.(*feed.Feed).Await = d }
}
