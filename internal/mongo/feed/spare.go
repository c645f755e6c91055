package feed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// errOneConnection ends a feed for good: reading it would keep every renewal waiting.
var errOneConnection = fmt.Errorf("the wake-ups need a connection of their own, and maxPoolSize is 1: %w", errors.ErrUnsupported)

const (
	spareAfter  = 50 * time.Millisecond // the read of the feed is under way by then
	spareWithin = 100 * time.Millisecond
)

// needSpare gives errOneConnection if the read of the feed, which is under way, has the only
// connection that the client may open. The driver tells the size of its pool only in the error
// of a command that got no connection in time.
func (f *Feed) needSpare(ctx context.Context, give context.CancelCauseFunc) {
	timer := time.NewTimer(spareAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, spareWithin)
	defer cancel()
	err := f.coll.Database().RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}, options.RunCmd().SetReadPreference(readpref.Primary())).Err()
	var full topology.WaitQueueTimeoutError
	if errors.As(err, &full) && strings.Contains(full.Error(), "maxPoolSize: 1,") {
		give(errOneConnection)
	}
}
