package faultproxy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

func run(t *testing.T, db *mongo.Database, cmd bson.D) bson.Raw {
	t.Helper()
	reply, err := db.RunCommand(t.Context(), cmd).Raw()
	require.NoError(t, err)
	return reply
}

var (
	hello          = bson.D{{Key: "hello", Value: 1}}
	unacknowledged = writeconcern.Unacknowledged()
)

func TestAServerWhoseClockIsAnHourOffIsCoherent(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			uri := testserver.URI(t)
			s := newSetup(t, uri, retries)
			s.proxy.ShiftClock(off)
			near := func(what string, at time.Time, want time.Duration) {
				t.Helper()
				assert.InDelta(t, want, time.Until(at), float64(5*time.Second), "%s from now", what)
			}
			now := run(t, s.coll.Database(), hello).Lookup("localTime").Time()
			near("localTime", now, off)

			filter := bson.D{{Key: "_id", Value: "x"}}
			var image struct{ At, ExpireAt time.Time }
			err := s.coll.FindOneAndUpdate(t.Context(), filter, bson.D{
				{Key: "$set", Value: bson.D{{Key: "expireat", Value: now.Add(time.Minute)}}},
				{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}},
			}, options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&image)
			require.NoError(t, err)
			near("$currentDate", image.At, off)
			assert.True(t, image.ExpireAt.Equal(now.Add(time.Minute)), "a date came back as %v, was %v", image.ExpireAt, now.Add(time.Minute))
			count := func(op string, than time.Time) int64 {
				t.Helper()
				n, err := s.coll.CountDocuments(t.Context(), bson.D{{Key: "expireat", Value: bson.D{{Key: op, Value: than}}}})
				require.NoError(t, err)
				return n
			}
			assert.Equal(t, []int64{1, 0, 1}, []int64{count("$eq", image.ExpireAt), count("$lte", now), count("$gt", now)}, "filters and stored dates do not fit")
			if n, err := s.coll.CountDocuments(t.Context(), bson.D{{Key: "$expr", Value: bson.D{{Key: "$gt", Value: bson.A{"$expireat", "$$NOW"}}}}}); err == nil {
				assert.EqualValues(t, 1, n, "$$NOW and stored dates do not fit")
			}

			var stored struct{ At, ExpireAt time.Time }
			require.NoError(t, s.direct.FindOne(t.Context(), filter).Decode(&stored))
			near("at, past the proxy,", stored.At, 0)
			assert.True(t, stored.ExpireAt.Equal(image.ExpireAt.Add(-off)), "stored as %v", stored.ExpireAt)
		})
	}
}

func TestADirectConnectionStaysOnTheProxyToo(t *testing.T) {
	uri := testserver.URI(t)
	proxy := faultproxy.New(t, uri)
	client := connect(t, proxy.DirectURI(), noRetries)
	reply := run(t, client.Database("admin"), bson.D{{Key: "hello", Value: 1}})
	if me, ok := reply.Lookup("me").StringValueOK(); ok {
		assert.Equal(t, proxy.Addr(), me)
	}
	assert.NotZero(t, proxy.Count("hello"), "the command did not go through the proxy")
}

func TestAnUnacknowledgedWriteHasNoReplyToDrop(t *testing.T) {
	s := newSetup(t, testserver.URI(t), noRetries)
	dropped := s.proxy.On(faultproxy.Command("insert").Nth(1), faultproxy.DropReply())
	coll := s.coll.Clone(options.Collection().SetWriteConcern(unacknowledged))
	_, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "x"}})
	assert.NoError(t, err)
	require.Eventually(t, func() bool { return s.direct.FindOne(t.Context(), bson.D{{Key: "_id", Value: "x"}}).Err() == nil },
		5*time.Second, 10*time.Millisecond, "never applied")
	select {
	case <-dropped.Fired():
		t.Error("there was no reply to drop")
	default:
	}
	assert.Equal(t, 1, dropped.Hits())
}
