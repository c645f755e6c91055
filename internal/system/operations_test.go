package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	"github.com/mongolock/mongolock/internal/testserver"
)

const operations = "../../docs/operations.md"

// tried are the recipes of docs/operations.md that the tests below run.
var triedRecipes = []string{
	"make the index", "see the indexes", "drop the index",
	"make the role", "make the user", "let the role make the index", "let the role use wake-ups",
	"look at one lock", "list what is held", "list one service's locks", "list what has run out", "list strangers",
	"break a lock", "free a lock", "free one of those who share", "let readers in again", "wake those who wait", "remove what has run out", "remove every lock",
}

var recipeBlock = regexp.MustCompile("(?s)```js\ndb\\.runCommand\\(([^`]*)\\)\n```\n<!-- recipe: ([^\n]*) -->")

func operationsPage(t testing.TB) string {
	t.Helper()
	page, err := os.ReadFile(operations)
	require.NoError(t, err)
	return string(page)
}

func TestEveryRecipeIsTried(t *testing.T) {
	t.Parallel()
	page := operationsPage(t)
	var found []string
	for _, m := range recipeBlock.FindAllStringSubmatch(page, -1) {
		found = append(found, m[2])
		assert.Contains(t, triedRecipes, m[2], "a recipe that no test tries")
	}
	blocks := strings.Count(page, "```js")
	assert.Equal(t, len(found), blocks, "%d js blocks, %d recipes in them, %d tried", blocks, len(found), len(triedRecipes))
	assert.Len(t, found, len(triedRecipes), "recipes tried")
}

// A kitchen runs recipes: with the name of a collection for locks, and what is to
// be filled in.
type shell struct {
	t    testing.TB
	coll *mongo.Collection
}

func (sh shell) command(name string, filled ...string) bson.D {
	sh.t.Helper()
	for _, m := range recipeBlock.FindAllStringSubmatch(operationsPage(sh.t), -1) {
		if m[2] != name {
			continue
		}
		filled = append(filled, // as a shell would
			"ObjectId()", `{"$oid": "`+bson.NewObjectID().Hex()+`"}`,
			"new Date(db.hello().localTime - 60000)", `{"$date": "`+sh.serverTime().Add(-time.Minute).Format(time.RFC3339Nano)+`"}`)
		text := strings.NewReplacer(append(filled, `"topic": "locks"`, `"topic": "locks"`, `"locks"`, `"`+sh.coll.Name()+`"`, `"locks.wake"`, `"`+sh.coll.Name()+`.wake"`)...).Replace(m[1])
		require.Empty(sh.t, regexp.MustCompile(`<[A-Z]+>`).FindString(text), "%q is not filled in", name)
		var command bson.D
		require.NoError(sh.t, bson.UnmarshalExtJSON([]byte(text), false, &command), "%q is not strict extended JSON", name)
		return command
	}
	sh.t.Fatalf("no recipe %q", name)
	return nil
}

// serverTime is what db.hello().localTime shows in a shell.
func (sh shell) serverTime() time.Time {
	sh.t.Helper()
	hello, err := sh.coll.Database().RunCommand(contextFor(sh.t, 10*time.Second), bson.D{{Key: "hello", Value: 1}}).Raw()
	require.NoError(sh.t, err)
	return hello.Lookup("localTime").Time().UTC()
}

func (sh shell) try(name string, filled ...string) (bson.Raw, error) {
	sh.t.Helper()
	return sh.coll.Database().RunCommand(contextFor(sh.t, 10*time.Second), sh.command(name, filled...)).Raw()
}

func (sh shell) run(name string, filled ...string) bson.Raw {
	sh.t.Helper()
	reply, err := sh.try(name, filled...)
	if err == nil && !reply.Lookup("writeErrors").IsZero() {
		err = errors.New(reply.Lookup("writeErrors").String())
	}
	require.NoError(sh.t, err, "%q", name)
	return reply
}

