//go:build knobs

package vectors

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/knob"
)

// Each control takes a safety out of the library's commands. Then a step goes wrong, or sends what
// the vectors do not say.
func TestControlTheVectorsTellALibraryWithoutASafety(t *testing.T) {
	for name, safety := range map[string]*bool{
		"ReleaseDropsLine": &knob.ReleaseDropsLine, "ReleaseKeepsRev": &knob.ReleaseKeepsRev, "RenewalSets": &knob.RenewalSets,
		"SwapByRevAlone": &knob.SwapByRevAlone, "GrantOutOfTurn": &knob.GrantOutOfTurn, "StalePassedBlindly": &knob.StalePassedBlindly,
		"OfferUncompared": &knob.OfferUncompared,
		"LineIgnored":     &knob.LineIgnored, "ReleaseByKey": &knob.ReleaseByKey, "CounterToken": &knob.CounterToken,
		"RenewalUpserts": &knob.RenewalUpserts, "JoinWritesMap": &knob.JoinWritesMap, "JoinKeepsRev": &knob.JoinKeepsRev,
		"JoinDropsTheLiving": &knob.JoinDropsTheLiving, "LastDeletesHeld": &knob.LastDeletesHeld, "UndoDeletes": &knob.UndoDeletes,
		"LargestLimit": &knob.LargestLimit, "WeightIgnored": &knob.WeightIgnored, "HandOverByKey": &knob.HandOverByKey,
	} {
		t.Run(name, func(t *testing.T) {
			*safety = true
			t.Cleanup(func() { *safety = false })
			var told []string
			for _, of := range states() {
				was, err := os.ReadFile(filepath.Join(folder, of.name+".json"))
				require.NoError(t, err)
				if is, whole := tried(t, of); !whole || is != string(was) {
					told = append(told, of.name)
				}
			}
			assert.NotEmpty(t, told, "every vector is as it was")
			t.Log("told by:", told)
		})
	}
}

// tried makes a vector, unless a step goes otherwise than the vector says.
func tried(t *testing.T, of state) (is string, whole bool) {
	vector := make(chan string, 1)
	go func() {
		defer close(vector)
		vector <- text(made(quiet{t}, of), "") + "\n" //nolint:testifylint // quiet ends this goroutine alone
	}()
	is, whole = <-vector
	return is, whole
}

// quiet ends a goroutine where a test would fail.
type quiet struct{ testing.TB }

func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) { runtime.Goexit() }
func (quiet) FailNow()              { runtime.Goexit() }
