package pathlocktest_test

import (
	"testing"

	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/pathlock/pathlocktest"
)

// memory is a place with one storage for all processes.
type memory struct{ storage pathlock.Storage }

func (m memory) Open(testing.TB) pathlock.Storage { return m.storage }

// Prove a storage of your own by a test like this one.
func TestStorage(t *testing.T) {
	pathlocktest.Run(t, func(testing.TB) pathlocktest.Place { return memory{pathlock.InMemory()} })
}
