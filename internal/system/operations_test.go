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
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func TestEveryRecipeIsTried(t *testing.T) {
	t.Parallel()
	page := operationsPage(t)
	var found []string
	for _, m := range recipeBlock.FindAllStringSubmatch(page, -1) {
		found = append(found, m[2])
		if !slices.Contains(triedRecipes, m[2]) {
			t.Errorf("nobody tries %q", m[2])
		}
	}
	if blocks := strings.Count(page, "```js"); blocks != len(found) || len(found) != len(triedRecipes) {
		t.Errorf("%d js blocks, %d recipes in them, %d tried", blocks, len(found), len(triedRecipes))
	}
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
		if left := regexp.MustCompile(`<[A-Z]+>`).FindString(text); left != "" {
			sh.t.Fatalf("%q: %s is not filled in", name, left)
		}
		var command bson.D
		if err := bson.UnmarshalExtJSON([]byte(text), false, &command); err != nil {
			sh.t.Fatalf("%q is not strict extended JSON: %v", name, err)
		}
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
	if err != nil {
		sh.t.Fatalf("%q: %v", name, err)
	}
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
	if err != nil {
		sh.t.Fatal(err)
	}
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
	if _, err := sh.coll.InsertOne(contextFor(sh.t, 10*time.Second), append(bson.D{{Key: "_id", Value: key}}, fields...)); err != nil {
		sh.t.Fatal(err)
	}
}

// crash makes the document of a lease that nobody renews one that ran out.
func (sh shell) crash(l *mongolock.Lease) {
	sh.t.Helper()
	past := time.Now().Add(-2 * time.Minute) // longer ago than the recipe that removes it asks for
	_, err := sh.coll.UpdateOne(contextFor(sh.t, 10*time.Second), bson.D{{Key: "_id", Value: l.Key()}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "expireAt", Value: past}, {Key: "holders." + l.ID() + ".expireAt", Value: past}}}})
	if err != nil {
		sh.t.Fatal(err)
	}
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
	if len(found) != 1 {
		t.Fatalf("%d documents", len(found))
	}
	holder := found[0].Lookup("holders", lease.ID())
	if owner := holder.Document().Lookup("owner").StringValue(); owner != "worker-7" {
		t.Errorf("owner %q", owner)
	}
	if note := holder.Document().Lookup("note").StringValue(); note != "run of May 3rd" {
		t.Errorf("note %q", note)
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	if left := sh.documents("look at one lock", "<KEY>", "k"); len(left) != 0 {
		t.Errorf("a free key has %v", left)
	}
}

func TestTheRecipesListAServicesLocksAndForeignDocuments(t *testing.T) {
	t.Parallel()
	sh, _ := shellOverOneOfEach(t)
	if got := sh.listed("list one service's locks", "<PREFIX>", "billing:"); !slices.Equal(got, []string{"billing:held"}) {
		t.Errorf("billing has %q", got)
	}
	if got := sh.listed("list one service's locks", "<PREFIX>", "illing:"); len(got) != 0 {
		t.Errorf("what begins otherwise: %q", got)
	}
	if got := sh.listed("list strangers"); !slices.Equal(got, []string{"stranger"}) {
		t.Errorf("strangers: %q", got)
	}
}

func TestTheRecipesListHeldAndExpiredLocks(t *testing.T) {
	t.Parallel()
	sh, _ := shellOverOneOfEach(t)
	sh.needsNow()
	if got := sh.listed("list what is held"); !slices.Equal(got, []string{"billing:held"}) {
		t.Errorf("held: %q", got)
	}
	if got := sh.listed("list what has run out"); !slices.Equal(got, []string{"crashed"}) {
		t.Errorf("run out: %q", got)
	}
}

func TestTheRecipeRemovesOnlyExpiredLocksOnEveryVersion(t *testing.T) {
	t.Parallel()
	sh, held := shellOverOneOfEach(t)
	n := sh.run("remove what has run out").Lookup("n").AsInt64()
	require.EqualValues(t, 1, n, "locks removed")
	if storedDocument(t, sh.coll, "crashed") != nil {
		t.Error("the crashed one is there")
	}
	for _, key := range []string{"stranger", "disorder", "endless"} {
		if storedDocument(t, sh.coll, key) == nil {
			t.Errorf("%s is gone", key)
		}
	}
	if err := held.Renew(contextFor(t, 5*time.Second)); err != nil {
		t.Errorf("the one that is held: %v", err)
	}
}

func TestTheRecipeThatRemovesEveryLockKeepsForeignDocuments(t *testing.T) {
	t.Parallel()
	sh, held := shellOverOneOfEach(t)
	if n := sh.run("remove every lock").Lookup("n").AsInt64(); n != 4 {
		t.Errorf("removed %d", n)
	}
	if storedDocument(t, sh.coll, "stranger") == nil {
		t.Error("the stranger is gone")
	}
	if err := held.Renew(contextFor(t, 5*time.Second)); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("its holder learns %v", err)
	}
}

