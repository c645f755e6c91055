package pathlocktest_test

import (
	"testing"

	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/pathlock/pathlocktest"
)

// memory is a place that is there once.
type memory struct{ storage pathlock.Storage }

func (m memory) Open(testing.TB) pathlock.Storage { return m.storage }

// A storage of your own is proved by a test like this one.
func TestStorage(t *testing.T) {
	pathlocktest.Run(t, func(testing.TB) pathlocktest.Place { return memory{pathlock.InMemory()} })
}
