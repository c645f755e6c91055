package mongostore

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/specpath"
	"github.com/mongolock/mongolock/store"
)

// A subject is a store on a server. After a tick the calls are those of another process.
type subject struct {
	*fixture
	asked *Store
}

func (s *subject) Store() store.Store { return s.asked }

func (s *subject) Tick(ctx context.Context, key string) error {
	s.asked = open(s.asked.base.Durable, config{noIndex: true, logger: s.asked.logger})
	return specpath.Age(ctx, s.coll, bson.D{{Key: "_id", Value: key}})
}

func (s *subject) Sweep(ctx context.Context, key string) error {
	_, err := s.coll.DeleteOne(ctx, bson.D{{Key: "_id", Value: key}})
	return err
}

func TestTheStoreAnswersAsTheSpecificationSays(t *testing.T) {
	for _, g := range specpath.Graphs(t, "exclusive", "sharing", "modes", "three", "weights", "number") {
		f := newFixture(t)
		var subjects []specpath.Subject
		for range 4 {
			subjects = append(subjects, &subject{f, f.store})
		}
		r := specpath.Walk(t.Context(), g, subjects...)
		fmt.Println("mongostore,", r)
		assert.Empty(t, r.Failures)
		assert.Equal(t, g.Calls, r.Calls, "calls that were not made")
	}
}

func TestControlAWalkOfTheSpecificationFindsEachFault(t *testing.T) {
	graphs := specpath.Graphs(t, "exclusive", "sharing")
	f := newFixture(t)
	for what, faulty := range specpath.WithFaults(&subject{f, f.store}) {
		assert.True(t, specpath.Finds(t, faulty, graphs), what)
	}
}
