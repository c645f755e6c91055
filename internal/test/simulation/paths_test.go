//go:build go1.26

package simulation_test

import (
	"testing"

	"github.com/mongolock/mongolock/internal/test/simulation"
)

func TestNoSeedBreaksAPromiseOfPathLocks(t *testing.T) {
	subject(simulation.RunPaths).keepsItsPromises(t)
}
