package filestore_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
	"github.com/mongolock/mongolock/store/storetest"
)

// byHand is a filestore whose files the suite can change by hand.
type byHand struct {
	*filestore.Store
	dir   string
	shape *atomic.Int32
}

func open(t testing.TB, dir string) *filestore.Store {
	t.Helper()
	s, err := filestore.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newStore(t testing.TB) store.Store {
	dir := disktest.InMemory(t)
	return byHand{open(t, dir), dir, new(atomic.Int32)}
}

func (s byHand) Purge(key string) error { return os.Remove(filepath.Join(s.dir, hostfile.Name(key))) }

func (s byHand) Foreign(key string) (intact func() error, err error) {
	shapes := []string{
		"", "\x00\x00\x00\x00", "not JSON", "{}", `{"mongolock":2,"key":"k"}`, `{"mongolock":"1","key":"k"}`,
		`{"mongolock":1,"key":"another's","mode":"exclusive","at":"2020-01-01T00:00:00Z","holders":[]}`,
		fmt.Sprintf(`{"mongolock":1,"key":%q,"mode":"exclusive","at":"2020-01-01T00:00:00Z","holders":[{}]}`, key),
		fmt.Sprintf(`{"mongolock":1,"key":%q,"mode":"exclusive","holders":[{"id":"x","expi`, key), // cut off
	}
	file := filepath.Join(s.dir, hostfile.Name(key))
	content := []byte(shapes[int(s.shape.Add(1)-1)%len(shapes)])
	return func() error {
		now, err := os.ReadFile(file)
		if err == nil && !bytes.Equal(now, content) {
			err = fmt.Errorf("it was %q and is %q", content, now)
		}
		return err
	}, os.WriteFile(file, content, 0o600)
}

func TestContractInVirtualTime(t *testing.T) { storetest.Run(t, storetest.Virtual, newStore) }

func TestContractInRealTime(t *testing.T) { storetest.Run(t, storetest.Real, newStore) }

func TestContractWithAWallClockThatIsSetAllTheTime(t *testing.T) {
	storetest.Run(t, storetest.Virtual, func(t testing.TB) store.Store {
		dir, m := disktest.InMemory(t), newMachine()
		begin := time.Now()
		var calls atomic.Int64
		m.wall = func() time.Time { // an hour ahead, an hour behind, and far from any date of before
			return begin.Add(time.Duration(calls.Add(1)%3-1)*time.Hour + time.Since(begin)/7)
		}
		return byHand{m.open(t, dir), dir, new(atomic.Int32)}
	})
}
