//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// An examination is what doctor said, by the check.
type examination struct {
	t     *testing.T
	code  int
	lines map[string][]finding
}

func (p *program) doctor(args ...string) examination {
	p.t.Helper()
	r := p.start(append([]string{"doctor", "--output", "json"}, args...)...)
	e := examination{p.t, r.code(), map[string][]finding{}}
	for line := range strings.Lines(r.out.String()) {
		var f finding
		require.NoError(p.t, json.Unmarshal([]byte(line), &f), "%s", line)
		e.lines[f.Check] = append(e.lines[f.Check], f)
	}
	return e
}

func TestAnInterruptedDoctorEndsAsTheSignalSays(t *testing.T) {
	p := newProgram(t)
	r := p.start("doctor", "--uri", "mongodb://127.0.0.1:1")
	time.Sleep(pace.Of(300 * time.Millisecond)) // real: it looks for the server
	r.signal(syscall.SIGTERM)
	assert.Equal(t, exitSignal+int(syscall.SIGTERM), r.code())
	assert.Empty(t, r.out.String())
}

// says checks that a line of a check has that level and that text.
func (e examination) says(check string, l level, text string) {
	e.t.Helper()
	for _, f := range e.lines[check] {
		if f.Level == l && strings.Contains(f.Says+" "+f.Do, text) {
			return
		}
	}
	e.t.Errorf("no %s of %q says %q: %+v", l, check, text, e.lines)
}

// through is the program, with the server behind a proxy.
func (p *program) through(proxy *faultproxy.Proxy) *program {
	return &program{p.t, append(p.env, "MONGODB_URI="+proxy.DirectURI()), p.dir}
}

// database is the one of the test.
func (p *program) database() *mongo.Database {
	p.t.Helper()
	for _, v := range p.env {
		if name, ok := strings.CutPrefix(v, "MONGOLOCK_DB="); ok {
			return testserver.Client(p.t).Database(name)
		}
	}
	p.t.Fatal("the test has no database")
	return nil
}

