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

func lock(t *testing.T, d *hostfile.Dir, name string) *hostfile.Held {
	t.Helper()
	held, err := d.Lock(t.Context(), name)
	require.NoError(t, err)
	return held
}

func TestAFileIsReadAsItWasWrittenAndIsNilIfMissing(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "created", "if", "missing"))
	lock := lock(t, d, "f")
	defer lock.Unlock()
	content, err := d.Read("f")
	require.NoError(t, err)
	assert.Nil(t, content, "missing")
	for _, want := range []string{"", "one", "2"} {
		_, err := lock.Write("f", []byte(want))
		require.NoError(t, err)
		content, err := d.Read("f")
		require.NoError(t, err)
		assert.Equal(t, []byte(want), content)
	}
	names, err := d.Names()
	require.NoError(t, err)
	assert.Equal(t, []string{"f"}, names)
	for range 2 { // removing a missing file succeeds
		applied, err := lock.Remove("f")
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
	held := lock(t, one, "l")
	enough := errors.New("waited long enough")
	for _, d := range []*hostfile.Dir{one, two} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, enough)
		_, err := d.Lock(ctx, "l")
		require.ErrorIs(t, err, enough)
		cancel()
		lock(t, d, "another").Unlock()
	}
	time.AfterFunc(10*time.Millisecond, held.Unlock)
	lock(t, two, "l").Unlock()
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
	held := lock(t, d, "another")
	defer held.Unlock()
	for _, name := range []string{"f", "g"} { // a link in the way is replaced by a file
		_, err := held.Write(name, []byte("new"))
		require.NoError(t, err)
		content, err := os.ReadFile(outside)
		require.NoError(t, err)
		assert.Equal(t, "as it was", string(content), name)
		content, err = d.Read(name)
		require.NoError(t, err)
		assert.Equal(t, "new", string(content), name)
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
// another process locks the new file. It returns the wait's outcome, and the other's lock.
func lockWhileItsFileIsRemoved(t *testing.T) (waiter <-chan error, other *hostfile.Held) {
	t.Helper()
	path := t.TempDir()
	first, third := open(t, path), open(t, path)
	held := lock(t, first, "l")

	disk, err := hostfile.OpenDisk(path)
	require.NoError(t, err)
	opened, got := make(chan struct{}, 10), make(chan error, 1)
	second := hostfile.On(openings{disk, opened})
	t.Cleanup(func() { _ = second.Close() })
	go func() {
		lock, err := second.Lock(t.Context(), "l")
		if err == nil {
			lock.Unlock()
		}
		got <- err
	}()
	<-opened

	require.NoError(t, os.Remove(filepath.Join(path, "l.lock")))
	other = lock(t, third, "l")
	held.Unlock()
	return got, other
}

func TestALockWhoseFileIsRemovedIsStillHeldByOne(t *testing.T) {
	waiter, other := lockWhileItsFileIsRemoved(t)
	select {
	case err := <-waiter:
		t.Errorf("two hold the lock: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	other.Unlock()
	assert.NoError(t, <-waiter)
}

// writeAfterTheLockIsRemoved has a process write after a cleaner has removed the file of its
// lock, and another process has locked the new file and written.
func writeAfterTheLockIsRemoved(t *testing.T) (content string, applied bool, err error) {
	t.Helper()
	path := t.TempDir()
	one, two := open(t, path), open(t, path)
	first := lock(t, one, "l")
	defer first.Unlock()
	require.NoError(t, os.Remove(filepath.Join(path, "l.lock")))
	second := lock(t, two, "l")
	defer second.Unlock()
	_, wrong := second.Write("f", []byte("second"))
	require.NoError(t, wrong)
	applied, err = first.Write("f", []byte("first"))
	text, wrong := two.Read("f")
	require.NoError(t, wrong)
	return string(text), applied, err
}

func TestAHolderWhoseLockFileWasRemovedWritesNothing(t *testing.T) {
	content, applied, err := writeAfterTheLockIsRemoved(t)
	require.ErrorIs(t, err, hostfile.ErrLockRemoved)
	assert.False(t, applied)
	assert.Equal(t, "second", content)
}

func TestAHolderWhoseLockFileWasRemovedRemovesNothing(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	held := lock(t, d, "l")
	defer held.Unlock()
	_, err := held.Write("f", []byte("text"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(path, "l.lock")))
	applied, err := held.Remove("f")
	require.ErrorIs(t, err, hostfile.ErrLockRemoved)
	assert.False(t, applied)
	names, err := d.Names()
	require.NoError(t, err)
	assert.Equal(t, []string{"f"}, names)
}
