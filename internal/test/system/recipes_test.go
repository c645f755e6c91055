package system

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

const recipes = "../../../docs/recipes.js"

// triedRecipes are the recipes of that file that the tests below run.
var triedRecipes = []string{
	"make the index", "see the indexes", "drop the index",
	"make the role", "make the user", "let the role make the index", "let the role use wake-ups",
	"look at one lock", "list what is held", "list one service's locks", "list what has run out", "list foreign documents",
	"break a lock", "free a lock", "free one of those who share", "take a process out of the line", "wake the first in line", "remove what has run out", "remove every lock",
}

// A recipe has its name, some lines on what it does, and one command.
var recipeBlock = regexp.MustCompile(`(?m)^// recipe: (.*)\n(?:// .*\n)+db\.runCommand\((?s:(.*?))\);\n(?:\n|\z)`)

func recipeFile(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(recipes)
	require.NoError(t, err)
	return string(text)
}

func TestEveryRecipeIsTried(t *testing.T) {
	t.Parallel()
	text := recipeFile(t)
	var found []string
	for _, m := range recipeBlock.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
		assert.Contains(t, triedRecipes, m[1], "a recipe that no test tries")
	}
	commands := strings.Count(text, "\ndb.")
	assert.Equal(t, len(found), commands, "%d commands, %d recipes, %d tried", commands, len(found), len(triedRecipes))
	assert.Len(t, found, len(triedRecipes), "recipes tried")
}

// A shell runs recipes on a collection of locks, with their blanks filled in.
type shell struct {
	t    testing.TB
	coll *mongo.Collection
}

func (sh shell) command(name string, filled ...string) bson.D {
	sh.t.Helper()
	for _, m := range recipeBlock.FindAllStringSubmatch(recipeFile(sh.t), -1) {
		if m[1] != name {
			continue
		}
		filled = append(filled, // as a shell does
			"new Date(db.hello().localTime - 60000)", `{"$date": "`+sh.serverTime().Add(-time.Minute).Format(time.RFC3339Nano)+`"}`)
		text := strings.NewReplacer(append(filled, `"topic": "locks"`, `"topic": "locks"`, `"locks"`, `"`+sh.coll.Name()+`"`, `"locks.wake"`, `"`+sh.coll.Name()+`.wake"`)...).Replace(m[2])
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

// listed returns the keys of a find, in order.
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
	var refused mongo.ServerError
	if !errors.As(err, &refused) || !refused.HasErrorCode(notImplemented) {
		return
	}
	testserver.URI(sh.t, "now") // which no server here has
}

// insert stores a document that this library did not write.
func (sh shell) insert(key string, fields ...bson.E) {
	sh.t.Helper()
	_, err := sh.coll.InsertOne(contextFor(sh.t, 10*time.Second), append(bson.D{{Key: "_id", Value: key}}, fields...))
	require.NoError(sh.t, err)
}

// crash makes the document of a lease that is not renewed an expired one.
func (sh shell) crash(l *mongolock.Lease) {
	sh.t.Helper()
	past := time.Now().Add(-2 * time.Minute) // longer ago than the recipe that removes it asks for
	_, err := sh.coll.UpdateOne(contextFor(sh.t, 10*time.Second), bson.D{{Key: "_id", Value: l.Key()}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "expireAt", Value: past}, {Key: "holders." + l.ID() + ".expireAt", Value: past}}}})
	require.NoError(sh.t, err)
}

// shellOverOneOfEach is over a collection with one document of each kind: a held lock, one
// whose holder crashed, a foreign document, and damaged documents of ours.
func shellOverOneOfEach(t testing.TB) (sh shell, held *mongolock.Lease) {
	t.Helper()
	client, coll := newClient(t, mongolock.WithoutIndex())
	sh = shell{t, coll}
	held = tryAcquire(t, client, "billing:held")
	sh.crash(tryAcquire(t, client, "crashed", mongolock.NoRenewal()))
	sh.insert("foreign", bson.E{Key: "expireAt", Value: time.Now().Add(-time.Hour)})
	sh.insert("damaged", bson.E{Key: "mongolock", Value: 1}, bson.E{Key: "expireAt", Value: "soon"})
	sh.insert("endless", bson.E{Key: "mongolock", Value: 1})
	return sh, held
}

