package pathlock_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/hostfile/disktest"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/pathlock/pathlocktest"
	"github.com/mongolock/mongolock/store"
)

type inMemory struct{ *pathlock.Memory }

func (p inMemory) Open(testing.TB) pathlock.Storage { return p.Memory }

func TestInMemoryKeepsTheContract(t *testing.T) {
	pathlocktest.Run(t, func(testing.TB) pathlocktest.Place { return inMemory{pathlock.InMemory()} })
}

// inDir is a directory; each storage on it has its own files open, as each process
// would.
type inDir struct {
	path  string
	shape *atomic.Int32
}

func newDir(t testing.TB) inDir { return inDir{disktest.InMemory(t), new(atomic.Int32)} }

func (p inDir) Open(t testing.TB) pathlock.Storage {
	t.Helper()
	dir, err := pathlock.InDir(p.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	dir.Limit(1 << 20) // what is at the end of it, is so at the end of 8 MB, which takes JSON its time
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

// What cannot be read is nobody's to replace: here a directory is in the file's place.
func TestATreesFileThatCannotBeReadIsAnErrorAndStays(t *testing.T) {
	place := newDir(t)
	inside := filepath.Join(place.path, hostfile.Name("tree"), "inside")
	if err := os.MkdirAll(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	tree := treeOn(t, place.Open(t))
	_, lock := tree.Lock(t.Context(), exclusive("/a", time.Hour))
	_, locks := tree.Locks(t.Context())
	for op, err := range map[string]error{"Lock": lock, "Locks": locks} {
		if !errors.Is(err, store.ErrNotApplied) {
			t.Errorf("%s: %v", op, err)
		}
	}
	if _, err := os.Stat(inside); err != nil {
		t.Errorf("it was replaced: %v", err)
	}
}

func TestInDirKeepsTheContract(t *testing.T) {
	pathlocktest.Run(t, func(t testing.TB) pathlocktest.Place { return newDir(t) })
}

func TestOnMongoKeepsTheContract(t *testing.T) {
	pathlocktest.Run(t, func(t testing.TB) pathlocktest.Place { return pathlock.NewPlaceOnMongo(t) })
}