// listed are the documents of a find, by key and in order.
func (sh shell) listed(name string, filled ...string) []string {
	sh.t.Helper()
	keys := []string{}
	for _, raw := range sh.documents(name, filled...) {
		keys = append(keys, raw.Lookup("_id").StringValue())
	}
	return keys
}

func (sh shell) documents(name string, filled ...string) []bson.Raw {
	sh.t.Helper()
	values, err := sh.run(name, filled...).Lookup("cursor", "firstBatch").Array().Values()
	require.NoError(sh.t, err)
	documents := make([]bson.Raw, len(values))
	for i, v := range values {
		documents[i] = v.Document()
	}
	return documents
}

// needsNow skips a test where the server knows no $$NOW in a filter, by that name,
// or fails it if MONGOLOCK_REQUIRE lists "now".
func (sh shell) needsNow() {
	sh.t.Helper()
	const notImplemented = 238
	_, err := sh.try("list what is held")
	if refused, ok := errors.AsType[mongo.ServerError](err); !ok || !refused.HasErrorCode(notImplemented) {
		return
	}
	testserver.URI(sh.t, "now") // which no server here has
}

// insert puts in a document that no library of ours wrote.
func (sh shell) insert(key string, fields ...bson.E) {
	sh.t.Helper()
	_, err := sh.coll.InsertOne(contextFor(sh.t, 10*time.Second), append(bson.D{{Key: "_id", Value: key}}, fields...))
	require.NoError(sh.t, err)
}

// crash makes the document of a lease that nobody renews one that ran out.
func (sh shell) crash(l *mongolock.Lease) {
	sh.t.Helper()
	past := time.Now().Add(-2 * time.Minute) // longer ago than the recipe that removes it asks for
	_, err := sh.coll.UpdateOne(contextFor(sh.t, 10*time.Second), bson.D{{Key: "_id", Value: l.Key()}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "expireAt", Value: past}, {Key: "holders." + l.ID() + ".expireAt", Value: past}}}})
	require.NoError(sh.t, err)
}

// A street is a collection with one of everything: a lock that is held, one whose
// holder crashed, a stranger, and a document of ours in disorder.
func shellOverOneOfEach(t testing.TB) (sh shell, held *mongolock.Lease) {
	t.Helper()
	client, coll := newClient(t, mongolock.WithoutIndex())
	sh = shell{t, coll}
	held = tryAcquire(t, client, "billing:held")
	sh.crash(tryAcquire(t, client, "crashed", mongolock.NoRenewal()))
	sh.insert("stranger", bson.E{Key: "expireAt", Value: time.Now().Add(-time.Hour)})
	sh.insert("disorder", bson.E{Key: "mongolock", Value: 1}, bson.E{Key: "expireAt", Value: "soon"})
	sh.insert("endless", bson.E{Key: "mongolock", Value: 1})
	return sh, held
}

func ended(t testing.TB, l *mongolock.Lease, within time.Duration) error {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(within):
		t.Fatalf("not over within %v", within)
	}
	return l.Err()
}

func TestTheRecipeToLookAtALockShowsItsHolder(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t, mongolock.WithOwner("worker-7"))
	sh := shell{t, coll}
	lease := tryAcquire(t, client, "k", mongolock.Note("run of May 3rd"))
	found := sh.documents("look at one lock", "<KEY>", "k")
	require.Len(t, found, 1, "documents")
	holder := found[0].Lookup("holders", lease.ID())
	assert.Equal(t, "worker-7", holder.Document().Lookup("owner").StringValue(), "owner")
	assert.Equal(t, "run of May 3rd", holder.Document().Lookup("note").StringValue(), "note")
	require.NoError(t, lease.Release())
	assert.Empty(t, sh.documents("look at one lock", "<KEY>", "k"), "a free key")
}

func TestTheRecipesListAServicesLocksAndForeignDocuments(t *testing.T) {
	t.Parallel()
	sh, _ := shellOverOneOfEach(t)
	assert.Equal(t, []string{"billing:held"}, sh.listed("list one service's locks", "<PREFIX>", "billing:"), "billing")
	assert.Empty(t, sh.listed("list one service's locks", "<PREFIX>", "illing:"), "what begins otherwise")
	assert.Equal(t, []string{"stranger"}, sh.listed("list strangers"), "strangers")
}

