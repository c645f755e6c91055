package mongostore

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// The TTL index removes the documents of holders that crashed. It decides nothing: a key is
// free once its holders have run out, whether or not its document is there. The grace of an
// hour keeps the server's sweep far beyond any difference of clocks.
const (
	indexName  = "mongolock_expireAt"
	indexGrace = time.Hour
)

// EnsureIndex makes the TTL index, unless it exists.
func (s *Store) EnsureIndex(ctx context.Context) error {
	if err := s.refuseUnfit(ctx); err != nil {
		return err
	}
	_, err := s.base.W1.Indexes().CreateOne(server.Bare(ctx), mongo.IndexModel{
		Keys: bson.D{{Key: fieldExpireAt, Value: 1}},
		Options: options.Index().
			SetName(indexName).
			SetExpireAfterSeconds(int32(indexGrace / time.Second)).
			SetPartialFilterExpression(bson.D{{Key: fieldVersion, Value: shape}}),
	})
	return err
}

// refuseUnfit returns an error for a collection that cannot hold locks, before anything is
// written to it: a capped one would take a claim, and not remove it on MongoDB before 5.0; a time
// series might take many claims in one insert, and its _id is not unique. It asks until it has an
// answer. Without the right to ask, the collection is assumed to be a plain one.
func (s *Store) refuseUnfit(ctx context.Context) error {
	return s.unfit.Ask(ctx, func(ctx context.Context) error {
		if s.fit.Load() {
			return nil
		}
		db, name, why := s.base.W1.Database(), s.base.W1.Name(), ""
		specs, err := db.ListCollectionSpecifications(server.Bare(ctx), bson.D{{Key: "name", Value: name}})
		if class := server.ClassOf(err); err != nil && class != server.Refused && class != server.NoCommand {
			return err
		}
		for _, c := range specs {
			capped, _ := c.Options.Lookup("capped").BooleanOK()
			switch {
			case capped:
				why = "is capped: it drops old locks to make room, held or not"
			case c.Type == "view":
				why = "is a view: nothing can be written to it"
			case c.Type == "timeseries":
				why = "is a time-series collection: what is in it cannot be changed"
			}
		}
		if why != "" {
			return fmt.Errorf("the collection %s.%s %s", db.Name(), name, why)
		}
		s.fit.Store(true)
		return nil
	})
}

// firstIndex makes the index at the first grant, when the collection is there. A failure
// (missing right, conflicting index, no TTL support) is logged once and does not affect
// the lease; at most a quarter of the lease's time is spent on it.
func (s *Store) firstIndex(ctx context.Context, c *lease.Claim, g store.Grant) {
	tries := s.indexTries.Add(1)
	spare := c.Attempt.Sent.Add(g.Left / 4).Sub(s.base.Clock.Now())
	within, cancel := context.WithTimeout(ctx, min(spare, 2*time.Second))
	defer cancel()
	err := s.EnsureIndex(within)
	switch {
	case err == nil:
	case mongo.IsTimeout(err) && tries < 5:
		s.indexed.Store(false) // a short lease has little time to spare: the next grant tries
	default:
		s.logger.Warn("mongolock: no TTL index: documents of holders that died stay until their key is used again",
			"collection", s.base.W1.Name(), "error", err)
	}
}
