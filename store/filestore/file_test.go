package filestore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/store"
)

// A renewal's dates have more digits than those of the grant, at a whole second. The refusal of a renewal would end the lease.
func TestAFullRecordRefusesFurtherHoldersAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, ctx := disktest.InMemory(t), t.Context()
		s := open(t, dir)
		claim := func(id string, note int) store.Claim {
			ref := store.Ref{Key: "shared", ID: id, Mode: store.Shared}
			return store.Claim{Ref: ref, TTL: time.Minute, Note: strings.Repeat("n", note)}
		}
		const most, small = 8 << 20, 1000
		first := claim("first", small)
		_, err := s.Acquire(ctx, first)
		require.NoError(t, err)
		file, err := os.Stat(filepath.Join(dir, hostfile.Name("shared")))
		require.NoError(t, err)
		_, err = s.Release(ctx, store.ReleaseRequest{Ref: first.Ref})
		require.NoError(t, err)

		_, err = s.Acquire(ctx, claim("first", small+most-int(file.Size())))
		require.NoError(t, err, "a record of exactly the most")
		time.Sleep(123456789)
		_, err = s.Acquire(ctx, claim("second", 0))
		assert.ErrorIs(t, err, store.ErrTooLarge)
		assert.NoError(t, s.Renew(ctx, []store.Renewal{{Ref: first.Ref, TTL: time.Minute}})[0].Err, "renewal")
		_, err = s.Release(ctx, store.ReleaseRequest{Ref: first.Ref, Keep: time.Hour})
		assert.NoError(t, err, "release for later")
	})
}

// A volume has a directory lost+found at its root.
func TestAListPassesOverWhatIsNoKeysFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
	s := open(t, dir)
	_, err := s.Acquire(t.Context(), mine("k"))
	require.NoError(t, err)
	for status, err := range s.List(t.Context(), "") {
		require.NoError(t, err)
		assert.Equal(t, "k", status.Key)
	}
}