func TestTheRecipesListHeldAndExpiredLocks(t *testing.T) {
	t.Parallel()
	sh, _ := shellOverOneOfEach(t)
	sh.needsNow()
	assert.Equal(t, []string{"billing:held"}, sh.listed("list what is held"), "held")
	assert.Equal(t, []string{"crashed"}, sh.listed("list what has run out"), "run out")
}

func TestTheRecipeRemovesOnlyExpiredLocksOnEveryVersion(t *testing.T) {
	t.Parallel()
	sh, held := shellOverOneOfEach(t)
	n := sh.run("remove what has run out").Lookup("n").AsInt64()
	require.EqualValues(t, 1, n, "locks removed")
	assert.Nil(t, storedDocument(t, sh.coll, "crashed"), "the crashed one is there")
	for _, key := range []string{"stranger", "disorder", "endless"} {
		assert.NotNil(t, storedDocument(t, sh.coll, key), "%s is gone", key)
	}
	assert.NoError(t, held.Renew(contextFor(t, 5*time.Second)), "the one that is held")
}

func TestTheRecipeThatRemovesEveryLockKeepsForeignDocuments(t *testing.T) {
	t.Parallel()
	sh, held := shellOverOneOfEach(t)
	assert.EqualValues(t, 4, sh.run("remove every lock").Lookup("n").AsInt64(), "removed")
	assert.NotNil(t, storedDocument(t, sh.coll, "stranger"), "the stranger is gone")
	assert.ErrorIs(t, held.Renew(contextFor(t, 5*time.Second)), mongolock.ErrLost, "its holder learns")
}

func TestABreakByHandTellsTheHolderWhyAndFreesTheKey(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t, mongolock.TTL(900*time.Millisecond))
	sh := shell{t, coll}
	lease := tryAcquire(t, client, "k")
	image := sh.run("break a lock", "<KEY>", "k", "<ID>", "SOMEBODYELSE", "<REASON>", "x").Lookup("value")
	assert.Equal(t, bson.TypeNull, image.Type, "broke %v by an ID that holds nothing", image)
	sh.run("break a lock", "<KEY>", "k", "<ID>", lease.ID(), "<REASON>", "node 7 is on fire")
	err := ended(t, lease, 5*time.Second)
	assert.ErrorIs(t, err, mongolock.ErrBroken, "the holder is told")
	assert.ErrorContains(t, err, "node 7 is on fire", "the holder is told")
	next, err := newClientOn(t, coll).Acquire(contextFor(t, 2*time.Second), "k")
	require.NoError(t, err, "the next")
	assert.Greater(t, next.Token(), lease.Token(), "the next")
}

func TestALockFreedByHandIsFreeAtOnceAndItsHolderIsTold(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t, mongolock.TTL(900*time.Millisecond))
	sh := shell{t, coll}
	lease := tryAcquire(t, client, "k")
	sh.run("free a lock", "<KEY>", "k", "<ID>", lease.ID())
	next := tryAcquire(t, newClientOn(t, coll), "k")
	assert.Greater(t, next.Token(), lease.Token(), "the token rises")
	image := sh.run("free a lock", "<KEY>", "k", "<ID>", lease.ID()).Lookup("value")
	assert.Equal(t, bson.TypeNull, image.Type, "the next holder was hit: %v", image)
	assert.ErrorIs(t, ended(t, lease, 5*time.Second), mongolock.ErrLost, "its holder is told")
	assert.NoError(t, next.Renew(contextFor(t, 5*time.Second)), "the next holder")
}