func TestDoctorFindsAHealthyServerHealthyAndLeavesNothing(t *testing.T) {
	p := newProgram(t)
	testserver.Need(t, "operationtime", "capped")
	e := p.doctor()
	assert.Equal(t, 0, e.code, "%+v", e.lines)
	assert.Len(t, e.lines, len(checks)+2)
	names, err := p.database().ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.Empty(t, names)

	// With the collection in place, in use, and its wake-ups.
	client, err := mongolock.New(p.database().Collection("locks"), mongolock.WithOwner("billing-7"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	_, err = client.TryAcquire(t.Context(), "nightly")
	require.NoError(t, err)
	e = p.doctor()
	assert.Equal(t, 0, e.code, "%+v", e.lines)
	e.says("held longest", ok, "nightly for")
	e.says("index", ok, "1h0m0s")
	e.says("wake-ups", ok, "heard after")
	n, err := p.database().Collection("locks").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, n, "documents, of one key that is held")
	names, err = p.database().ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.Equal(t, []string{"locks"}, names)
}

func TestDoctorWarnsThatARouterHidesTheClocksOfTheShards(t *testing.T) {
	x := &exam{c: &doctorCmd{TTL: 30 * time.Second}}
	one := []tick{{host: "a:27017", least: -time.Millisecond, most: time.Millisecond}}
	x.spread(one)
	x.facts.Router = true
	x.spread(one)
	assert.Equal(t, ok, x.found[0].Level, "a server")
	f := x.found[1]
	assert.Equal(t, warning, f.Level)
	assert.Contains(t, f.Says, "their clocks are not seen")
	assert.Contains(t, f.Do, "each shard")
}

func TestDoctorNamesAServerThatCannotKeepLocks(t *testing.T) {
	p := newProgram(t)
	testserver.Need(t, "!operationtime")
	e := p.doctor()
	assert.Equal(t, exitDoctorFails, e.code)
	e.says("trap", failure, "ferretdb")
	e.says("topology", warning, "standalone")
}

func TestDoctorNamesEachMissingRight(t *testing.T) {
	p := newProgram(t)
	server := testserver.Start(t, "auth=1", "roles")
	root := testserver.Connect(t, server.URI).Database("rights")
	rights := []string{"find", "insert", "update", "remove"}
	for _, missing := range append(rights, "") {
		var actions bson.A
		for _, r := range rights {
			if r != missing {
				actions = append(actions, r)
			}
		}
		name := "no-" + missing
		for _, command := range []bson.D{
			{{Key: "createRole", Value: name}, {Key: "roles", Value: bson.A{}}, {Key: "privileges", Value: bson.A{bson.D{
				{Key: "resource", Value: bson.D{{Key: "db", Value: "rights"}, {Key: "collection", Value: "locks"}}}, {Key: "actions", Value: actions},
			}}}},
			{{Key: "createUser", Value: name}, {Key: "pwd", Value: "p"}, {Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: name}, {Key: "db", Value: "rights"}}}}},
		} {
			require.NoError(t, root.RunCommand(t.Context(), command).Err())
		}
		uri, err := url.Parse(server.URI)
		require.NoError(t, err)
		uri.User, uri.Path, uri.RawQuery = url.UserPassword(name, "p"), "/rights", "authSource=rights"
		as := &program{t, append(p.env, "MONGODB_URI="+uri.String(), "MONGOLOCK_DB="), p.dir}
		e := as.doctor()
		if missing == "" {
			assert.Equal(t, exitDoctorWarns, e.code, "with the least rights: %+v", e.lines)
			e.says("rights", ok, "may find, insert, update, remove")
			e.says("collection", warning, "grant listCollections")
			e.says("wake-ups", warning, "waiters poll")
			continue
		}
		assert.Equal(t, exitDoctorFails, e.code, "without %s", missing)
		e.says("rights", failure, "without the right to "+missing)
	}
	// With the role of docs/mongolock-role.json nothing is missing.
	file, err := os.ReadFile("../../docs/mongolock-role.json")
	require.NoError(t, err)
	var whole bson.D
	require.NoError(t, bson.UnmarshalExtJSON(bytes.ReplaceAll(file, []byte("<DATABASE>"), []byte("rights")), false, &whole))
	for _, command := range []bson.D{whole, {{Key: "createUser", Value: "whole"}, {Key: "pwd", Value: "p"}, {Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: "mongolock"}, {Key: "db", Value: "rights"}}}}}} {
		require.NoError(t, root.RunCommand(t.Context(), command).Err())
	}
	granted, err := url.Parse(server.URI)
	require.NoError(t, err)
	granted.User, granted.Path, granted.RawQuery = url.UserPassword("whole", "p"), "/rights", "authSource=rights"
	e := (&program{t, append(p.env, "MONGODB_URI="+granted.String(), "MONGOLOCK_DB="), p.dir}).doctor()
	e.says("rights", ok, "may find, insert, update, remove")
	for check, findings := range e.lines {
		for _, f := range findings {
			assert.False(t, strings.HasPrefix(f.Do, "grant "), "%s: %+v", check, f)
			assert.NotContains(t, f.Says, "poll", "%s: %+v", check, f)
		}
	}
	// A user that is not there at all.
	uri, err := url.Parse(server.URI)
	require.NoError(t, err)
	uri.User = url.UserPassword("nobody", "secret")
	as := &program{t, append(p.env, "MONGODB_URI="+uri.String()), p.dir}
	e = as.doctor()
	assert.Equal(t, exitDoctorFails, e.code)
	e.says("reachable", failure, "refuses the user")
	ls := as.start("ls")
	assert.Equal(t, exitRights, ls.code())
	assert.NotContains(t, ls.out.String(), "secret")
}

func TestDoctorComparesTheClocksOfAllMembers(t *testing.T) {
	for _, c := range []struct {
		name  string
		shift time.Duration
		level level
		text  string
	}{
		{"within the margin", 0, ok, "within the margin of 1s"},
		{"over the margin", 5 * time.Second, warning, "over the margin of 1s"},
		{"over a minute", 90 * time.Second, failure, "over a minute"},
		{"over a minute behind", -90 * time.Second, failure, "over a minute"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProgram(t)
			one, two := faultproxy.New(t, testserver.URI(t)), faultproxy.New(t, testserver.URI(t))
			two.ShiftClock(c.shift)
			one.On(faultproxy.Command("hello", "isMaster"), faultproxy.EditReply(func(reply bson.D) bson.D {
				edited := bson.D{{Key: "hosts", Value: bson.A{one.Addr(), two.Addr()}}}
				for _, e := range reply {
					if e.Key != "hosts" {
						edited = append(edited, e)
					}
				}
				return edited
			}))
			e := p.through(one).doctor()
			e.says("clocks", c.level, c.text)
			e.says("clocks", c.level, "2 members are")
		})
	}
}

func TestDoctorNamesAMemberThatDoesNotAnswer(t *testing.T) {
	p := newProgram(t)
	proxy := faultproxy.New(t, testserver.URI(t))
	proxy.On(faultproxy.Command("hello", "isMaster"), faultproxy.EditReply(func(reply bson.D) bson.D {
		edited := bson.D{{Key: "hosts", Value: bson.A{proxy.Addr(), "127.0.0.1:1"}}}
		for _, e := range reply {
			if e.Key != "hosts" {
				edited = append(edited, e)
			}
		}
		return edited
	}))
	e := p.through(proxy).doctor()
	e.says("clocks", warning, "127.0.0.1:1 does not tell its clock")
}

