package filestore_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
)

func TestAForeignTokenFileIsAnErrorAndStays(t *testing.T) {
	for _, content := range []string{"", "7", `{"mongolock":2,"last":7}`, `{"mongolock":1}`} {
		dir := t.TempDir()
		s := open(t, dir)
		file := dir + "/tokens"
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))

		_, err := s.Acquire(t.Context(), mine("k"))
		require.ErrorIs(t, err, store.ErrForeign, "%q", content)

		now, err := os.ReadFile(file)
		require.NoError(t, err, "%q", content)
		assert.Equal(t, content, string(now))

		all, err := s.Look(t.Context(), []string{"k"})
		require.NoError(t, err, "%q", content)
		assert.Empty(t, all[0].Holders, "%q: the refused claim holds the key", content)
	}
}

// A directory stands in the file's place: it cannot be read, and must not be replaced.
func TestAFileThatCannotBeReadIsAnErrorAndStays(t *testing.T) {
	for _, name := range []string{hostfile.Name("k"), "tokens"} {
		dir := t.TempDir()
		s := open(t, dir)
		inside := filepath.Join(dir, name, "inside")
		require.NoError(t, os.MkdirAll(inside, 0o700))

		_, err := s.Acquire(t.Context(), mine("k"))
		require.ErrorIs(t, err, store.ErrNotApplied, name)
		if name != "tokens" {
			_, err := s.Look(t.Context(), []string{"k"})
			require.Error(t, err, "Look shows the key as free")
		}
		assert.DirExists(t, inside, "it was replaced")
	}
}

func TestTokensRiseThoughTheDirectoryWasEmptied(t *testing.T) {
	m := newMachine()
	one, err := m.open(t, disktest.InMemory(t)).Acquire(t.Context(), mine("k"))
	require.NoError(t, err)
	m.set(time.Second)
	two, err := m.open(t, disktest.InMemory(t)).Acquire(t.Context(), mine("k"))
	require.NoError(t, err)
	assert.Greater(t, two.Token, one.Token)
}

func TestABadArgumentIsNamed(t *testing.T) {
	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for want, dir := range map[string]string{"not named": "", "not a directory": file} {
		s, err := filestore.Open(dir)
		require.ErrorContains(t, err, want)
		assert.Nil(t, s)
	}
}

// The package's documentation promises these modes: processes of other users are kept out.
func TestDirectoryAndFilesAreTheOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	s := open(t, dir)
	_, err := s.Acquire(t.Context(), mine("k"))
	require.NoError(t, err)

	made := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		made++
		info, err := entry.Info()
		if err == nil {
			assert.Zero(t, info.Mode().Perm()&0o077, "%s has mode %v", path, info.Mode())
		}
		return err
	}))
	assert.Greater(t, made, 3, "directory, record, tokens, locks")
}
