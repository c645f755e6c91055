package faultproxy_test

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/testserver"
)

func run(t *testing.T, db *mongo.Database, cmd bson.D) bson.Raw {
	t.Helper()
	reply, err := db.RunCommand(t.Context(), cmd).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

var (
	hello          = bson.D{{Key: "hello", Value: 1}}
	unacknowledged = writeconcern.Unacknowledged()
)

func TestAServerWithAClockAnHourOffIsCoherent(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			uri := testserver.URI(t)
			s := newStage(t, uri, retries)
			s.proxy.ShiftClock(off)
			near := func(what string, at time.Time, want time.Duration) {
				t.Helper()
				if d := time.Until(at) - want; d.Abs() > 5*time.Second {
					t.Errorf("%s is %v from now, want %v", what, time.Until(at), want)
				}
			}
			now := run(t, s.things.Database(), hello).Lookup("localTime").Time()
			near("localTime", now, off)

			filter := bson.D{{Key: "_id", Value: "x"}}
			var image struct{ At, ExpireAt time.Time }
			err := s.things.FindOneAndUpdate(t.Context(), filter, bson.D{
				{Key: "$set", Value: bson.D{{Key: "expireat", Value: now.Add(time.Minute)}}},
				{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}},
			}, options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&image)
			if err != nil {
				t.Fatal(err)
			}
			near("$currentDate", image.At, off)
			if !image.ExpireAt.Equal(now.Add(time.Minute)) {
				t.Errorf("a date came back as %v, was %v", image.ExpireAt, now.Add(time.Minute))
			}
			count := func(op string, than time.Time) int64 {
				t.Helper()
				n, err := s.things.CountDocuments(t.Context(), bson.D{{Key: "expireat", Value: bson.D{{Key: op, Value: than}}}})
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			if count("$eq", image.ExpireAt) != 1 || count("$lte", now) != 0 || count("$gt", now) != 1 {
				t.Error("filters and stored dates do not fit")
			}
			if n, err := s.things.CountDocuments(t.Context(), bson.D{{Key: "$expr", Value: bson.D{{Key: "$gt", Value: bson.A{"$expireat", "$$NOW"}}}}}); err == nil && n != 1 {
				t.Error("$$NOW and stored dates do not fit")
			}

			var beside struct{ At, ExpireAt time.Time }
			if err := s.beside.FindOne(t.Context(), filter).Decode(&beside); err != nil {
				t.Fatal(err)
			}
			near("at, past the proxy", beside.At, 0)
			if !beside.ExpireAt.Equal(image.ExpireAt.Add(-off)) {
				t.Errorf("stored as %v", beside.ExpireAt)
			}
		})
	}
}

func TestShiftReplyLies(t *testing.T) {
	s := newStage(t, testserver.URI(t), retries)
	s.proxy.On(faultproxy.Command("hello").Where(func(cmd bson.Raw) bool {
		mine, _ := cmd.Lookup("comment").StringValueOK()
		return mine == "mine"
	}), faultproxy.ShiftReply(time.Hour))
	at := run(t, s.things.Database(), bson.D{{Key: "hello", Value: 1}, {Key: "comment", Value: "mine"}}).Lookup("localTime").Time()
	if d := time.Until(at) - time.Hour; d.Abs() > 5*time.Second {
		t.Errorf("it says %v from now", time.Until(at))
	}
}

func TestTimestampsShiftOnlyWhenAsked(t *testing.T) {
	s := newStage(t, testserver.URI(t, "operationtime"), noRetries)
	read := func() time.Duration {
		seconds, _ := run(t, s.things.Database(), bson.D{{Key: "ping", Value: 1}}).Lookup("operationTime").Timestamp()
		return time.Until(time.Unix(int64(seconds), 0))
	}
	if err := s.insert(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	s.proxy.ShiftClock(time.Hour)
	if d := read(); d.Abs() > time.Minute {
		t.Errorf("moved by %v", d)
	}
	s.proxy.ShiftClockAndTimestamps(time.Hour)
	if d := read() - time.Hour; d.Abs() > time.Minute {
		t.Errorf("off by %v", d)
	}
	if err := s.insert(t.Context(), "b"); err != nil { // gives the $clusterTime back
		t.Error(err)
	}
}

func TestOperationTimeAndClusterTimeComeAndGo(t *testing.T) {
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
			s := newStage(t, uri, retries)
			s.proxy.On(faultproxy.Command(), c.actions...)
			for range 2 { // the second command would tell the server what the driver learnt
				reply := run(t, s.things.Database(), ping)
				check := func(what string, want uint32, path ...string) {
					t.Helper()
					got, _, there := reply.Lookup(path...).TimestampOK()
					if there != (want > 0) || want > 1 && got != want {
						t.Errorf("%s: %d, %v", what, got, there)
					}
				}
				check("operationTime", c.operation, "operationTime")
				check("$clusterTime", c.cluster, "$clusterTime", "clusterTime")
			}
			if err := s.insert(t.Context(), "x"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADriverThatConnectsDirectlyStaysToo(t *testing.T) {
	uri := testserver.URI(t)
	proxy := faultproxy.New(t, uri)
	client := connect(t, proxy.DirectURI(), noRetries)
	reply := run(t, client.Database("admin"), bson.D{{Key: "hello", Value: 1}})
	if me, ok := reply.Lookup("me").StringValueOK(); ok && me != proxy.Addr() {
		t.Errorf("the server calls itself %s", me)
	}
	if proxy.Count("hello") == 0 {
		t.Error("the command went another way")
	}
}

func TestAnUnacknowledgedWriteIsNotWaitedFor(t *testing.T) {
	s := newStage(t, testserver.URI(t), noRetries)
	dropped := s.proxy.On(faultproxy.Command("insert").Nth(1), faultproxy.DropReply())
	coll := s.things.Clone(options.Collection().SetWriteConcern(unacknowledged))
	if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "x"}}); err != nil {
		t.Error(err)
	}
	for begin := time.Now(); !s.applied(t, "x"); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 5*time.Second {
			t.Fatal("never applied")
		}
	}
	select {
	case <-dropped.Fired():
		t.Error("there was no reply to drop")
	default:
	}
	if dropped.Hits() != 1 {
		t.Errorf("%d hits", dropped.Hits())
	}
}

func TestRetargetLeadsToAnotherServer(t *testing.T) {
	proxy := faultproxy.New(t, "127.0.0.1:1") // where nothing listens
	client := connect(t, proxy.DirectURI(), noRetries)
	if err := client.Ping(soon(t, 300*time.Millisecond), nil); err == nil {
		t.Fatal("something listens on port 1")
	}
	elsewhere := faultproxy.New(t, faultproxy.StartFake(t))
	proxy.Retarget(elsewhere.Addr())
	for begin := time.Now(); client.Ping(soon(t, time.Second), nil) != nil; {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("it does not get there")
		}
	}
}