func TestFreeingOneSharerByHandLeavesTheOthers(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t)
	sh := shell{t, coll}
	one, two := tryAcquire(t, client, "k", mongolock.Shared()), tryAcquire(t, client, "k", mongolock.Shared())
	image := sh.run("free a lock", "<KEY>", "k", "<ID>", one.ID()).Lookup("value")
	assert.Equal(t, bson.TypeNull, image.Type, "a shared key was removed: %v", image)
	for _, l := range []*mongolock.Lease{one, one} { // said twice it finds nothing
		sh.run("free one of those who share", "<KEY>", "k", "<ID>", l.ID())
	}
	assert.ErrorIs(t, one.Renew(contextFor(t, 5*time.Second)), mongolock.ErrLost, "the freed one")
	assert.NoError(t, two.Renew(contextFor(t, 5*time.Second)), "the one that shared with it")
	sh.run("free one of those who share", "<KEY>", "k", "<ID>", two.ID())
	alone := tryAcquire(t, newClientOn(t, coll), "k")
	image = sh.run("free one of those who share", "<KEY>", "k", "<ID>", alone.ID()).Lookup("value")
	assert.Equal(t, bson.TypeNull, image.Type, "an exclusive holder was hit: %v", image)
	assert.NoError(t, alone.Release())
}

func TestTheWordOfADeadWriterIsRemovedByHand(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "atomic")
	client, coll := newClient(t)
	sh := shell{t, coll}
	reader := tryAcquire(t, client, "k", mongolock.Shared())
	// The word of a writer who was killed: one who lives takes it back, or leaves it again.
	word := bson.D{{Key: "$set", Value: bson.D{{Key: "exclusiveWantedUntil", Value: time.Now().Add(time.Minute)}}}}
	_, err := coll.UpdateByID(contextFor(t, 5*time.Second), "k", word)
	require.NoError(t, err)
	_, err = client.TryAcquire(contextFor(t, 5*time.Second), "k", mongolock.Shared())
	assert.ErrorIs(t, err, mongolock.ErrHeld, "the test shows nothing")
	sh.run("let readers in again", "<KEY>", "k")
	late := tryAcquire(t, client, "k", mongolock.Shared())
	assert.NoError(t, errors.Join(late.Release(), reader.Release()))
}

func TestAWakeUpByHandWakesTheWaiters(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "capped", "atomic")
	client, coll := newClient(t, mongolock.NoRenewal())
	sh := shell{t, coll}
	lease := tryAcquire(t, client, "k", mongolock.TTL(time.Minute))
	granted := make(chan error, 1)
	waiter := newClientOn(t, coll)
	ctx := contextFor(t, 30*time.Second)
	go func() {
		_, err := waiter.Acquire(ctx, "k")
		granted <- err
	}()
	time.Sleep(2 * time.Second) // until it listens, and polls no more
	sh.run("free a lock", "<KEY>", "k", "<ID>", lease.ID())
	select {
	case err := <-granted:
		t.Fatalf("granted without a wake-up, so the test shows nothing: %v", err)
	case <-time.After(1500 * time.Millisecond): // a poll would have come
	}
	sh.run("wake those who wait", "<KEY>", "k")
	select {
	case err := <-granted:
		assert.NoError(t, err)
	case <-time.After(2 * time.Second):
		t.Error("not granted")
	}
}

func TestTheIndexMadeByHandEqualsTheLibrarysOwn(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "ttl")
	client, coll := newClient(t, mongolock.WithoutIndex())
	sh := shell{t, coll}
	sh.run("make the index")
	byHand := sh.documents("see the indexes")
	require.Len(t, byHand, 2, "indexes")
	assert.NoError(t, client.EnsureIndex(contextFor(t, 10*time.Second)), "takes it for another")
	sh.run("drop the index")
	lease := tryAcquire(t, client, "k")
	assert.NoError(t, lease.Renew(contextFor(t, 5*time.Second)), "without it")
	assert.Len(t, sh.documents("see the indexes"), 1, "after dropping it, and WithoutIndex")
	require.NoError(t, client.EnsureIndex(contextFor(t, 10*time.Second)))
	ours := sh.documents("see the indexes")
	for _, field := range []string{"name", "key", "expireAfterSeconds", "partialFilterExpression"} {
		a, b := byHand[1].Lookup(field), ours[1].Lookup(field)
		assert.Equal(t, b.String(), a.String(), "%s is %v by hand, %v by the library", field, a, b)
	}
}

