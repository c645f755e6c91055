package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// The TTL index removes the documents of holders that crashed. It decides nothing: a key
// is free once its holders have run out, whether its document is there or not. The grace
// of an hour keeps the server's sweep far from anybody's clock.
const (
	indexName  = "mongolock_expireAt"
	indexGrace = time.Hour
)

// EnsureIndex makes the TTL index, if it is not there.
func (s *Store) EnsureIndex(ctx context.Context) error {
	if err := s.refuseCapped(ctx); err != nil {
		return err
	}
	_, err := s.base.Soft.Indexes().CreateOne(mongobase.Bare(ctx), mongo.IndexModel{
		Keys: bson.D{{Key: fieldExpireAt, Value: 1}},
		Options: options.Index().
			SetName(indexName).
			SetExpireAfterSeconds(int32(indexGrace / time.Second)).
			SetPartialFilterExpression(bson.D{{Key: fieldMark, Value: shape}}),
	})
	return err
}

// errCapped refuses a collection that drops documents by itself.
var errCapped = errors.New("is capped: it drops old locks to make room, held or not")

// refuseCapped answers an error for a capped collection. A view or a time series refuses
// a claim by itself, but a capped collection would take it. Without the right to ask, the
// answer is taken to be no.
func (s *Store) refuseCapped(ctx context.Context) error {
	db, name := s.base.Soft.Database(), s.base.Soft.Name()
	specs, err := db.ListCollectionSpecifications(mongobase.Bare(ctx), bson.D{{Key: "name", Value: name}})
	if err != nil || len(specs) == 0 {
		return nil // no right to look, or no time: most likely it is not
	}
	if is, _ := specs[0].Options.Lookup("capped").BooleanOK(); is {
		return fmt.Errorf("the collection %s.%s %w", db.Name(), name, errCapped)
	}
	return nil
}

// indexOnce makes the index at the first grant, when the collection is there. A failure
// (missing right, conflicting index, no TTL support) is logged once and does not affect
// the lease; at most a quarter of the lease's time is spent on it. On a capped collection
// the claim is taken back.
func (s *Store) indexOnce(ctx context.Context, c *claim, g store.Grant) error {
	if s.noIndex || s.indexed.Swap(true) {
		return nil
	}
	tries := s.indexTries.Add(1)
	spare := c.Sent.Add(g.Left / 4).Sub(s.base.Clock.Now())
	within, cancel := context.WithTimeout(ctx, min(spare, 2*time.Second))
	defer cancel()
	err := s.EnsureIndex(within)
	switch {
	case err == nil:
	case errors.Is(err, errCapped):
		s.indexed.Store(false) // look again: somebody may mend it
		c.Attempt.Twin = true
		return s.steps.Settle(c.Attempt.In(ctx), c.Claim, contender{s, c}, mongoerr.NotApplied(err))
	case mongo.IsTimeout(err) && tries < 5:
		s.indexed.Store(false) // a short lease has little time to spare: the next one tries
	default:
		s.logger.Warn("mongolock: no TTL index: documents of holders that died stay until their key is used again",
			"collection", s.base.Soft.Name(), "error", err)
	}
	return nil
}