func TestABreakByHandTellsTheHolderWhyAndFreesTheKey(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t, mongolock.TTL(900*time.Millisecond))
	sh := shell{t, coll}
	lease := tryAcquire(t, client, "k")
	if image := sh.run("break a lock", "<KEY>", "k", "<ID>", "SOMEBODYELSE", "<REASON>", "x").Lookup("value"); image.Type != bson.TypeNull {
		t.Errorf("broke %v by an ID that holds nothing", image)
	}
	sh.run("break a lock", "<KEY>", "k", "<ID>", lease.ID(), "<REASON>", "node 7 is on fire")
	err := ended(t, lease, 900*time.Millisecond/3+250*time.Millisecond)
	if !errors.Is(err, mongolock.ErrBroken) || !strings.Contains(err.Error(), "node 7 is on fire") {
		t.Errorf("the holder is told %v", err)
	}
	next, err := newClientOn(t, coll).Acquire(contextFor(t, 2*time.Second), "k")
	if err != nil || next.Token() <= lease.Token() {
		t.Errorf("the next: %v", err)
	}
}

func TestALockFreedByHandIsFreeAtOnceAndItsHolderIsTold(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t, mongolock.TTL(900*time.Millisecond))
	sh := shell{t, coll}
	lease := tryAcquire(t, client, "k")
	sh.run("free a lock", "<KEY>", "k", "<ID>", lease.ID())
	next := tryAcquire(t, newClientOn(t, coll), "k")
	if next.Token() <= lease.Token() {
		t.Errorf("tokens %d and then %d", lease.Token(), next.Token())
	}
	if image := sh.run("free a lock", "<KEY>", "k", "<ID>", lease.ID()).Lookup("value"); image.Type != bson.TypeNull {
		t.Errorf("the next holder was hit: %v", image)
	}
	if err := ended(t, lease, 900*time.Millisecond/3+250*time.Millisecond); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("its holder is told %v", err)
	}
	if err := next.Renew(contextFor(t, 5*time.Second)); err != nil {
		t.Errorf("the next holder: %v", err)
	}
}

func TestFreeingOneSharerByHandLeavesTheOthers(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t)
	sh := shell{t, coll}
	one, two := tryAcquire(t, client, "k", mongolock.Shared()), tryAcquire(t, client, "k", mongolock.Shared())
	if image := sh.run("free a lock", "<KEY>", "k", "<ID>", one.ID()).Lookup("value"); image.Type != bson.TypeNull {
		t.Errorf("a shared key was removed: %v", image)
	}
	for _, l := range []*mongolock.Lease{one, one} { // said twice it finds nothing
		sh.run("free one of those who share", "<KEY>", "k", "<ID>", l.ID())
	}
	if err := one.Renew(contextFor(t, 5*time.Second)); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("who was freed is told %v", err)
	}
	if err := two.Renew(contextFor(t, 5*time.Second)); err != nil {
		t.Errorf("who shared with it: %v", err)
	}
	sh.run("free one of those who share", "<KEY>", "k", "<ID>", two.ID())
	alone := tryAcquire(t, newClientOn(t, coll), "k")
	if image := sh.run("free one of those who share", "<KEY>", "k", "<ID>", alone.ID()).Lookup("value"); image.Type != bson.TypeNull {
		t.Errorf("who has the key alone was hit: %v", image)
	}
	if err := alone.Release(); err != nil {
		t.Error(err)
	}
}