// A guarded server asks who its clients are.
type authServer struct {
	t    testing.TB
	uri  string // of somebody who may do everything
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

// kitchen is root's; the collection is not there yet.
func (g authServer) shell() shell {
	return shell{g.t, g.root.Database(authDB).Collection("locks")}
}

// user is the collection as somebody sees it who has that role.
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

// role makes one with these actions on the collection of locks.
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
	refused, ok := errors.AsType[mongo.ServerError](err)
	return ok && refused.HasErrorCode(code)
}

// everything does all that the library can do on a collection, in a client that
// logs to log.
func everything(t *testing.T, coll *mongo.Collection, log *logBuffer) {
	ctx := contextFor(t, 30*time.Second)
	must := func(what string, err error) {
		t.Helper()
		assert.NoError(t, err, "%s", what)
	}
	client := newClientOn(t, coll, mongolock.TTL(3*time.Second), mongolock.WithoutIndex(), mongolock.WithLogger(log.logger()))
	rival := newClientOn(t, coll, mongolock.WithoutIndex(), mongolock.WithLogger(log.logger()))

	one := tryAcquire(t, client, "one")
	two := tryAcquire(t, client, "two")
	_, err := rival.TryAcquire(ctx, "one")
	assert.ErrorIs(t, err, mongolock.ErrHeld, "a try")
	_, err = rival.Acquire(ctx, "one", mongolock.MaxWait(time.Second))
	assert.ErrorIs(t, err, mongolock.ErrHeld, "a wait")
	must("a renewal", one.Renew(ctx))
	time.Sleep(2 * time.Second) // both renewed meanwhile, in bulk
	must("a bulk of renewals", errors.Join(one.Err(), two.Err()))

	handed := make(chan error, 1)
	go func() {
		next, err := client.Acquire(ctx, "one")
		if err == nil {
			err = next.Release()
		}
		handed <- err
	}()
	time.Sleep(50 * time.Millisecond)
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
	// A lease is lost: the one that was broken. And the machine may be busy.
	expected := func(line string) bool {
		return strings.Contains(line, "lease lost") || strings.Contains(line, "trying again") && strings.Contains(line, "deadline exceeded")
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
		assert.True(t, expected(line), "logged %s", line)
	}
	specs, err := coll.Database().ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: "locks.wake"}})
	require.NoError(t, err, "wake-ups: %+v", specs)
	require.Len(t, specs, 1, "wake-ups")
	assert.True(t, specs[0].Options.Lookup("capped").Boolean(), "wake-ups: %+v", specs)
	assert.NoError(t, coll.Database().Collection("locks.wake").Drop(t.Context()), "may not mend the wake-ups")
}