func TestDoctorNamesAFeedThatIsNotCapped(t *testing.T) {
	p := newProgram(t)
	testserver.Need(t, "capped", "operationtime")
	require.NoError(t, p.database().CreateCollection(t.Context(), "locks"))
	require.NoError(t, p.database().CreateCollection(t.Context(), "locks.wake"))
	e := p.doctor()
	assert.Equal(t, exitDoctorWarns, e.code)
	e.says("wake-ups", warning, "locks.wake is not capped")
	specs, err := p.database().ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: "locks.wake"}})
	require.NoError(t, err)
	assert.Len(t, specs, 1, "it is the operator's to drop")
}

func TestDoctorNamesACollectionThatCannotHoldLocks(t *testing.T) {
	p := newProgram(t)
	testserver.Need(t, "capped")
	require.NoError(t, p.database().CreateCollection(t.Context(), "locks", options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<16)))
	e := p.doctor()
	assert.Equal(t, exitDoctorFails, e.code)
	e.says("collection", failure, "is capped: it drops old locks")
}

func TestDoctorNamesAServerThatIsFull(t *testing.T) {
	p := newProgram(t)
	proxy := faultproxy.New(t, testserver.URI(t))
	const outOfDiskSpace = 14031
	proxy.On(faultproxy.Command("insert", "update", "findAndModify"), faultproxy.Fail(outOfDiskSpace))
	e := p.through(proxy).doctor()
	assert.Equal(t, exitDoctorFails, e.code)
	e.says("rights", failure, "disk is full")
	e.says("durable writes", failure, "disk is full")
	e.says("a lock's life", failure, "disk is full")
}

func TestDoctorNamesAMajorityThatDoesNotAnswer(t *testing.T) {
	p := newProgram(t)
	proxy := faultproxy.New(t, testserver.URI(t))
	proxy.On(faultproxy.Command("insert").Where(func(cmd bson.Raw) bool {
		w, _ := cmd.Lookup("writeConcern", "w").StringValueOK()
		return w == "majority"
	}), faultproxy.WriteConcernError(faultproxy.CodeWriteConcernTimeout))
	e := p.through(proxy).doctor()
	e.says("durable writes", failure, "majority of the members does not acknowledge")
}

func TestDoctorNamesHoldersThatRanOut(t *testing.T) {
	p := newProgram(t)
	client, err := mongolock.New(p.database().Collection("locks"), mongolock.WithOwner("billing-7"), mongolock.WithoutIndex()) // a server would remove the document meanwhile
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	lease, err := client.TryAcquire(t.Context(), "nightly")
	require.NoError(t, err)
	ago := func(d time.Duration) {
		past := time.Now().Add(-d)
		_, err := p.database().Collection("locks").UpdateByID(t.Context(), "nightly", bson.D{{Key: "$set", Value: bson.D{
			{Key: "expireAt", Value: past}, {Key: "holders." + lease.ID() + ".expireAt", Value: past},
		}}})
		require.NoError(t, err)
	}
	ago(20 * time.Minute)
	p.doctor().says("dead holders", ok, "1 that ran out and were left, the oldest 20m")
	ago(50 * time.Hour)
	p.doctor().says("dead holders", warning, "nightly of billing-7")
}

func TestDoctorDoesNotTakeAKeyThatWasKeptForADeadHolder(t *testing.T) {
	p := newProgram(t)
	client, err := mongolock.New(p.database().Collection("locks"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	lease, err := client.TryAcquire(t.Context(), "nightly", mongolock.MinHold(time.Second))
	require.NoError(t, err)
	require.NoError(t, lease.Release())
	p.doctor().says("held longest", ok, "no key is held")
	status, err := client.Inspect(t.Context(), "nightly")
	require.NoError(t, err)
	time.Sleep(status.Left() + 10*time.Millisecond) // real: the server's clock goes on
	p.doctor().says("dead holders", ok, "none has run out and is left")
}

func TestDoctorNamesAKeyThatIsHeldForLong(t *testing.T) {
	p := newProgram(t)
	client, err := mongolock.New(p.database().Collection("locks"), mongolock.WithOwner("billing-7"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	_, err = client.TryAcquire(t.Context(), "nightly")
	require.NoError(t, err)
	time.Sleep(20 * time.Millisecond) // real: longer than --long
	p.doctor("--long", "10ms").says("held longest", warning, "nightly for")
}

func TestDoctorNamesStrangersAmongTheLocks(t *testing.T) {
	p := newProgram(t)
	_, err := p.database().Collection("locks").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "an order"}})
	require.NoError(t, err)
	p.doctor().says("collection", warning, `"an order"`)
}