func TestTheWordOfADeadWriterIsRemovedByHand(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "atomic")
	client, coll := newClient(t)
	sh := shell{t, coll}
	reader := tryAcquire(t, client, "k", mongolock.Shared())
	// The word of a writer who was killed: one who lives takes it back, or leaves it again.
	word := bson.D{{Key: "$set", Value: bson.D{{Key: "exclusiveWantedUntil", Value: time.Now().Add(time.Minute)}}}}
	if _, err := coll.UpdateByID(contextFor(t, 5*time.Second), "k", word); err != nil {
		t.Fatal(err)
	}
	if _, err := client.TryAcquire(contextFor(t, 5*time.Second), "k", mongolock.Shared()); !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("the test shows nothing: %v", err)
	}
	sh.run("let readers in again", "<KEY>", "k")
	late := tryAcquire(t, client, "k", mongolock.Shared())
	if err := errors.Join(late.Release(), reader.Release()); err != nil {
		t.Error(err)
	}
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
		if err != nil {
			t.Error(err)
		}
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
	if len(byHand) != 2 {
		t.Fatalf("indexes: %v", byHand)
	}
	if err := client.EnsureIndex(contextFor(t, 10*time.Second)); err != nil {
		t.Errorf("takes it for another: %v", err)
	}
	sh.run("drop the index")
	lease := tryAcquire(t, client, "k")
	if err := lease.Renew(contextFor(t, 5*time.Second)); err != nil {
		t.Errorf("without it: %v", err)
	}
	if left := sh.documents("see the indexes"); len(left) != 1 {
		t.Errorf("after dropping it, and WithoutIndex: %v", left)
	}
	if err := client.EnsureIndex(contextFor(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	ours := sh.documents("see the indexes")
	for _, field := range []string{"name", "key", "expireAfterSeconds", "partialFilterExpression"} {
		if a, b := byHand[1].Lookup(field), ours[1].Lookup(field); a.String() != b.String() {
			t.Errorf("%s is %v by hand, %v by the library", field, a, b)
		}
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
	if err := sh.coll.Database().RunCommand(g.t.Context(), command).Err(); err != nil {
		g.t.Fatal(err)
	}
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
	if err != nil {
		g.t.Fatal(err)
	}
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
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	client := newClientOn(t, coll, mongolock.TTL(3*time.Second), mongolock.WithoutIndex(), mongolock.WithLogger(log.logger()))
	rival := newClientOn(t, coll, mongolock.WithoutIndex(), mongolock.WithLogger(log.logger()))

	one := tryAcquire(t, client, "one")
	two := tryAcquire(t, client, "two")
	if _, err := rival.TryAcquire(ctx, "one"); !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("a try: %v", err)
	}
	if _, err := rival.Acquire(ctx, "one", mongolock.MaxWait(time.Second)); !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("a wait: %v", err)
	}
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
	if err != nil {
		t.Fatalf("resume: %v", err)
	}
	_, err = client.Inspect(ctx, "two")
	must("inspect", err)
	for _, err := range client.List(ctx, "") {
		must("list", err)
	}
	marked, err := client.Break(ctx, "two", "why", 0)
	if must("break", err); len(marked) != 1 {
		t.Errorf("broke %v", marked)
	}
	if err := two.Renew(ctx); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("a broken one is renewed: %v", err)
	}
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
	if err := coll.Database().CreateCollection(t.Context(), "others"); !unauthorized(err) {
		t.Fatalf("the server does not look at rights: %v", err)
	}

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
	if polls < 1 || polls > 2 {
		t.Errorf("%d of two clients say that they poll", polls)
	}

	// Without the right to make an index.
	var once logBuffer
	client := newClientOn(t, coll, mongolock.WithLogger(once.logger()))
	for _, key := range []string{"a", "b", "c"} {
		if err := tryAcquire(t, client, key).Release(); err != nil {
			t.Error(err)
		}
	}
	if lines := once.lines(); len(lines) != 1 || !strings.Contains(lines[0], "no TTL index") {
		t.Errorf("logged %q", lines)
	}
	if err := client.EnsureIndex(contextFor(t, 5*time.Second)); !unauthorized(err) {
		t.Errorf("EnsureIndex: %v", err)
	}

	// And with it.
	sh.run("let the role make the index", "<DATABASE>", authDB)
	coll = g.user("service2", "mongolock")
	var quiet logBuffer
	client = newClientOn(t, coll, mongolock.WithLogger(quiet.logger()))
	tryAcquire(t, client, "a")
	if lines := quiet.lines(); len(lines) != 0 {
		t.Errorf("logged %q", lines)
	}
	if err := client.EnsureIndex(contextFor(t, 5*time.Second)); err != nil {
		t.Error(err)
	}
	if _, err := coll.Database().ListCollectionNames(contextFor(t, 5*time.Second), bson.D{}); err != nil {
		t.Errorf("may not look whether the collection is capped: %v", err)
	}

	sh.run("let the role use wake-ups", "<DATABASE>", authDB)
	var waking logBuffer
	coll = g.user("service3", "mongolock")
	everything(t, coll, &waking)
	for _, line := range waking.lines() {
		if !expected(line) {
			t.Errorf("logged %s", line)
		}
	}
	specs, err := coll.Database().ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: "locks.wake"}})
	if err != nil || len(specs) != 1 || !specs[0].Options.Lookup("capped").Boolean() {
		t.Errorf("wake-ups: %+v, %v", specs, err)
	}
	if err := coll.Database().Collection("locks.wake").Drop(t.Context()); err != nil {
		t.Errorf("may not mend the wake-ups: %v", err)
	}
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
			if !unauthorized(err) || errors.Is(err, mongolock.ErrOutcomeUnknown) {
				t.Errorf("without %s: %v", missing, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(); !unauthorized(err) {
			t.Errorf("released without the right to: %v", err)
		}
	}
}

