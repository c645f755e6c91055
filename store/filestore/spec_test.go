package filestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/internal/test/specpath"
	"github.com/mongolock/mongolock/store"
)

// A subject is a filestore, in virtual time.
type subject struct {
	asked store.Store
	dir   string
}

func (s subject) Store() store.Store { return s.asked }

func (s subject) Tick(context.Context, string) error {
	time.Sleep(specpath.Tick + specpath.Slack) // virtual: a tick of the specification
	return nil
}

func (s subject) Sweep(ctx context.Context, key string) error {
	all, err := s.asked.Look(ctx, []string{key})
	if err == nil {
		err = os.Remove(filepath.Join(s.dir, hostfile.Name(key)))
	}
	if setter, is := store.As[store.LimitSetter](s.asked); err == nil && is && all[0].Set > 0 {
		_, err = setter.SetLimit(ctx, key, all[0].Set) // a file with a number is not removed
	}
	return err
}

func TestTheStoreAnswersAsTheSpecificationSays(t *testing.T) {
	for _, g := range specpath.Graphs(t, "exclusive", "sharing", "modes", "three", "weights", "number") {
		synctest.Test(t, func(t *testing.T) {
			dir := disktest.InMemory(t)
			r := specpath.Walk(t.Context(), g, subject{open(t, dir), dir})
			fmt.Println("filestore,", r)
			assert.Empty(t, r.Failures)
			assert.Equal(t, g.Calls, r.Calls, "calls that were not made")
		})
	}
}

// A walk on a store with a fault finds it.
func TestControlAWalkOfTheSpecificationFindsEachFault(t *testing.T) {
	graphs := specpath.Graphs(t, "exclusive", "sharing")
	synctest.Test(t, func(t *testing.T) {
		dir := disktest.InMemory(t)
		s := open(t, dir)
		for what, faulty := range specpath.WithFaults(subject{s, dir}) {
			assert.True(t, specpath.Finds(t, faulty, graphs), what)
		}
		stopped := s.Clocked(hostclock.Of("boot", func() time.Duration { return time.Hour }), time.Now)
		assert.True(t, specpath.Finds(t, subject{stopped, dir}, graphs), "a clock that stands still")
	})
}