// What the table of docs/operations.md §3 says that is missed.
func TestEveryActionOfTheMinimalRoleIsNeeded(t *testing.T) {
	t.Parallel()
	g := startAuthServer(t)
	actions := []string{"find", "insert", "update", "remove"}
	for _, missing := range actions {
		role := g.role("no-"+missing, slices.DeleteFunc(slices.Clone(actions), func(a string) bool { return a == missing })...)
		client := newClientOn(t, g.user("no-"+missing, role), mongolock.WithoutIndex(), mongolock.TTL(4*time.Second))
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

func TestEveryFieldOfTheDocumentIsDocumented(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t)
	page := operationsPage(t)
	lease := tryAcquire(t, client, "k", mongolock.MinHold(5*time.Second))
	_, err := newClientOn(t, coll).Acquire(contextFor(t, 5*time.Second), "k", mongolock.MaxWait(time.Second)) // and it left word
	require.ErrorIs(t, err, mongolock.ErrHeld)
	_, err = client.Break(contextFor(t, 5*time.Second), "k", "why", -1)
	require.NoError(t, err)
	require.NoError(t, lease.Release())
	var paths []string
	for e := range elements(t, storedDocument(t, coll, "k")) {
		paths = append(paths, e.Key())
	}
	for e := range elements(t, storedDocument(t, coll, "k").Lookup("holders", lease.ID()).Document()) {
		paths = append(paths, "holders.<ID>."+e.Key())
	}
	for _, want := range []string{"wantedUntil", "holders.<ID>.broken", "holders.<ID>.released"} {
		assert.Contains(t, paths, want, "the test does not bring out")
	}
	for _, path := range paths {
		assert.True(t, regexp.MustCompile("(?m)^\\|[^|]*`"+regexp.QuoteMeta(path)+"`").MatchString(page), "%s is in no row", path)
	}
}

func elements(t testing.TB, raw bson.Raw) func(func(bson.RawElement) bool) {
	t.Helper()
	all, err := raw.Elements()
	require.NoError(t, err)
	return slices.Values(all)
}

func TestEveryLogLineIsDocumented(t *testing.T) {
	t.Parallel()
	page := operationsPage(t)
	var sources []string
	for _, in := range []string{"../../*.go", "../../store/mongostore/*.go"} {
		found, err := filepath.Glob(in)
		require.NoError(t, err)
		sources = append(sources, found...)
	}
	call := regexp.MustCompile(`logger\.(Debug|Info|Warn|Error)\("([^"]+)"`)
	n := 0
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			n++
			assert.Contains(t, page, fmt.Sprintf("| %s | `%s` |", strings.ToLower(m[1]), m[2]), "%s: no row begins", source)
		}
	}
	assert.NotZero(t, n, "found no log line: the test shows nothing")
}

func TestTheMongoClientsOwnTimeoutDoesNotBoundALock(t *testing.T) {
	t.Parallel()
	hasty := testserver.Client(t, func(o *options.ClientOptions) { o.SetTimeout(time.Nanosecond) })
	coll := testserver.Collection(t, testserver.Client(t))
	client := newClientOn(t, hasty.Database(coll.Database().Name()).Collection(coll.Name()), mongolock.WithoutIndex())
	lease, err := client.Acquire(context.Background(), "k") // which has no end
	require.NoError(t, err)
	assert.NoError(t, errors.Join(lease.Renew(t.Context()), lease.Release()))
	for _, err := range client.List(t.Context(), "") {
		assert.Error(t, err, "not even a List without a bound of its own")
	}
}

// The advice about the pool: an application that keeps all of its connections busy
// loses its leases, unless they have some of their own.
func TestAnExhaustedConnectionPoolLosesTheLease(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "capped", "atomic") // FerretDB's tailable cursors now and then leave its database locked
	coll := testserver.Collection(t, testserver.Client(t))
	busy := testserver.Client(t, func(o *options.ClientOptions) { o.SetMaxPoolSize(1) })
	in := func(c *mongo.Client) *mongo.Collection {
		return c.Database(coll.Database().Name()).Collection(coll.Name())
	}

	slow := testserver.Collection(t, busy)
	err := slow.Database().CreateCollection(t.Context(), slow.Name(), options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<16))
	require.NoError(t, err)
	_, err = slow.InsertOne(t.Context(), bson.D{})
	require.NoError(t, err)
	cursor, err := slow.Find(t.Context(), bson.D{}, options.Find().SetCursorType(options.TailableAwait).SetBatchSize(1).SetMaxAwaitTime(4*time.Second))
	require.NoError(t, err)
	cursor.TryNext(t.Context()) // the one that is there

	shared := tryAcquire(t, newClientOn(t, in(busy)), "shared", mongolock.TTL(1500*time.Millisecond))
	own := tryAcquire(t, newClientOn(t, in(testserver.Client(t))), "own", mongolock.TTL(3*time.Second))
	done := make(chan struct{})
	go func() {
		defer close(done)
		cursor.TryNext(t.Context()) // the server waits, and the connection with it
	}()
	assert.ErrorIs(t, ended(t, shared, 4*time.Second), mongolock.ErrLost, "behind the application")
	<-done
	assert.NoError(t, own.Err(), "on a connection of its own")
	_ = cursor.Close(context.Background())
}
