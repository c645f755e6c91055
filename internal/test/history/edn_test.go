package history

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatWasBelievedOfAKeyIsWrittenAsOperationsOfAMutex(t *testing.T) {
	h := &History{Events: []Event{
		{At: 1, Kind: Called, Client: 1, Key: "k", Op: 1},
		{At: 2, Kind: Called, Client: 2, Key: "k", Op: 2},
		{At: 3, Kind: Called, Client: 3, Key: "k", Op: 3},
		{At: 4, Kind: Granted, Client: 1, Key: "k", Op: 1, ID: "a"},
		{At: 5, Kind: Failed, Client: 3, Key: "k", Op: 3, Note: Unknown},
		{At: 6, Kind: Told, Client: 1, Key: "k", ID: "a"},
		{At: 6, Kind: Granted, Client: 2, Key: "k", Op: 2, ID: "b"},
		{At: 6, Kind: LetGo, Client: 2, Key: "k", ID: "b"}, // in the same instant
		{At: 6, Kind: Called, Client: 2, Key: "k", Op: 4},
		{At: 6, Kind: Granted, Client: 2, Key: "k", Op: 4, ID: "c"}, // its end is not told
		{At: 7, Kind: Called, Client: 1, Key: "readers", Op: 5, Mode: Mode{Shared: true}},
		{At: 8, Kind: Called, Client: 1, Key: "readers", Op: 6},
	}, TTL: time.Minute}
	dir := t.TempDir()
	files, err := h.ExportEDN(dir)
	require.NoError(t, err)
	assert.Equal(t, 1, files, "readers are no mutex")
	text, err := os.ReadFile(filepath.Join(dir, "k.edn"))
	require.NoError(t, err)
	assert.Equal(t, `{:process 3 :type :invoke :f :acquire :value nil :time 1}
{:process 6 :type :invoke :f :acquire :value nil :time 2}
{:process 3 :type :ok :f :acquire :value nil :time 4}
{:process 3 :type :invoke :f :release :value nil :time 6}
{:process 3 :type :ok :f :release :value nil :time 6}
{:process 9 :type :invoke :f :acquire :value nil :time 6}
{:process 6 :type :ok :f :acquire :value nil :time 6}
{:process 6 :type :invoke :f :release :value nil :time 6}
{:process 6 :type :ok :f :release :value nil :time 6}
{:process 9 :type :ok :f :acquire :value nil :time 6}
{:process 9 :type :invoke :f :release :value nil :time 6}
`, string(text))
}
