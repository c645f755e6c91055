package system

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// An authServer authenticates its clients.
type authServer struct {
	t    testing.TB
	uri  string // of an administrator
	root *mongo.Client
}

const authDB = "rights"

func startAuthServer(t testing.TB) authServer {
	t.Helper()
	g := authServer{t: t, uri: testserver.Start(t, "auth=1", "roles").URI}
	g.root = g.connect(nil)
	return g
}

func (g authServer) connect(as *options.Credential) *mongo.Client {
	g.t.Helper()
	return testserver.Connect(g.t, g.uri, func(o *options.ClientOptions) {
		if as != nil {
			o.SetAuth(*as)
		}
	})
}

// shell is the administrator's. The collection does not exist yet.
func (g authServer) shell() shell {
	return shell{g.t, g.root.Database(authDB).Collection("locks")}
}

// user returns the collection as a user with that role sees it.
func (g authServer) user(name, role string) *mongo.Collection {
	g.t.Helper()
	sh := g.shell()
	command := sh.command("make the user", "<DATABASE>", authDB, "<USER>", name, "<PASSWORD>", "secret of "+name)
	for i := range command {
		if command[i].Key == "roles" && role != "mongolock" {
			command[i].Value = bson.A{bson.D{{Key: "role", Value: role}, {Key: "db", Value: authDB}}}
		}
	}
	require.NoError(g.t, sh.coll.Database().RunCommand(g.t.Context(), command).Err())
	return g.connect(&options.Credential{AuthSource: authDB, Username: name, Password: "secret of " + name}).Database(authDB).Collection("locks")
}

// role creates a role with these actions on the collection of locks.
func (g authServer) role(name string, actions ...string) string {
	g.t.Helper()
	err := g.root.Database(authDB).RunCommand(g.t.Context(), bson.D{
		{Key: "createRole", Value: name},
		{Key: "privileges", Value: bson.A{bson.D{
			{Key: "resource", Value: bson.D{{Key: "db", Value: authDB}, {Key: "collection", Value: "locks"}}},
			{Key: "actions", Value: actions},
		}}},
		{Key: "roles", Value: bson.A{}},
	}).Err()
	require.NoError(g.t, err)
	return name
}

func unauthorized(err error) bool {
	const code = 13
	var refused mongo.ServerError
	return errors.As(err, &refused) && refused.HasErrorCode(code)
}

// everything does all that the library can do on a collection, with clients that log to log.
func everything(t *testing.T, coll *mongo.Collection, log *logBuffer) {
	ctx := contextFor(t, 30*time.Second)
	must := func(what string, err error) {
		t.Helper()
		assert.NoError(t, err, "%s", what)
	}
	ttl := pace.Of(3 * time.Second)
	client := newClientOn(t, coll, mongolock.TTL(ttl), mongolock.WithoutIndex(), mongolock.WithLogger(log.logger()))
	rival := newClientOn(t, coll, mongolock.WithoutIndex(), mongolock.WithLogger(log.logger()))

	one := tryAcquire(t, client, "one")
	two := tryAcquire(t, client, "two")
	_, err := rival.TryAcquire(ctx, "one")
	assert.ErrorIs(t, err, mongolock.ErrHeld, "a try")
	_, err = rival.Acquire(ctx, "one", mongolock.MaxWait(pace.Of(time.Second)))
	assert.ErrorIs(t, err, mongolock.ErrHeld, "a wait")
	must("a renewal", one.Renew(ctx))
	time.Sleep(ttl * 2 / 3) // both renewed meanwhile, in bulk
	must("a bulk of renewals", errors.Join(one.Err(), two.Err()))

	handed := make(chan error, 1)
	go func() {
		next, err := client.Acquire(ctx, "one")
		if err == nil {
			err = next.Release()
		}
		handed <- err
	}()
	time.Sleep(50 * time.Millisecond) // real: it waits
	must("a release to a waiter", one.Release())
	must("the waiter", <-handed)

	ticket, err := two.Detach(ctx)
	must("detach", err)
	two, err = rival.Resume(ctx, ticket)
	require.NoError(t, err, "resume")
	_, err = client.Inspect(ctx, "two")
	must("inspect", err)
	for _, err := range client.List(ctx, "") {
		must("list", err)
	}
	marked, err := client.Break(ctx, "two", "why", 0)
	if must("break", err); len(marked) != 1 {
		t.Errorf("broke %v", marked)
	}
	assert.ErrorIs(t, two.Renew(ctx), mongolock.ErrLost, "a broken one is renewed")
	kept := tryAcquire(t, client, "kept", mongolock.MinHold(300*time.Millisecond))
	must("a release under MinHold", kept.Release())
	next, err := rival.Acquire(ctx, "kept")
	must("after MinHold", err)
	if err == nil {
		must("the last release", next.Release())
	}
}

