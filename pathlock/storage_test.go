package pathlock_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/store"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

type inMemory struct{ pathlock.Storage }

func (p inMemory) Open(testing.TB) pathlock.Storage { return p.Storage }

func TestInMemoryKeepsTheContract(t *testing.T) {
	keepsTheContract(t, func(testing.TB) Place { return inMemory{pathlock.InMemory()} })
}

// inDir is a directory. Each storage on it opens the files for itself, as a process
// does.
type inDir struct {
	path  string
	shape *atomic.Int32
}

func newDir(t testing.TB) inDir { return inDir{disktest.InMemory(t), new(atomic.Int32)} }

func (p inDir) Open(t testing.TB) pathlock.Storage {
	t.Helper()
	dir, err := pathlock.InDir(p.path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	dir.Limit(1 << 20) // as good as 8 MB, for which JSON takes long
	return dir
}

func (inDir) Limited() {}

func (p inDir) Foreign(tree string) (intact func() error, err error) {
	shapes := []string{
		"", "not JSON", "{}", `{"pathlock":2}`, `{"pathlock":1,"tree":"another","locks":[]}`, `{"pathlock":"1"}`,
		fmt.Sprintf(`{"pathlock":1,"tree":%q,"locks":[{"token":"x","path":"a","mode":"exclusive","depth":"0"}]}`, tree),
		fmt.Sprintf(`{"pathlock":1,"tree":%q,"locks":[`, tree),
	}
	file := filepath.Join(p.path, hostfile.Name(tree))
	content := []byte(shapes[int(p.shape.Add(1)-1)%len(shapes)])
	return func() error {
		now, err := os.ReadFile(file)
		if err == nil && !bytes.Equal(now, content) {
			err = fmt.Errorf("it was %q and is %q", content, now)
		}
		return err
	}, os.WriteFile(file, content, 0o600)
}

// Here a directory is in the place of the tree's file.
func TestATreesFileThatCannotBeReadIsAnErrorAndIsNotReplaced(t *testing.T) {
	place := newDir(t)
	inside := filepath.Join(place.path, hostfile.Name("tree"), "inside")
	require.NoError(t, os.MkdirAll(inside, 0o700))
	tree := treeOn(t, place.Open(t))
	_, lock := tree.Lock(t.Context(), exclusive("/a", time.Hour))
	_, locks := tree.Locks(t.Context())
	assert.ErrorIs(t, lock, store.ErrNotApplied)
	assert.ErrorIs(t, locks, store.ErrNotApplied)
	assert.DirExists(t, inside, "it was replaced")
}

func TestInDirKeepsTheContract(t *testing.T) {
	keepsTheContract(t, func(t testing.TB) Place { return newDir(t) })
}

func TestOnMongoKeepsTheContract(t *testing.T) {
	testserver.Need(t, "!router")
	keepsTheContract(t, func(t testing.TB) Place { return pathlock.NewPlaceOnMongo(t) })
}
