package servers

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestAStartedServerAcceptsWritesUntilItIsStopped(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind Kind) {
		temp := t.TempDir()
		t.Setenv("TMPDIR", temp)
		server := start(t, Config{Kind: kind})
		things := collection(t, server.URI())
		if _, err := things.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}}); err != nil {
			t.Fatal(err)
		}
		require.NoError(t, server.Stop())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := things.InsertOne(ctx, bson.D{}); err == nil {
			t.Error("a stopped server accepted a write")
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		assert.NoError(t, server.Stop(), "the second Stop")
		assert.ErrorIs(t, server.StepDown(t.Context(), time.Second), errStopped, "a step-down after Stop")
	})
}

func TestEachKindHasItsKnownCapabilities(t *testing.T) {
	ofMongoDB := []Capability{Atomic, Capped, Expressions, OperationTime, Retryable, Roles, StepDown, Transactions, TTL}
	known := map[Kind][]Capability{
		Mongod:   append([]Capability{Crash, InTurn, Process}, ofMongoDB...),
		Secantus: append([]Capability{Crash, Process}, ofMongoDB...),
		Docker:   append([]Capability{InTurn}, ofMongoDB...),
		FerretDB: {},
	}
	forEachKind(t, func(t *testing.T, kind Kind) {
		server := start(t, Config{Kind: kind})
		want := slices.Clone(known[kind])
		for v := range versions {
			if server.Has(v) {
				want = append(want, v)
			}
		}
		if server.Has(V50) { // which has these since
			want = append(want, APIStrict, TimeSeries)
		}
		assert.ElementsMatch(t, want, server.Capabilities())
		assert.Equal(t, kind != FerretDB, server.Has(V44), "the oldest version that is supported")
		assert.IsIncreasing(t, server.Capabilities())
		if !strings.HasPrefix(server.Limits(), "cannot show ") {
			t.Errorf("its limits are not the end of a sentence: %s", server.Limits())
		}
		names, err := client(t, server.URI()).ListDatabaseNames(t.Context(), bson.D{})
		require.NoError(t, err)
		for _, name := range names {
			if strings.HasPrefix(name, "devmongo") {
				t.Errorf("the probe left the database %s behind", name)
			}
		}
	})
}

func TestClientsFindARestartedServerAgain(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind Kind) {
		server := start(t, Config{Kind: kind})
		things := collection(t, server.URI())
		if _, err := things.InsertOne(t.Context(), bson.D{}); err != nil {
			t.Fatal(err)
		}
		err := server.Restart(t.Context())
		if kind == Docker {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Error(err)
			}
			return
		}
		require.NoError(t, err)
		if n := count(t, things); n != 1 {
			t.Errorf("%d documents", n)
		}
	})
}

func TestAKilledServerRestartsWithEveryAcknowledgedWrite(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind Kind) {
		server := start(t, Config{Kind: kind})
		if !server.Has(Crash) {
			assert.ErrorIs(t, server.Kill(), errors.ErrUnsupported, "killing a server that is not a process")
			return
		}
		const rounds, writers = 3, 4
		things := collection(t, server.URI())
		var acknowledged []bson.ObjectID
		for range rounds {
			acknowledged = append(acknowledged, writeUntilKilled(t, server, things, writers)...)
			if err := server.Kill(); err == nil {
				t.Error("a second Kill succeeded")
			}
			require.NoError(t, server.Restart(t.Context()))
			found, err := things.CountDocuments(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: acknowledged}}}})
			require.NoError(t, err)
			if int(found) != len(acknowledged) {
				t.Fatalf("%d of %d acknowledged writes are there", found, len(acknowledged))
			}
		}
		if len(acknowledged) < rounds*writers {
			t.Errorf("only %d writes were acknowledged: too few to show anything", len(acknowledged))
		}
	})
}

