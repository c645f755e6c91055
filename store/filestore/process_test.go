package filestore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/filestore"
	"github.com/mongolock/mongolock/store/storetest"
)

// The variables that make this program a child of a test.
const (
	childIs  = "FILESTORE_TEST_CHILD"
	childDir = "FILESTORE_TEST_DIR"
	childN   = "FILESTORE_TEST_STEP"
)

func TestMain(m *testing.M) {
	child := map[string]func(*filestore.Store){"dies": dieAtStep, "serves": serve}[os.Getenv(childIs)]
	if child == nil {
		os.Exit(m.Run())
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
		os.Exit(1)
	}()
	s, err := filestore.Open(os.Getenv(childDir))
	if err != nil {
		panic(err)
	}
	child(s)
}

// start runs this program as a child, and answers what it says, line by line.
func start(t testing.TB, what, dir string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, childIs+"="+what, childDir+"="+dir)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(stdout)
}

func mine(key string) store.Claim {
	return store.Claim{
		Ref:   store.Ref{Key: key, ID: "the id of " + key, Mode: store.Exclusive},
		Limit: 1, TTL: time.Hour, Owner: "child",
	}
}

// dieAtStep takes keys, renews and releases them, says so after each answer, and kills
// itself after the step of a write whose number it was given.
func dieAtStep(s *filestore.Store) {
	var left int
	if _, err := fmt.Sscan(os.Getenv(childN), &left); err != nil {
		panic(err)
	}
	s.AtStep(func(string) {
		if left--; left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	ctx := context.Background()
	for _, key := range []string{"a", "b", "c"} {
		c := mine(key)
		g, err := s.Acquire(ctx, c)
		if err != nil {
			panic(err)
		}
		fmt.Println("granted", key, g.Token)
		r := s.Renew(ctx, []store.Renewal{{Ref: c.Ref, TTL: 10 * time.Hour}})
		if r[0].Err != nil {
			panic(r[0].Err)
		}
		fmt.Println("renewed", key, 0)
		if key != "b" {
			if _, err := s.Release(ctx, c.Ref, 0); err != nil {
				panic(err)
			}
			fmt.Println("released", key, 0)
		}
	}
	fmt.Println("done", "", 0)
}

func TestAKillAtAnyWriteLosesNothingAcknowledged(t *testing.T) {
	ends := make(map[string]int)
	for step := 1; ; step++ {
		dir := t.TempDir()
		cmd, lines := start(t, "dies", dir, fmt.Sprint(childN, "=", step))
		acknowledged := map[string]string{}
		var last int64
		done := false
		for lines.Scan() {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			key, number, _ := strings.Cut(rest, " ")
			if word == "done" {
				done = true
				break
			}
			acknowledged[key] = word
			if word == "granted" {
				if _, err := fmt.Sscan(number, &last); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !done {
			_ = cmd.Wait()
		}
		s := open(t, dir)
		for _, key := range []string{"a", "b", "c"} {
			all, err := s.Look(t.Context(), []string{key})
			if err != nil {
				t.Fatalf("killed at step %d: %v", step, err)
			}
			status := all[0]
			held := len(status.Holders) == 1 && status.Holders[0].ID == mine(key).ID && !status.Free()
			ends[fmt.Sprintf("%s, held %v", acknowledged[key], held)]++
			switch acknowledged[key] {
			case "granted": // and perhaps renewed
				if !held {
					t.Errorf("killed at step %d: the grant of %s is lost: %+v", step, key, status)
				}
			case "renewed": // and perhaps released
				if !held && (key == "b" || len(status.Holders) != 0) || held && status.Left() < 9*time.Hour {
					t.Errorf("killed at step %d: the renewal of %s is lost: %+v", step, key, status)
				}
			case "released":
				if len(status.Holders) != 0 {
					t.Errorf("killed at step %d: the release of %s is lost: %+v", step, key, status)
				}
			}
		}
		// And all goes on, with greater tokens.
		g, err := s.Acquire(t.Context(), mine("next"))
		if err != nil || g.Token <= last {
			t.Fatalf("killed at step %d: token %d after %d, %v", step, g.Token, last, err)
		}
		if done {
			t.Logf("%d steps; seen: %v", step-1, ends)
			break
		}
	}
	// Each half of each call was hit, or the test shows nothing.
	for _, end := range []string{", held false", ", held true", "renewed, held true", "renewed, held false", "released, held false", "granted, held true"} {
		if ends[end] == 0 {
			t.Errorf("no kill left a key %q", end)
		}
	}
}

// serve answers the calls of the contract for another process, until that is gone.
func serve(s *filestore.Store) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	panic(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(s, w, r) })))
}

// inProcesses is a store each of whose calls is made by another process than the last.
type inProcesses struct {
	byHand // reads, which have no more to show there, and the shell

	calls *[3]remote
	next  *atomic.Int32
}

func (p inProcesses) one() remote { return p.calls[int(p.next.Add(1))%len(p.calls)] }

func TestContractAmongSeveralProcesses(t *testing.T) {
	dir := t.TempDir()
	var calls [3]remote
	for i := range calls {
		_, lines := start(t, "serves", dir)
		if !lines.Scan() {
			t.Fatal("the process ended without a word")
		}
		calls[i] = remote{"http://" + lines.Text()}
	}
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

func TestTokensRiseThoughTheDirectoryWasEmptied(t *testing.T) {
	one, err := open(t, t.TempDir()).Acquire(t.Context(), mine("k"))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	two, err := open(t, t.TempDir()).Acquire(t.Context(), mine("k"))
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
