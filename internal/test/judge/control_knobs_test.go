//go:build knobs

package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

var keepIn = flag.String("judge.edn", "", "a directory in which the histories of the control stay, for Knossos")

// The control keeps the beat of a holder that is renewed, so a rival takes the key from it. With the
// safety the same seeds have histories of a mutex.
func TestControlTheJudgeObjectsToTwoHolders(t *testing.T) {
	for _, faulty := range []bool{false, true} {
		var files []string
		for seed := range uint64(20) {
			dir := filepath.Join(t.TempDir(), "edn")
			if faulty && *keepIn != "" {
				dir = filepath.Join(*keepIn, fmt.Sprint("seed-", seed+1))
			}
			knob.RenewalKeepsBeat = faulty
			h := simulate(t, seed+1).History
			knob.RenewalKeepsBeat = false
			_, err := h.ExportEDN(dir)
			require.NoError(t, err)
			some, err := filepath.Glob(filepath.Join(dir, "*.edn"))
			require.NoError(t, err)
			files = append(files, some...)
		}
		require.NotEmpty(t, files)
		require.NoError(t, run(files, nil, faulty))
	}
}

func simulate(t *testing.T, seed uint64) (out *simulation.Outcome) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	cryptotest.SetGlobalRandom(t, seed)
	defer simulation.Seeded(seed)()
	synctest.Test(t, func(*testing.T) { out = simulation.Run(seed, simulation.Settings{Margin: -1}) })
	return out
}
