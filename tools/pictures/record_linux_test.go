package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestARecordingHasTheLinesAndTheirTimes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cast")
	require.NoError(t, record(file, []string{"sh", "-c", "test -t 1 && echo 'on a terminal …'; sleep 0.2; echo later"}))
	cast, err := os.ReadFile(file)
	require.NoError(t, err)
	all, err := readCast(string(cast))
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, "on a terminal …", all[0].text)
	assert.Equal(t, "later", all[1].text)
	assert.GreaterOrEqual(t, all[1].at, 0.2, "when the second came")
	assert.Greater(t, all[1].at, all[0].at, "the second after the first")
}

func TestACommandThatFailsIsNotRecordedAsASuccess(t *testing.T) {
	require.Error(t, record(filepath.Join(t.TempDir(), "cast"), []string{"false"}))
}
