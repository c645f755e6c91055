//go:build unix && !solaris && !aix

package hostfile_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/hostfile"
)

func TestADirectoryInWhichOthersCouldRemoveFilesIsRefused(t *testing.T) {
	t.Parallel()
	open := func(dir string) error {
		disk, err := hostfile.OpenDisk(dir)
		if err == nil {
			err = disk.Close()
		}
		return err
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	assert.ErrorContains(t, open(dir), "others may write to the directory (drwxrwxrwx)")
	require.NoError(t, os.Chmod(dir, 0o1777))
	assert.ErrorContains(t, open(dir), "others may write to the directory")
	require.NoError(t, os.Chmod(dir, 0o755))
	assert.NoError(t, open(dir))
	assert.NoError(t, open(filepath.Join(dir, "made", "here")))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(dir, 65534, -1))
		assert.ErrorContains(t, open(dir), "belongs to another user (65534)")
	}
}

// Its reader would wait for ever.
func TestAFileThatIsAFIFOIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	disk, err := hostfile.OpenDisk(dir)
	require.NoError(t, err)
	defer disk.Close()
	_, err = disk.Read("fifo")
	assert.ErrorContains(t, err, "fifo is not a regular file")
	_, err = disk.OpenLock("fifo")
	assert.ErrorContains(t, err, "fifo is not a regular file")
}
