//go:build go1.26

package simulation_test

import (
	"testing"

	"github.com/mongolock/mongolock/internal/test/simulation"
)

func TestNoSeedLosesAnUpdate(t *testing.T) { subject(simulation.RunUpdates).keepsItsPromises(t) }
