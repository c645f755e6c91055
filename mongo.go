package mongolock

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/engine"
	"github.com/mongolock/mongolock/store/mongostore"
)

// New makes a client whose locks are documents of coll: one per key, with the key as its _id.
// It sends nothing yet. Every process that shares the locks uses the same collection, and keeps
// nothing else in it.
//
// The library sets its own write concern, read concern and read preference, whatever coll says.
// Close the client before the database connection.
func New(coll *mongo.Collection, opts ...ClientOption) (*Client, error) {
	conf, err := newConfig(opts)
	if coll == nil {
		err = errors.Join(errors.New("mongolock: New: the collection is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	about := []mongostore.Option{mongostore.WithLogger(conf.Logger)}
	if conf.noIndex {
		about = append(about, mongostore.WithoutIndex())
	}
	s, err := mongostore.New(coll, about...)
	if err != nil {
		return nil, err
	}
	return newClient(s, conf), nil
}

// WithoutIndex leaves making the TTL index to you: the first grant does not make it. The index
// only removes locks whose holders crashed, an hour after they ran out. Make it with
// EnsureIndex, or as docs/recipes.js shows.
func WithoutIndex() ClientOption {
	return clientOption(func(c *config) error { c.noIndex = true; return nil })
}

// EnsureIndex makes the TTL index that removes locks whose holders crashed, unless it exists.
// The first grant of a client makes the index too, but only logs a failure. An error matching errors.ErrUnsupported means
// that the store has no such index.
func (c *Client) EnsureIndex(ctx context.Context) error {
	if err := c.engine.Ready(ctx, "ensure index", ""); err != nil {
		return err
	}
	s, ok := c.store.(interface{ EnsureIndex(context.Context) error })
	if !ok {
		return &engine.Fault{Op: "ensure index", Err: errors.ErrUnsupported}
	}
	ctx, cancel := context.WithTimeout(ctx, engine.MaxCall)
	defer cancel()
	if err := s.EnsureIndex(ctx); err != nil {
		return &engine.Fault{Op: "ensure index", Err: err}
	}
	return nil
}
