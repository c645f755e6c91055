package filestore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/hostfile/disktest"
	"github.com/mongolock/mongolock/internal/testchild"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
	"github.com/mongolock/mongolock/store/storetest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // the claims of a contract wait more than they work
	testchild.Main(m, testchild.Roles{disktest.Role: disktest.Dies(openOnDisk), "serves": testchild.As(serve)})
}

// serve answers the calls of the contract for another process, until that is gone.
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

// servers are processes that answer on one directory.
func servers(t testing.TB, dir string, env ...string) (calls [3]remote) {
	t.Helper()
	for i := range calls {
		calls[i] = remote{"http://" + testchild.Start(t, "serves", dir, env...).Says()}
	}
	return calls
}

// inProcesses is a store each of whose calls is made by another process than the last.
type inProcesses struct {
	byHand // reads, which have no more to show there, and the shell

	calls *[3]remote
	next  *atomic.Int32
}

func (p inProcesses) one() remote { return p.calls[int(p.next.Add(1))%len(p.calls)] }

func TestContractAmongSeveralProcesses(t *testing.T) {
	dir := disktest.InMemory(t)
	calls := servers(t, dir)
	var next, shape atomic.Int32
	t.Cleanup(func() { // when the claims have run, side by side
		if next.Load() < 1000 {
			t.Errorf("%d calls went to other processes", next.Load())
		}
	})
	storetest.Run(t, storetest.Real, func(t testing.TB) store.Store {
		return inProcesses{byHand{open(t, dir), dir, &shape}, &calls, &next}
	})
}

// sameTokens has processes draw tokens at once, and answers what is wrong with them.
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
	for _, w := range sameTokens(t) {
		t.Error(w)
	}
}

func TestAForeignTokenFileIsAnErrorAndStays(t *testing.T) {
	for _, content := range []string{"", "7", `{"mongolock":2,"last":7}`, `{"mongolock":1}`} {
		dir := t.TempDir()
		s := open(t, dir)
		file := dir + "/tokens"
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Acquire(t.Context(), mine("k")); !errors.Is(err, store.ErrForeign) {
			t.Errorf("%q: %v", content, err)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != content {
			t.Errorf("%q was made %q, %v", content, now, err)
		}
		if all, err := s.Look(t.Context(), []string{"k"}); err != nil || len(all[0].Holders) != 0 {
			t.Errorf("%q: it holds all the same: %+v, %v", content, all, err)
		}
	}
}

// What cannot be read is nobody's to replace: here a directory is in the file's place.
func TestAFileThatCannotBeReadIsAnErrorAndStays(t *testing.T) {
	for _, name := range []string{hostfile.Name("k"), "tokens"} {
		dir := t.TempDir()
		s := open(t, dir)
		inside := filepath.Join(dir, name, "inside")
		if err := os.MkdirAll(inside, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Acquire(t.Context(), mine("k")); err == nil || !errors.Is(err, store.ErrNotApplied) {
			t.Errorf("%s: acquire: %v", name, err)
		}
		if name != "tokens" {
			if _, err := s.Look(t.Context(), []string{"k"}); err == nil {
				t.Errorf("%s: it is said to be free", name)
			}
		}
		if _, err := os.Stat(inside); err != nil {
			t.Errorf("%s: it was replaced: %v", name, err)
		}
	}
}

func TestTokensRiseThoughTheDirectoryWasEmptied(t *testing.T) {
	now := time.Now()
	clock := filestore.WithClock(func() time.Time { return now })
	one, err := open(t, disktest.InMemory(t), clock).Acquire(t.Context(), mine("k"))
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	two, err := open(t, disktest.InMemory(t), clock).Acquire(t.Context(), mine("k"))
	if err != nil || two.Token <= one.Token {
		t.Errorf("%d after %d, %v", two.Token, one.Token, err)
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, open := range map[string]func() (*filestore.Store, error){
		"not named":       func() (*filestore.Store, error) { return filestore.Open("") },
		"not a directory": func() (*filestore.Store, error) { return filestore.Open(file) },
		"WithClock":       func() (*filestore.Store, error) { return filestore.Open(t.TempDir(), filestore.WithClock(nil)) },
	} {
		if s, err := open(); s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
