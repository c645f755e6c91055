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
	for _, in := range []string{"../../../*.go", "../../../store/mongostore/*.go", "../../../internal/*/*.go", "../../../internal/mongo/*/*.go"} {
		found, err := filepath.Glob(in)
		require.NoError(t, err)
		sources = append(sources, found...)
	}
	call := regexp.MustCompile(`(?:\.|\.say\(slog\.Level)(Debug|Info|Warn|Error)(?:\(|, )"(mongolock: [^"]+)"`)
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
	assert.GreaterOrEqual(t, n, 10, "log lines: the test shows nothing")
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

const withoutNumbers = "writes have no transaction numbers here"

func TestAClientSaysOnceThatItsWritesHaveNoNumbers(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router")
	for name, c := range map[string]struct {
		options func(*options.ClientOptions)
		lines   int
	}{
		"a set":             {func(*options.ClientOptions) {}, 0},
		"retryWrites=false": {func(o *options.ClientOptions) { o.SetRetryWrites(false) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logBuffer
			coll := testserver.Collection(t, testserver.Client(t, c.options))
			client, err := mongolock.New(coll, mongolock.WithLogger(log.logger()), mongolock.WithoutIndex())
			require.NoError(t, err)
			for _, key := range []string{"a", "b"} {
				lease, err := client.TryAcquire(t.Context(), key)
				require.NoError(t, err)
				require.NoError(t, lease.Release())
			}
			require.NoError(t, client.Close())
			assert.Equal(t, c.lines, log.count(withoutNumbers), "%s", log.lines())
		})
	}
}

func TestAnUnreachableServerIsNamedToACallerWithoutADeadline(t *testing.T) {
	t.Parallel()
	connected, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1").SetServerSelectionTimeout(300 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connected.Disconnect(context.Background()) })
	client := newClientOn(t, connected.Database("x").Collection("locks"))
	_, err = client.Acquire(t.Context(), "nightly")
	require.Error(t, err, "granted by nobody")
	for _, want := range []string{"acquire", `"nightly"`, "server selection", "127.0.0.1:1"} {
		assert.ErrorContains(t, err, want)
	}
	assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, "unknown, though nothing was sent")
}

// A capped collection would accept the claim, and drop it when it is full. Before MongoDB 5.0
// the claim could not be removed from it either, so it is asked before anything is written.
func TestACollectionThatCannotHoldLocksIsAClearError(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "ttl") // servers without it do not have such collections either
	for kind, opts := range map[string]bson.D{
		"view":        {{Key: "viewOn", Value: "others"}, {Key: "pipeline", Value: bson.A{}}},
		"time-series": {{Key: "timeseries", Value: bson.D{{Key: "timeField", Value: "at"}}}},
		"capped":      {{Key: "capped", Value: true}, {Key: "size", Value: 1 << 20}},
	} {
		t.Run(kind, func(t *testing.T) {
			switch kind {
			case "time-series":
				testserver.Need(t, "timeseries") // since MongoDB 5.0
			case "capped":
				testserver.Need(t, "capped")
			}
			coll := testserver.Collection(t, testserver.Client(t))
			require.NoError(t, coll.Database().RunCommand(t.Context(), append(bson.D{{Key: "create", Value: coll.Name()}}, opts...)).Err())
			client := newClientOn(t, coll)
			for range 2 {
				lease, err := client.TryAcquire(contextFor(t, 10*time.Second), "k")
				assert.Nil(t, lease, "%v, %v", lease, err)
				assert.ErrorContains(t, err, kind)
				assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown)
				assert.Nil(t, storedDocument(t, coll, "k"), "left behind")
			}
			assert.ErrorContains(t, client.EnsureIndex(contextFor(t, 10*time.Second)), kind, "EnsureIndex")
			require.NoError(t, coll.Drop(t.Context()))
			tryAcquire(t, client, "k") // mended
		})
	}
}
