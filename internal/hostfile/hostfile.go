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
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/knob"
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
	disk Disk

	mu    sync.Mutex               // protects turns
	turns map[string]chan struct{} // of the goroutines of this process, by lock
}

// Open opens a directory, and makes it if need be.
func Open(path string) (*Dir, error) {
	disk, err := OpenDisk(path)
	if err != nil {
		return nil, err
	}
	return On(disk), nil
}

// On is a directory that is already open.
func On(disk Disk) *Dir { return &Dir{disk: disk, turns: make(map[string]chan struct{})} }

// Close lets go of the directory.
func (d *Dir) Close() error { return d.disk.Close() }

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
	lock, err := d.disk.OpenLock(name + lockSuffix)
	if err != nil {
		<-turn
		return nil, err
	}
	for pause := askLeast; ; pause = min(2*pause, askMost) {
		busy, err := lock.Try()
		if err == nil && (!busy || knob.LockIgnored) {
			return func() {
				lock.Close() // and with it flock
				<-turn
			}, nil
		}
		if err == nil {
			err = sleep(ctx, pause)
		}
		if err != nil {
			<-turn
			return nil, errors.Join(err, lock.Close())
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
	content, err := d.disk.Read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && content == nil:
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
	if knob.WriteInPlace {
		temp = name
	}
	file, err := d.disk.Create(temp)
	if err != nil {
		return false, err
	}
	if _, err = file.Write(content); err == nil && !knob.FileUnsynced {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = d.disk.Rename(temp, name)
	}
	if err != nil {
		return false, errors.Join(err, d.disk.Remove(temp))
	}
	return true, d.sync()
}

// Remove takes a file away, if it is there.
func (d *Dir) Remove(name string) (applied bool, err error) {
	if err := d.disk.Remove(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		return false, err
	}
	return true, d.sync()
}

// Names yields the files there are, in no order.
func (d *Dir) Names() ([]string, error) {
	all, err := d.disk.Names()
	files := all[:0]
	for _, name := range all {
		if !strings.HasSuffix(name, lockSuffix) && !strings.HasSuffix(name, tempSuffix) {
			files = append(files, name)
		}
	}
	return files, err
}

// sync makes what became of the names outlive a crash of the host.
func (d *Dir) sync() error {
	if knob.DirectoryUnsynced {
		return nil
	}
	if err := d.disk.Sync(); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return nil
}
