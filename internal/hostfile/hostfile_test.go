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

// An openings disk tells when a lock file has been opened.
type openings struct {
	hostfile.Disk
	opened chan<- struct{}
}

func (o openings) OpenLock(name string) (hostfile.Lock, error) {
	lock, err := o.Disk.OpenLock(name)
	o.opened <- struct{}{}
	return lock, err
}

// lockWhileItsFileIsRemoved has a process wait for a lock whose file a cleaner removes, while
// another process locks the new file. It returns the wait's outcome, and the other's unlock.
func lockWhileItsFileIsRemoved(t *testing.T) (waiter <-chan error, unlock func()) {
	t.Helper()
	path := t.TempDir()
	first, third := open(t, path), open(t, path)
	release, err := first.Lock(t.Context(), "l")
	require.NoError(t, err)

	disk, err := hostfile.OpenDisk(path)
	require.NoError(t, err)
	opened, got := make(chan struct{}, 10), make(chan error, 1)
	second := hostfile.On(openings{disk, opened})
	t.Cleanup(func() { _ = second.Close() })
	go func() {
		free, err := second.Lock(t.Context(), "l")
		if err == nil {
			free()
		}
		got <- err
	}()
	<-opened

	require.NoError(t, os.Remove(filepath.Join(path, "l.lock")))
	unlock, err = third.Lock(t.Context(), "l")
	require.NoError(t, err)
	release()
	return got, unlock
}

func TestALockWhoseFileIsRemovedIsStillHeldByOne(t *testing.T) {
	waiter, unlock := lockWhileItsFileIsRemoved(t)
	select {
	case err := <-waiter:
		t.Errorf("two hold the lock: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	unlock()
	assert.NoError(t, <-waiter)
}