func TestTheMinimalRoleAllowsEverything(t *testing.T) {
	t.Parallel()
	g := startAuthServer(t)
	sh := g.shell()
	sh.run("make the role", "<DATABASE>", authDB)
	coll := g.user("service", "mongolock")
	err := coll.Database().CreateCollection(t.Context(), "others")
	require.True(t, unauthorized(err), "the server does not look at rights: %v", err)

	var log logBuffer
	everything(t, coll, &log)
	polls := 0
	// The broken lease is lost. And the machine may be busy.
	expected := func(line string) bool {
		return strings.Contains(line, "lease lost") || strings.Contains(line, "the store refuses wake-ups") || strings.Contains(line, "trying again") && strings.Contains(line, "deadline exceeded")
	}
	for _, line := range log.lines() {
		switch {
		case strings.Contains(line, "no wake-ups"):
			polls++
		case !expected(line):
			t.Errorf("logged %s", line)
		}
	}
	assert.GreaterOrEqual(t, polls, 1, "lines, of two clients, that say that they poll")
	assert.LessOrEqual(t, polls, 2, "lines, of two clients, that say that they poll")

	// Without the right to make an index.
	var once logBuffer
	client := newClientOn(t, coll, mongolock.WithLogger(once.logger()))
	for _, key := range []string{"a", "b", "c"} {
		assert.NoError(t, tryAcquire(t, client, key).Release())
	}
	lines := once.lines()
	require.Len(t, lines, 1, "logged")
	assert.Contains(t, lines[0], "no TTL index", "logged %q", lines)
	err = client.EnsureIndex(contextFor(t, 5*time.Second))
	assert.True(t, unauthorized(err), "EnsureIndex: %v", err)

	// And with it.
	sh.run("let the role make the index", "<DATABASE>", authDB)
	coll = g.user("service2", "mongolock")
	var quiet logBuffer
	client = newClientOn(t, coll, mongolock.WithLogger(quiet.logger()))
	tryAcquire(t, client, "a")
	assert.Empty(t, quiet.lines(), "logged")
	assert.NoError(t, client.EnsureIndex(contextFor(t, 5*time.Second)))
	_, err = coll.Database().ListCollectionNames(contextFor(t, 5*time.Second), bson.D{})
	assert.NoError(t, err, "may not look whether the collection is capped")

	sh.run("let the role use wake-ups", "<DATABASE>", authDB)
	var waking logBuffer
	coll = g.user("service3", "mongolock")
	everything(t, coll, &waking)
	for _, line := range waking.lines() {
		assert.NotContains(t, line, "the store refuses wake-ups")
		assert.True(t, expected(line), "logged %s", line)
	}
	specs, err := coll.Database().ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: "locks.wake"}})
	require.NoError(t, err, "wake-ups: %+v", specs)
	require.Len(t, specs, 1, "wake-ups")
	assert.True(t, specs[0].Options.Lookup("capped").Boolean(), "wake-ups: %+v", specs)
	assert.NoError(t, coll.Database().Collection("locks.wake").Drop(t.Context()), "may not mend the wake-ups")
}

