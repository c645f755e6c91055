// Package hostfile keeps small files for several processes of one host: each is
// locked while it is read and written, and replaced as a whole, so that a process
// that is killed at any instant leaves the old content or the new one.
//
// A write goes to a temporary file, which is synced and then renamed over the old
// one; then the directory is synced. Only after that is it acknowledged. The lock is
// flock's, which the kernel takes from a process that dies, on a file beside the
// others that is never removed: to lock a file that may be replaced is to lock one that
// others no longer see. All of it stays in one directory, by os.Root: no link leads
// out of it.
package hostfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
)

// The names of what is in a directory, beside the files themselves.
const (
	lockSuffix = ".lock"
	tempSuffix = ".tmp"
)

// Between two attempts at a lock that another process has. flock can wait, but not
// for a context.
const (
	askLeast = 100 * time.Microsecond
	askMost  = 10 * time.Millisecond
)

// A Dir is a directory of such files. It is safe for concurrent use.
type Dir struct {
	root *os.Root

	mu    sync.Mutex               // protects turns
	turns map[string]chan struct{} // of the goroutines of this process, by lock

	// Step, if set, is called with the name of each step of a write once it is done:
	// for tests that end the process there.
	Step func(string)
}

// Open opens a directory, and makes it if need be.
func Open(path string) (*Dir, error) {
	if path == "" {
		return nil, errors.New("the directory is not named")
	}
	if err := supported(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Dir{root: root, turns: make(map[string]chan struct{})}, nil
}

// Close lets go of the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Name is a file's name for any text: no byte of it is special to a file system.
func Name(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Lock takes a lock, of this process's goroutines and of all processes, until unlock.
func (d *Dir) Lock(ctx context.Context, name string) (unlock func(), err error) {
	turn := d.turn(name)
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	file, err := d.root.OpenFile(name+lockSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		<-turn
		return nil, err
	}
	for pause := askLeast; ; pause = min(2*pause, askMost) {
		busy, err := tryLock(file)
		if err == nil && !busy {
			return func() {
				file.Close() // and with it flock
				<-turn
			}, nil
		}
		if err == nil {
			err = sleep(ctx, pause)
		}
		if err != nil {
			file.Close()
			<-turn
			return nil, err
		}
	}
}

func (d *Dir) turn(name string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	turn := d.turns[name]
	if turn == nil {
		turn = make(chan struct{}, 1)
		d.turns[name] = turn
	}
	return turn
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Read answers a file's content, and nil without an error if there is none.
func (d *Dir) Read(name string) ([]byte, error) {
	file, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(file)
	if err == nil && content == nil {
		content = []byte{} // there, and empty
	}
	return content, err
}

// Write replaces a file. applied says, of an error, that the new content may be there
// all the same: it is in its place, and may or may not outlive the host's next crash.
func (d *Dir) Write(name string, content []byte) (applied bool, err error) {
	// The name is the same each time: whoever writes holds the lock, so what is there
	// was left by a process that was killed.
	temp := name + tempSuffix
	file, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, err
	}
	d.step("made")
	if _, err = file.Write(content); err == nil {
		d.step("written")
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	d.step("synced")
	if err == nil {
		err = d.root.Rename(temp, name)
	}
	if err != nil {
		return false, errors.Join(err, d.root.Remove(temp))
	}
	d.step("renamed")
	return true, d.syncDir()
}

// Remove takes a file away, if it is there.
func (d *Dir) Remove(name string) (applied bool, err error) {
	if err := d.root.Remove(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		return false, err
	}
	d.step("removed")
	return true, d.syncDir()
}

// Names yields the files there are, in no order.
func (d *Dir) Names() ([]string, error) {
	dir, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	all, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	files := all[:0]
	for _, name := range all {
		if !strings.HasSuffix(name, lockSuffix) && !strings.HasSuffix(name, tempSuffix) {
			files = append(files, name)
		}
	}
	return files, nil
}

func (d *Dir) syncDir() error {
	dir, err := d.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	d.step("directory synced")
	return nil
}

func (d *Dir) step(done string) {
	if d.Step != nil {
		d.Step(done)
	}
}
