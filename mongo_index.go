package mongolock

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/store"
)

// The TTL index collects the documents of holders that died. It decides nothing:
// an expired document is taken over whether it is there or not, and the hour's
// grace keeps the server's sweep far from anybody's clock.
const (
	mongoIndexName  = "mongolock_expireAt"
	mongoIndexGrace = time.Hour
)

// EnsureIndex makes the TTL index, if it is not there.
func (m *mongoStore) EnsureIndex(ctx context.Context) error {
	_, err := m.soft.Indexes().CreateOne(bare(ctx), mongo.IndexModel{
		Keys: bson.D{{Key: fieldExpireAt, Value: 1}},
		Options: options.Index().
			SetName(mongoIndexName).
			SetExpireAfterSeconds(int32(mongoIndexGrace / time.Second)).
			SetPartialFilterExpression(bson.D{{Key: fieldMark, Value: mongoShape}}),
	})
	return err
}

// indexOnce makes the index at the first grant: the collection is there by then,
// and nobody had to think of it. What hinders it, a right, an index of other
// options, a server without TTL, is logged once and no concern of the lease's; of
// whose time it may use up only a part.
func (m *mongoStore) indexOnce(ctx context.Context, c *mongoClaim, g store.Grant) {
	if m.noIndex || m.indexed.Swap(true) {
		return
	}
	tries := m.indexTries.Add(1)
	spare := c.sent.Add(g.Left / 4).Sub(m.clock.Now())
	ctx, cancel := context.WithTimeout(ctx, min(spare, 2*time.Second))
	defer cancel()
	err := m.EnsureIndex(ctx)
	switch {
	case err == nil:
	case mongo.IsTimeout(err) && tries < 5:
		m.indexed.Store(false) // a short lease has little time to spare: the next one tries
	default:
		m.logger.Warn("mongolock: no TTL index: documents of holders that died stay until their key is used again",
			"collection", m.soft.Name(), "error", err)
	}
}