func TestTheRightToFindAllowsToInspectAndListOnly(t *testing.T) {
	t.Parallel()
	g := startAuthServer(t)
	tryAcquire(t, newClientOn(t, g.shell().coll, mongolock.WithoutIndex()), "k")
	client := newClientOn(t, g.user("looker", g.role("looks", "find")))
	status, err := client.Inspect(contextFor(t, 5*time.Second), "k")
	if err != nil || status.Free() {
		t.Errorf("inspect: %+v, %v", status, err)
	}
	n := 0
	for _, err := range client.List(contextFor(t, 5*time.Second), "") {
		if err != nil {
			t.Error(err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("lists %d", n)
	}
	if _, err := client.TryAcquire(contextFor(t, 5*time.Second), "free"); !unauthorized(err) || errors.Is(err, mongolock.ErrOutcomeUnknown) {
		t.Errorf("a claim: %v", err)
	}
	if _, err := client.Break(contextFor(t, 5*time.Second), "k", "why", 0); !unauthorized(err) {
		t.Errorf("a break: %v", err)
	}
}

func TestEveryFieldOfTheDocumentIsDocumented(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t)
	page := operationsPage(t)
	lease := tryAcquire(t, client, "k", mongolock.MinHold(5*time.Second))
	if _, err := newClientOn(t, coll).Acquire(contextFor(t, 5*time.Second), "k", mongolock.MaxWait(time.Second)); !errors.Is(err, mongolock.ErrHeld) {
		t.Fatal(err) // and it left word
	}
	if _, err := client.Break(contextFor(t, 5*time.Second), "k", "why", -1); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for e := range elements(t, storedDocument(t, coll, "k")) {
		paths = append(paths, e.Key())
	}
	for e := range elements(t, storedDocument(t, coll, "k").Lookup("holders", lease.ID()).Document()) {
		paths = append(paths, "holders.<ID>."+e.Key())
	}
	for _, want := range []string{"wantedUntil", "holders.<ID>.broken", "holders.<ID>.released"} {
		if !slices.Contains(paths, want) {
			t.Errorf("the test does not bring out %s: %q", want, paths)
		}
	}
	for _, path := range paths {
		if !regexp.MustCompile("(?m)^\\|[^|]*`" + regexp.QuoteMeta(path) + "`").MatchString(page) {
			t.Errorf("%s is in no row", path)
		}
	}
}

func elements(t testing.TB, raw bson.Raw) func(func(bson.RawElement) bool) {
	t.Helper()
	all, err := raw.Elements()
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			n++
			if row := fmt.Sprintf("| %s | `%s` |", strings.ToLower(m[1]), m[2]); !strings.Contains(page, row) {
				t.Errorf("%s: no row begins %s", source, row)
			}
		}
	}
	if n == 0 {
		t.Error("found no log line: the test shows nothing")
	}
}

func TestTheMongoClientsOwnTimeoutDoesNotBoundALock(t *testing.T) {
	t.Parallel()
	hasty := testserver.Client(t, func(o *options.ClientOptions) { o.SetTimeout(time.Nanosecond) })
	coll := testserver.Collection(t, testserver.Client(t))
	client := newClientOn(t, hasty.Database(coll.Database().Name()).Collection(coll.Name()), mongolock.WithoutIndex())
	lease, err := client.Acquire(context.Background(), "k") // which has no end
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lease.Renew(t.Context()), lease.Release()); err != nil {
		t.Error(err)
	}
	for _, err := range client.List(t.Context(), "") {
		if err == nil {
			t.Error("not even a List without a bound of its own")
		}
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
	if err := slow.Database().CreateCollection(t.Context(), slow.Name(), options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<16)); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.InsertOne(t.Context(), bson.D{}); err != nil {
		t.Fatal(err)
	}
	cursor, err := slow.Find(t.Context(), bson.D{}, options.Find().SetCursorType(options.TailableAwait).SetBatchSize(1).SetMaxAwaitTime(4*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	cursor.TryNext(t.Context()) // the one that is there

	shared := tryAcquire(t, newClientOn(t, in(busy)), "shared", mongolock.TTL(1500*time.Millisecond))
	own := tryAcquire(t, newClientOn(t, in(testserver.Client(t))), "own", mongolock.TTL(3*time.Second))
	done := make(chan struct{})
	go func() {
		defer close(done)
		cursor.TryNext(t.Context()) // the server waits, and the connection with it
	}()
	if err := ended(t, shared, 4*time.Second); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("behind the application: %v", err)
	}
	<-done
	if err := own.Err(); err != nil {
		t.Errorf("on a connection of its own: %v", err)
	}
	_ = cursor.Close(context.Background())
}