// docs/reference.md says what is missed without each action.
func TestEveryActionOfTheMinimalRoleIsNeeded(t *testing.T) {
	t.Parallel()
	g := startAuthServer(t)
	actions := []string{"find", "insert", "update", "remove"}
	for _, missing := range actions {
		role := g.role("no-"+missing, slices.DeleteFunc(slices.Clone(actions), func(a string) bool { return a == missing })...)
		client := newClientOn(t, g.user("no-"+missing, role), mongolock.WithoutIndex(), mongolock.TTL(pace.Of(4*time.Second)))
		lease, err := client.TryAcquire(contextFor(t, 5*time.Second), missing)
		if missing != "remove" {
			assert.True(t, unauthorized(err), "without %s: %v", missing, err)
			assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, "without %s", missing)
			continue
		}
		require.NoError(t, err)
		err = lease.Release()
		assert.True(t, unauthorized(err), "released without the right to: %v", err)
	}
}

func TestTheRightToFindAllowsToInspectAndListOnly(t *testing.T) {
	t.Parallel()
	g := startAuthServer(t)
	tryAcquire(t, newClientOn(t, g.shell().coll, mongolock.WithoutIndex()), "k")
	client := newClientOn(t, g.user("looker", g.role("looks", "find")))
	status, err := client.Inspect(contextFor(t, 5*time.Second), "k")
	assert.NoError(t, err, "inspect: %+v", status)
	assert.False(t, status.Free(), "inspect: %+v", status)
	n := 0
	for _, err := range client.List(contextFor(t, 5*time.Second), "") {
		assert.NoError(t, err)
		n++
	}
	assert.Equal(t, 1, n, "lists")
	_, err = client.TryAcquire(contextFor(t, 5*time.Second), "free")
	assert.True(t, unauthorized(err), "a claim: %v", err)
	assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, "a claim")
	_, err = client.Break(contextFor(t, 5*time.Second), "k", "why", 0)
	assert.True(t, unauthorized(err), "a break: %v", err)
}

// roleFile returns the command of docs/mongolock-role.json, with its blanks filled in.
func roleFile(t testing.TB) (command bson.D) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "mongolock-role.json"))
	require.NoError(t, err)
	require.NoError(t, bson.UnmarshalExtJSON([]byte(strings.ReplaceAll(string(text), "<DATABASE>", authDB)), false, &command))
	return command
}

// granted returns "collection action" for each right of some privileges.
func granted(t testing.TB, commands ...bson.D) (rights []string) {
	t.Helper()
	for _, c := range commands {
		raw, err := bson.Marshal(c)
		require.NoError(t, err)
		var role struct {
			Privileges []struct {
				Resource struct{ Collection string }
				Actions  []string
			}
		}
		require.NoError(t, bson.Unmarshal(raw, &role))
		for _, p := range role.Privileges {
			for _, a := range p.Actions {
				rights = append(rights, p.Resource.Collection+" "+a)
			}
		}
	}
	slices.Sort(rights)
	return slices.Compact(rights)
}

func TestUnderTheRoleOfTheFileNothingIsMissing(t *testing.T) {
	t.Parallel()
	g := startAuthServer(t)
	sh := g.shell()
	assert.Equal(t, granted(t,
		sh.command("make the role", "<DATABASE>", authDB),
		sh.command("let the role make the index", "<DATABASE>", authDB),
		sh.command("let the role use wake-ups", "<DATABASE>", authDB)), granted(t, roleFile(t)), "the file has what the recipes grant, and no more")

	require.NoError(t, sh.coll.Database().RunCommand(t.Context(), roleFile(t)).Err())
	coll := g.user("service", "mongolock")
	require.True(t, unauthorized(coll.Database().CreateCollection(t.Context(), "others")), "the server looks at rights")
	var log logBuffer
	everything(t, coll, &log)
	indexed := newClientOn(t, coll, mongolock.WithLogger(log.logger()))
	assert.NoError(t, tryAcquire(t, indexed, "indexed").Release())
	for _, line := range log.lines() {
		for _, missing := range []string{"refuses wake-ups", "no wake-ups", "no TTL index", "nauthorized"} {
			assert.NotContains(t, line, missing)
		}
	}
}
