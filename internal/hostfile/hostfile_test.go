package hostfile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/hostfile"
)

func open(t *testing.T, path string) *hostfile.Dir {
	t.Helper()
	d, err := hostfile.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestAFileIsReadAsItWasWrittenAndIsNilIfMissing(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "created", "if", "missing"))
	content, err := d.Read("f")
	require.NoError(t, err)
	assert.Nil(t, content, "missing")
	for _, want := range []string{"", "one", "2"} {
		_, err := d.Write("f", []byte(want))
		require.NoError(t, err)
		content, err := d.Read("f")
		require.NoError(t, err)
		assert.Equal(t, []byte(want), content)
	}
	names, err := d.Names()
	require.NoError(t, err)
	assert.Equal(t, []string{"f"}, names)
	for range 2 { // removing a missing file succeeds
		applied, err := d.Remove("f")
		require.NoError(t, err)
		assert.True(t, applied)
	}
	content, err = d.Read("f")
	require.NoError(t, err)
	assert.Nil(t, content, "removed")
}

func TestALockIsHeldByOneOfAllProcessesAndGoroutines(t *testing.T) {
	path := t.TempDir()
	one, two := open(t, path), open(t, path) // two processes, to the kernel
	unlock, err := one.Lock(t.Context(), "l")
	require.NoError(t, err)
	enough := errors.New("waited long enough")
	for _, d := range []*hostfile.Dir{one, two} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, enough)
		_, err := d.Lock(ctx, "l")
		require.ErrorIs(t, err, enough)
		cancel()
		free, err := d.Lock(t.Context(), "another")
		require.NoError(t, err)
		free()
	}
	time.AfterFunc(10*time.Millisecond, unlock)
	unlock, err = two.Lock(t.Context(), "l")
	require.NoError(t, err)
	unlock()
	names, err := one.Names()
	require.NoError(t, err)
	assert.Empty(t, names, "a lock is not among the files")
}

func TestNoLinkLeadsOutOfTheDirectory(t *testing.T) {
	path, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("as it was"), 0o600))
	d := open(t, path)
	for _, name := range []string{"f", "g.tmp", "h.lock"} {
		require.NoError(t, os.Symlink(outside, filepath.Join(path, name)))
	}
	content, err := d.Read("f")
	assert.Error(t, err, "read by the link: %q", content)
	_, err = d.Lock(t.Context(), "h")
	assert.Error(t, err, "locked by the link")
	for _, name := range []string{"f", "g"} { // writing f replaces the link by a file
		_, err := d.Write(name, []byte("new"))
		if name == "g" {
			assert.Error(t, err, "written by the link")
		}
		content, err := os.ReadFile(outside)
		require.NoError(t, err)
		assert.Equal(t, "as it was", string(content), name)
	}
}