// writeUntilKilled kills the server while clients write and returns the IDs of the acknowledged writes.
func writeUntilKilled(t *testing.T, server *Server, things *mongo.Collection, writers int) []bson.ObjectID {
	var (
		mu           sync.Mutex
		acknowledged []bson.ObjectID
		writing      sync.WaitGroup
	)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range writers {
		writing.Go(func() {
			for ctx.Err() == nil {
				id := bson.NewObjectID()
				if _, err := things.InsertOne(ctx, bson.D{{Key: "_id", Value: id}}); err == nil {
					mu.Lock()
					acknowledged = append(acknowledged, id)
					mu.Unlock()
				}
			}
		})
	}
	time.Sleep(300 * time.Millisecond) // real: the writes of all are under way
	assert.NoError(t, server.Kill())
	cancel()
	writing.Wait()
	return acknowledged
}

func TestASteppedDownServerRefusesWritesUntilThePeriodIsOver(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind Kind) {
		server := start(t, Config{Kind: kind})
		if !server.Has(StepDown) {
			assert.ErrorIs(t, server.StepDown(t.Context(), time.Second), errors.ErrUnsupported, "a step-down of a server that cannot")
			return
		}
		// Direct and without retries, so that the driver does not hide the refusal.
		direct := collection(t, server.URI(), options.Client().SetDirect(true).SetRetryWrites(false))
		waiting := collection(t, server.URI())
		const period = 2 * time.Second
		began := time.Now()
		require.NoError(t, server.StepDown(t.Context(), period))
		_, err := direct.InsertOne(t.Context(), bson.D{})
		const notWritablePrimary = 10107
		if refused, ok := errors.AsType[mongo.ServerError](err); !ok || !refused.HasErrorCode(notWritablePrimary) {
			t.Errorf("a write after the step-down: %v", err)
		}
		// Secantus does not label its refusal as retryable, so the driver does not retry.
		for {
			_, err := waiting.InsertOne(t.Context(), bson.D{})
			if err == nil {
				break
			}
			if refused, ok := errors.AsType[mongo.ServerError](err); !ok || !refused.HasErrorCode(notWritablePrimary) {
				t.Fatalf("a client that waits for a primary: %v", err)
			}
		}
		if took := time.Since(began); took < period-100*time.Millisecond {
			t.Errorf("writes succeed again after %v, before the period is over", took)
		}
	})
}

func TestAServerWithUsersRefusesAnonymousWrites(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind Kind) {
		if !slices.Contains(byKind[kind], Roles) {
			if _, err := Start(t.Context(), Config{Kind: kind, Auth: true}); !errors.Is(err, errNoAuth) {
				t.Errorf("started with users: %v", err)
			}
			return
		}
		server := start(t, Config{Kind: kind, Auth: true})
		if _, err := collection(t, server.URI()).InsertOne(t.Context(), bson.D{}); err != nil {
			t.Error(err)
		}
		anonymous := "mongodb://" + server.URI()[strings.Index(server.URI(), "@")+1:]
		_, err := collection(t, anonymous).InsertOne(t.Context(), bson.D{})
		const unauthorized = 13
		if refused, ok := errors.AsType[mongo.ServerError](err); !ok || !refused.HasErrorCode(unauthorized) {
			t.Errorf("an anonymous write: %v", err)
		}
	})
}

func TestAnExternalServerIsProbedButNeverStoppedOrKilled(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind Kind) {
		theirs := start(t, Config{Kind: kind})
		t.Setenv(EnvURI, theirs.URI())
		external, err := Start(t.Context(), Config{}) // external comes first
		require.NoError(t, err)
		if external.Kind() != External || external.URI() != theirs.URI() {
			t.Errorf("%s at %s", external.Kind(), external.URI())
		}
		for _, c := range theirs.Capabilities() {
			owned := slices.Contains([]Capability{Process, Crash, StepDown, Roles}, c)
			if external.Has(c) == owned {
				t.Errorf("%s: %v", c, external.Has(c))
			}
		}
		for what, err := range map[string]error{
			"kill":      external.Kill(),
			"restart":   external.Restart(t.Context()),
			"step down": external.StepDown(t.Context(), time.Second),
		} {
			assert.ErrorIs(t, err, errors.ErrUnsupported, "%s", what)
		}
		assert.NoError(t, external.Stop())
		if _, err := collection(t, theirs.URI()).InsertOne(t.Context(), bson.D{}); err != nil {
			t.Errorf("after Stop: %v", err)
		}
	})
}
