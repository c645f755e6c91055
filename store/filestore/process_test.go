package filestore_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
	"github.com/mongolock/mongolock/store/storetest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // the claims of a contract wait more than they work
	testchild.Main(m, testchild.Roles{disktest.Role: disktest.Dies(openOnDisk), "serves": testchild.As(serve)})
}

// serve answers the calls of the contract for another process, until that one ends.
func serve(ctx context.Context, dir string) error {
	s, err := filestore.Open(dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(s, w, r) }))
	return s.Close()
}

// servers starts three processes that serve one directory.
func servers(t testing.TB, dir string, env ...string) (calls [3]remote) {
	t.Helper()
	for i := range calls {
		calls[i] = remote{"http://" + testchild.Start(t, "serves", dir, env...).Says()}
	}
	return calls
}

// inProcesses is a store that makes each call in another process than the last one.
type inProcesses struct {
	byHand // reads in this process, and changes files by hand

	calls *[3]remote
	next  *atomic.Int32
}

func (p inProcesses) one() remote { return p.calls[int(p.next.Add(1))%len(p.calls)] }

func TestContractAmongSeveralProcesses(t *testing.T) {
	dir := disktest.InMemory(t)
	calls := servers(t, dir)
	var next, shape atomic.Int32
	t.Cleanup(func() { // the claims run in parallel, after this function
		assert.GreaterOrEqual(t, next.Load(), int32(1000), "calls that went to other processes")
	})
	storetest.Run(t, storetest.Real, func(t testing.TB) store.Store {
		return inProcesses{byHand{open(t, dir), dir, &shape}, &calls, &next}
	})
}

// sameTokens lets several processes draw tokens at once, and returns what is wrong with
// the tokens.
func sameTokens(t testing.TB, env ...string) (wrong []string) {
	t.Helper()
	const each = 40
	var mu sync.Mutex // protects drawn and wrong
	drawn := make(map[int64]bool)
	var all sync.WaitGroup
	for i, r := range servers(t, disktest.InMemory(t), env...) {
		all.Go(func() {
			for n := range each {
				res := r.call(t.Context(), call{Op: "acquire", Claim: mine(fmt.Sprint(i, " ", n))})
				mu.Lock()
				switch {
				case res.Err != nil:
					wrong = append(wrong, res.Err.Text)
				case drawn[res.Grant.Token]:
					wrong = append(wrong, fmt.Sprintf("two grants have the token %d", res.Grant.Token))
				}
				drawn[res.Grant.Token] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return wrong
}

func TestNoTwoGrantsOfSeveralProcessesHaveOneToken(t *testing.T) {
	assert.Empty(t, sameTokens(t))
}

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
