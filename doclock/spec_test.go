package doclock

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/internal/test/specpath"
	"github.com/mongolock/mongolock/store"
)

// A subject is a store of documents. After a tick the calls are those of another process.
type subject struct {
	*keyed
	t       testing.TB
	without func(mongolease.Step, bson.D) bson.D // a safety; nil: it has all
}

func (s *subject) Store() store.Store { return s.keyed }

func (s *subject) Tick(ctx context.Context, key string) error {
	s.keyed = &keyed{docStore: newDocStore(s.coll, "lock"), coll: s.coll}
	s.tamper(s.without)
	return specpath.Age(ctx, s.coll, ID(key))
}

func (s *subject) Sweep(_ context.Context, key string) error { return s.Purge(key) }

func TestTheStoreAnswersAsTheSpecificationSays(t *testing.T) {
	for _, g := range specpath.Graphs(t, "exclusive", "turns") {
		needs(t, "atomic")
		coll := collection(t)
		var subjects []specpath.Subject
		for range 4 {
			subjects = append(subjects, &subject{&keyed{docStore: newDocStore(coll, "lock"), coll: coll}, t, nil})
		}
		r := specpath.Walk(t.Context(), g, subjects...)
		fmt.Println("doclock,", r)
		assert.Empty(t, r.Failures)
		assert.Equal(t, g.Calls, r.Calls, "calls that were not made")
	}
}
