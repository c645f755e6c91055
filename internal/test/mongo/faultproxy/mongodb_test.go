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

func TestShiftReplyShiftsTheReplyAlone(t *testing.T) {
	s := newSetup(t, testserver.URI(t), retries)
	s.proxy.On(faultproxy.Command("hello").Where(func(cmd bson.Raw) bool {
		mine, _ := cmd.Lookup("comment").StringValueOK()
		return mine == "mine"
	}), faultproxy.ShiftReply(time.Hour))
	at := run(t, s.coll.Database(), bson.D{{Key: "hello", Value: 1}, {Key: "comment", Value: "mine"}}).Lookup("localTime").Time()
	assert.InDelta(t, time.Hour, time.Until(at), float64(5*time.Second))
}

func TestTimestampsShiftOnlyWhenAsked(t *testing.T) {
	s := newSetup(t, testserver.URI(t, "operationtime"), noRetries)
	read := func() time.Duration {
		seconds, _ := run(t, s.coll.Database(), bson.D{{Key: "ping", Value: 1}}).Lookup("operationTime").Timestamp()
		return time.Until(time.Unix(int64(seconds), 0))
	}
	require.NoError(t, s.insert(t.Context(), "a"))
	s.proxy.ShiftClock(time.Hour)
	assert.InDelta(t, 0, read(), float64(time.Minute))
	s.proxy.ShiftClockAndTimestamps(time.Hour)
	assert.InDelta(t, time.Hour, read(), float64(time.Minute))
	assert.NoError(t, s.insert(t.Context(), "b"))
}

func TestOperationTimeAndClusterTimeAreSetAndRemoved(t *testing.T) {
	uri := testserver.URI(t, "operationtime")
	ping := bson.D{{Key: "ping", Value: 1}}
	for name, c := range map[string]struct {
		actions            []faultproxy.Action
		operation, cluster uint32 // seconds; 0: not there, 1: the server's own
	}{
		"neither touched":       {nil, 1, 1},
		"no operationTime":      {[]faultproxy.Action{faultproxy.RemoveOperationTime()}, 0, 1},
		"no $clusterTime":       {[]faultproxy.Action{faultproxy.RemoveClusterTime()}, 1, 0},
		"neither":               {[]faultproxy.Action{faultproxy.RemoveOperationTime(), faultproxy.RemoveClusterTime()}, 0, 0},
		"another operationTime": {[]faultproxy.Action{faultproxy.SetOperationTime(bson.Timestamp{T: 7, I: 1})}, 7, 1},
		"another $clusterTime":  {[]faultproxy.Action{faultproxy.SetClusterTime(bson.Timestamp{T: 8, I: 1})}, 1, 8},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, uri, retries)
			s.proxy.On(faultproxy.Command(), c.actions...)
			for range 2 { // the second command would tell the server what the driver learnt
				reply := run(t, s.coll.Database(), ping)
				check := func(what string, want uint32, path ...string) {
					t.Helper()
					got, _, there := reply.Lookup(path...).TimestampOK()
					assert.Equal(t, want > 0, there, what)
					if want > 1 {
						assert.Equal(t, want, got, what)
					}
				}
				check("operationTime", c.operation, "operationTime")
				check("$clusterTime", c.cluster, "$clusterTime", "clusterTime")
			}
			assert.NoError(t, s.insert(t.Context(), "x"))
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

func TestRetargetLeadsToAnotherServer(t *testing.T) {
	proxy := faultproxy.New(t, "127.0.0.1:1") // where nothing listens
	client := connect(t, proxy.DirectURI(), noRetries)
	require.Error(t, client.Ping(soon(t, 300*time.Millisecond), nil), "something listens on port 1")
	elsewhere := faultproxy.New(t, faultproxy.StartFake(t))
	proxy.Retarget(elsewhere.Addr())
	require.Eventually(t, func() bool { return client.Ping(soon(t, time.Second), nil) == nil },
		10*time.Second, 10*time.Millisecond, "the client does not reach the other server")
}
