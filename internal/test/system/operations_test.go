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
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

const reference = "../../../docs/reference.md"

func referencePage(t testing.TB) string {
	t.Helper()
	page, err := os.ReadFile(reference)
	require.NoError(t, err)
	return string(page)
}

func TestEveryFieldOfTheDocumentIsDocumented(t *testing.T) {
	t.Parallel()
	client, coll := newClient(t)
	page := referencePage(t)
	lease := tryAcquire(t, client, "k", mongolock.TTL(time.Minute), mongolock.MinHold(time.Minute)) // longer than the test takes
	_, err := newClientOn(t, coll).Acquire(contextFor(t, 5*time.Second), "k", mongolock.MaxWait(pace.Of(time.Second)))
	require.ErrorIs(t, err, mongolock.ErrHeld)
	wait, leave := context.WithCancel(t.Context()) // one that stays in line
	waited := make(chan struct{})
	waiter := newClientOn(t, coll)
	go func() {
		defer close(waited)
		_, _ = waiter.Acquire(wait, "k")
	}()
	defer func() {
		leave()
		<-waited
	}()
	require.Eventually(t, func() bool { return waiter.Stats().InLine == 1 }, pace.Of(10*time.Second), 5*time.Millisecond)
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
	for e := range elements(t, storedDocument(t, coll, "k").Lookup("waits").Document()) {
		for f := range elements(t, e.Value().Document()) {
			paths = append(paths, "waits.<PLACE>."+f.Key())
		}
	}
	for _, want := range []string{"line", "waits.<PLACE>.seen", "holders.<ID>.broken", "holders.<ID>.released"} {
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
	page := referencePage(t)
	var sources []string
	for _, in := range []string{"../../../*.go", "../../../store/mongostore/*.go"} {
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
			row := fmt.Sprintf("| %s | `%s` |", strings.ToLower(m[1]), m[2])
			assert.True(t, strings.Contains(page, row), "%s: no row begins %s", source, row) //nolint:testifylint // the page would be printed
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

// The advice about the pool: an application that keeps all of its connections busy loses its
// leases, unless they have connections of their own.
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
	cursor.TryNext(t.Context()) // the document that is there

	shared := tryAcquire(t, newClientOn(t, in(busy)), "shared", mongolock.TTL(min(pace.Of(1500*time.Millisecond), 3*time.Second)))
	own := tryAcquire(t, newClientOn(t, in(testserver.Client(t))), "own", mongolock.TTL(pace.Of(3*time.Second)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		cursor.TryNext(t.Context()) // the connection is busy while the server waits
	}()
	assert.ErrorIs(t, ended(t, shared, pace.Of(4*time.Second)), mongolock.ErrLost, "behind the application")
	<-done
	assert.NoError(t, own.Err(), "on a connection of its own")
	_ = cursor.Close(context.Background())
}
