package hostfile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
)

func open(t *testing.T, path string) *hostfile.Dir {
	t.Helper()
	d, err := hostfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestAFileIsReadAsItWasWrittenAndNilIfThereIsNone(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "made", "if", "need", "be"))
	if content, err := d.Read("f"); content != nil || err != nil {
		t.Errorf("none: %q, %v", content, err)
	}
	for _, want := range []string{"", "one", "2"} {
		if _, err := d.Write("f", []byte(want)); err != nil {
			t.Fatal(err)
		}
		if content, err := d.Read("f"); content == nil || string(content) != want || err != nil {
			t.Errorf("%q: %q, %v", want, content, err)
		}
	}
	if names, err := d.Names(); !slices.Equal(names, []string{"f"}) || err != nil {
		t.Errorf("%q, %v", names, err)
	}
	for range 2 { // a file that is not there is as good as removed
		if applied, err := d.Remove("f"); !applied || err != nil {
			t.Error(err)
		}
	}
	if content, err := d.Read("f"); content != nil || err != nil {
		t.Errorf("removed: %q, %v", content, err)
	}
}

func TestALockIsHeldByOneOfAllProcessesAndGoroutines(t *testing.T) {
	path := t.TempDir()
	one, two := open(t, path), open(t, path) // to the kernel as two processes
	unlock, err := one.Lock(t.Context(), "l")
	if err != nil {
		t.Fatal(err)
	}
	mine := errors.New("enough waited")
	for _, d := range []*hostfile.Dir{one, two} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, mine)
		if _, err := d.Lock(ctx, "l"); !errors.Is(err, mine) {
			t.Errorf("%v", err)
		}
		cancel()
		free, err := d.Lock(t.Context(), "another")
		if err != nil {
			t.Fatal(err)
		}
		free()
	}
	time.AfterFunc(10*time.Millisecond, unlock)
	if unlock, err = two.Lock(t.Context(), "l"); err != nil {
		t.Fatal(err)
	}
	unlock()
	if names, err := one.Names(); len(names) != 0 || err != nil {
		t.Errorf("locks are no files: %q, %v", names, err)
	}
}

// Whoever can put a link into the directory cannot have anything else written by that.
func TestNoLinkLeadsOutOfTheDirectory(t *testing.T) {
	path, outside := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(outside, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(t, path)
	for _, name := range []string{"f", "g.tmp", "h.lock"} {
		if err := os.Symlink(outside, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	if content, err := d.Read("f"); err == nil {
		t.Errorf("read by the link: %q", content)
	}
	if _, err := d.Lock(t.Context(), "h"); err == nil {
		t.Error("locked by the link")
	}
	for _, name := range []string{"f", "g"} { // of these the first puts a file in the link's place
		_, err := d.Write(name, []byte("spoilt"))
		if name == "g" && err == nil {
			t.Error("written by the link")
		}
		if content, err := os.ReadFile(outside); string(content) != "as it was" || err != nil {
			t.Errorf("%s: it is %q, %v", name, content, err)
		}
	}
}
