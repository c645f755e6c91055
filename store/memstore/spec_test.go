package memstore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/specpath"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A subject is a memstore, in virtual time.
type subject struct {
	records *memstore.Store
	asked   store.Store
}

func (s subject) Store() store.Store { return s.asked }

func (s subject) Tick(context.Context, string) error {
	time.Sleep(specpath.Tick + specpath.Slack) // virtual: a tick of the specification
	return nil
}

func (s subject) Sweep(_ context.Context, key string) error {
	s.records.Delete(key)
	return nil
}

func TestTheStoreAnswersAsTheSpecificationSays(t *testing.T) {
	for _, g := range specpath.Graphs(t, "exclusive", "sharing", "modes", "three", "weights", "number", "line", "queue") {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			r := specpath.Walk(t.Context(), g, subject{s, s})
			fmt.Println("memstore,", r)
			assert.Empty(t, r.Failures)
			assert.Equal(t, g.Calls, r.Calls, "calls that were not made")
		})
	}
}

// A walk on a store with a fault finds it.
func TestControlAWalkOfTheSpecificationFindsEachFault(t *testing.T) {
	graphs := specpath.Graphs(t, "exclusive", "sharing")
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		for what, faulty := range specpath.WithFaults(subject{s, s}) {
			assert.True(t, specpath.Finds(t, faulty, graphs), what)
		}
		frozen := time.Now()
		s = memstore.New(memstore.WithClock(func() time.Time { return frozen }))
		assert.True(t, specpath.Finds(t, subject{s, s}, graphs), "a clock that stands still")
	})
}
