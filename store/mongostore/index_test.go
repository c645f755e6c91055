package mongostore

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func (f *fixture) indexing(log *bytes.Buffer, opts ...func(*options.ClientOptions)) *Store {
	s := f.another(opts...)
	s.indexed.Store(false)
	s.logger = slog.New(slog.NewTextHandler(log, nil))
	return s
}

func TestTenClientsAtOnceMakeOneIndexOfOurDocumentsOnly(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "ttl")
	f := newFixture(t)
	var logs [10]bytes.Buffer
	var all sync.WaitGroup
	for i := range logs {
		all.Go(func() {
			s := f.indexing(&logs[i])
			f.acquire(s, exclusiveClaim(fmt.Sprint("k", i), time.Minute))
			f.acquire(s, exclusiveClaim(fmt.Sprint("j", i), time.Minute))
		})
	}
	all.Wait()
	for i := range logs {
		assert.LessOrEqual(t, logs[i].Len(), 0, logs[i].String())
	}
	found := f.indexes()
	require.Len(t, found, 1, "indexes")
	want := bson.D{{Key: "key", Value: "{expireAt: 1}"}, {Key: "expireAfterSeconds", Value: "3600"}, {Key: "partialFilterExpression", Value: "{mongolock: 1}"}}
	for _, e := range want {
		assert.Equal(t, e.Value, renderedValue(found[0].Lookup(e.Key)), "%s", e.Key)
	}
}

func TestAnIndexThatCannotBeMadeIsLoggedOnceAndBreaksNothing(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]testserver.Fate{
		"forbidden":   {Instead: refusal(13, "not authorized on locks to execute command createIndexes")},
		"unsupported": {Instead: refusal(115, "TTL indexes are not supported")},
		"conflicting": {},
	} {
		t.Run(name, func(t *testing.T) {
			line := &testserver.Line{}
			f := newFixture(t)
			if name == "conflicting" {
				_, err := f.coll.Indexes().CreateOne(f.ctx(), mongo.IndexModel{Keys: bson.D{{Key: "expireAt", Value: 1}}, Options: options.Index().SetName(indexName)})
				require.NoError(t, err)
			}
			var log bytes.Buffer
			s := f.indexing(&log, line.Through)
			line.Set(func(command string, _ bson.Raw) testserver.Fate {
				if command == "createIndexes" {
					return fate
				}
				return testserver.Fate{}
			})
			f.acquire(s, exclusiveClaim("k", time.Minute))
			f.acquire(s, exclusiveClaim("j", time.Minute))
			n := strings.Count(log.String(), "\n")
			assert.Equal(t, 1, n, "logged %d lines: %s", n, log.String())
			assert.Contains(t, log.String(), "TTL index", "logged")
			assert.Error(t, s.EnsureIndex(f.ctx()), "EnsureIndex hides it")
		})
	}
}