func ended(t testing.TB, l *mongolock.Lease, within time.Duration) error {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(pace.Of(within)):
		t.Fatalf("not over within %v", pace.Of(within))
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
	assert.Equal(t, []string{"foreign"}, sh.listed("list foreign documents"), "foreign documents")
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
	assert.Nil(t, storedDocument(t, sh.coll, "crashed"), "the crashed holder's lock is there")
	for _, key := range []string{"foreign", "damaged", "endless"} {
		assert.NotNil(t, storedDocument(t, sh.coll, key), "%s is gone", key)
	}
	assert.NoError(t, held.Renew(contextFor(t, 5*time.Second)), "the one that is held")
}

func TestTheRecipeThatRemovesEveryLockKeepsForeignDocuments(t *testing.T) {
	t.Parallel()
	sh, held := shellOverOneOfEach(t)
	assert.EqualValues(t, 4, sh.run("remove every lock").Lookup("n").AsInt64(), "removed")
	assert.NotNil(t, storedDocument(t, sh.coll, "foreign"), "the foreign document is gone")
	assert.ErrorIs(t, held.Renew(contextFor(t, 5*time.Second)), mongolock.ErrLost, "its holder learns")
}

func TestABreakByHandTellsTheHolderWhyAndFreesTheKey(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t, mongolock.TTL(pace.Of(900*time.Millisecond)))
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
	client, coll := newClient(t, mongolock.TTL(pace.Of(900*time.Millisecond)))
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
	for _, l := range []*mongolock.Lease{one, one} { // the second finds nothing
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

func TestADeadWriterIsTakenOutOfTheLineByHand(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "atomic")
	client, coll := newClient(t)
	sh := shell{t, coll}
	reader := tryAcquire(t, client, "k", mongolock.Shared())
	place := store.NewPlace(store.Exclusive, 1, 1, "dead") // of a writer that was killed
	waits := bson.D{{Key: "owner", Value: "writer"}, {Key: "since", Value: time.Now()}, {Key: "seen", Value: time.Now()}}
	_, err := coll.UpdateByID(contextFor(t, 5*time.Second), "k", bson.D{{Key: "$set", Value: bson.D{
		{Key: "line", Value: bson.A{string(place)}}, {Key: "waits." + string(place), Value: waits},
	}}})
	require.NoError(t, err)
	_, err = client.TryAcquire(contextFor(t, 5*time.Second), "k", mongolock.Shared())
	assert.ErrorIs(t, err, mongolock.ErrHeld, "the test shows nothing")
	sh.run("take a process out of the line", "<KEY>", "k", "<PLACE>", string(place))
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
	require.Eventually(t, func() bool { // it listens
		return inside.Look(waiter, "k").Asleep && waiter.Stats().Feed == store.FeedLive
	}, pace.Of(10*time.Second), 5*time.Millisecond)
	time.Sleep(pace.Of(2 * time.Second)) // until it has looked once more, and polls no more
	status, err := client.Inspect(ctx, "k")
	require.NoError(t, err)
	require.Len(t, status.Line, 1, "places")
	sh.run("free a lock", "<KEY>", "k", "<ID>", lease.ID())
	select {
	case err := <-granted:
		t.Fatalf("granted without a wake-up, so the test shows nothing: %v", err)
	case <-time.After(1500 * time.Millisecond): // a poll would have come
	}
	sh.run("wake the first in line", "<KEY>", "k", "<ADDRESS>", status.Line[0].Place.Address())
	select {
	case err := <-granted:
		assert.NoError(t, err)
	case <-time.After(pace.Of(2 * time.Second)):
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
