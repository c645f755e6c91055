package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The operations of two processes, a step a line.
const (
	ask1  = "{:process 1 :type :invoke :f :acquire :value nil :time 10}\n"
	has1  = "{:process 1 :type :ok :f :acquire :value nil :time 20}\n"
	ends1 = "{:process 1 :type :invoke :f :release :value nil :time 30}\n"
	free1 = "{:process 1 :type :ok :f :release :value nil :time 30}\n"
	ask2  = "{:process 2 :type :invoke :f :acquire :value nil :time 15}\n"
	has2  = "{:process 2 :type :ok :f :acquire :value nil :time 40}\n"
)

func file(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "k.edn")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestTwoHoldersAtOnceAreNoMutex(t *testing.T) {
	for text, is := range map[string]bool{
		ask1 + ask2 + has1 + ends1 + free1 + has2: true,
		ask1 + ask2 + has1 + ends1 + has2:         true, // the release has begun
		ask1 + ask2 + has1 + has2 + ends1 + free1: false,
		ask1 + ask2 + has1 + has2:                 false,
	} {
		path := file(t, text)
		held, objects := run([]string{path}, nil, false), run([]string{path}, nil, true)
		assert.Equal(t, is, held == nil, "%s\n%v", text, held)
		assert.Equal(t, is, objects != nil, "%s", text)
	}
}

func TestWhatIsNoHistoryIsRefused(t *testing.T) {
	for _, text := range []string{has1, ask1 + ask1, ask1 + free1, "{:process 1}\n"} {
		assert.Error(t, run([]string{file(t, text)}, nil, false), text)
	}
	assert.Error(t, run(nil, nil, false))
	assert.Error(t, run([]string{filepath.Join(t.TempDir(), "none.edn")}, nil, false))
}

// The answers of Knossos are read from what its command prints: a file and its verdict a line.
func TestBothJudgesMustAgree(t *testing.T) {
	t.Chdir("../../..") // from where the program is run
	path := file(t, ask1+has1)
	for word, agrees := range map[string]bool{"true": true, "false": false, ":unknown": false} {
		script := filepath.Join(t.TempDir(), "knossos")
		require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n[ \"$1 $2\" = '--model mutex' ] && printf '%s\\t"+word+"\\n' \"$3\"\n"), 0o700))
		assert.Equal(t, agrees, run([]string{path}, []string{script}, false) == nil, word)
	}
}
