// Package hostfile keeps small files for several processes of one host. A file is locked
// while it is read and written, and replaced as a whole. So a process that is killed at any
// instant leaves the old content or the new one.
//
// A write goes to a temporary file, which is synced and renamed over the old one. Then the
// directory is synced, and only then is the write acknowledged. The lock is flock's, which
// the kernel releases when a process dies. It is on a file of its own beside the others,
// because a file that is replaced takes its lock along.
//
// A lock file is never removed, but a cleaner of old files may do so all the same. A process
// that waits for the lock notices and locks the new file. A process that holds the lock cannot
// keep others from the new one, so its writes fail, with [ErrLockRemoved]. The check comes
// just before the rename; only a removal between these two is not noticed.
//
// Everything stays in one directory, by os.Root: no link leads out of it.
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

	"github.com/mongolock/mongolock/internal/backoff"
)

// The endings of the names that are no files of the caller's.
const (
	lockSuffix = ".lock"
	tempSuffix = ".tmp"
)

// The pauses between two attempts at a lock that another process has. flock can wait itself,
// but does not heed a context.
const (
	askLeast = 100 * time.Microsecond
	askMost  = 10 * time.Millisecond
)

// ErrLockRemoved reports that a lock's file was removed while the lock was held. Nothing was
// written.
var ErrLockRemoved = errors.New("the lock file was removed while the lock was held")

// A Dir is a directory of files. It is safe for concurrent use.
type Dir struct {
	disk Disk

	mu    sync.Mutex               // protects turns
	turns map[string]chan struct{} // a mutex for the goroutines of this process, by lock
}

// Open opens a directory, and creates it if it is missing.
func Open(path string) (*Dir, error) {
	disk, err := OpenDisk(path)
	if err != nil {
		return nil, err
	}
	return On(disk), nil
}

// On returns a Dir on a directory that is already open.
func On(disk Disk) *Dir { return &Dir{disk: disk, turns: make(map[string]chan struct{})} }

// Close closes the directory.
func (d *Dir) Close() error { return d.disk.Close() }

// Name returns a file name for any text. No byte of the name is special to a file system.
func Name(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// A Held is a lock that is held. It is for one goroutine.
type Held struct {
	dir  *Dir
	lock Lock
	turn chan struct{}
}

// Lock takes a lock among this process's goroutines and all processes, until Unlock.
func (d *Dir) Lock(ctx context.Context, name string) (*Held, error) {
	turn := d.turn(name)
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for {
		lock, err := d.lockFile(ctx, name+lockSuffix)
		if err != nil {
			<-turn
			return nil, err
		}
		if lock != nil {
			return &Held{d, lock, turn}, nil
		}
	}
}

// Unlock gives the lock up.
func (h *Held) Unlock() {
	h.lock.Close() // releases flock
	<-h.turn
}

// valid reports whether the lock still excludes others.
func (h *Held) valid() error {
	stale, err := h.lock.Stale()
	if err == nil && stale {
		err = ErrLockRemoved
	}
	return err
}

// lockFile opens and locks a file. It returns nil without an error if the file lost its name
// before it was locked: a lock on it would exclude no later process.
func (d *Dir) lockFile(ctx context.Context, name string) (Lock, error) {
	lock, err := d.disk.OpenLock(name)
	if err != nil {
		return nil, err
	}
	for pause := askLeast; ; pause = min(2*pause, askMost) {
		busy, err := lock.Try()
		if err == nil && !busy {
			break
		}
		if err == nil && !backoff.Sleep(ctx, pause) {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	stale, err := lock.Stale()
	switch {
	case err != nil:
		return nil, errors.Join(err, lock.Close())
	case stale:
		return nil, lock.Close()
	}
	return lock, nil
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

// Read returns a file's content, or nil without an error if the file is missing.
func (d *Dir) Read(name string) ([]byte, error) {
	content, err := d.disk.Read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && content == nil:
		content = []byte{} // the file is there, and empty
	}
	return content, err
}

// Write replaces a file that the lock guards. If applied is set, an error means that the new
// content is in place, but may not outlive the host's next crash.
func (h *Held) Write(name string, content []byte) (applied bool, err error) {
	d := h.dir
	temp := name + tempSuffix
	file, err := d.disk.Create(temp)
	if errors.Is(err, fs.ErrExist) {
		// The name is the same each time. The writer holds the lock, so the file was left behind
		// by a process that was killed, or belongs to one whose lock file was removed. Neither
		// must write to ours, so it is not reused.
		if err = d.disk.Remove(temp); err == nil || errors.Is(err, fs.ErrNotExist) {
			file, err = d.disk.Create(temp)
		}
	}
	if err != nil {
		return false, err
	}
	if _, err = file.Write(content); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = h.valid()
	}
	if err == nil {
		err = d.disk.Rename(temp, name)
	}
	switch {
	case errors.Is(err, ErrLockRemoved):
		return false, err // by now the temporary file may be another holder's
	case err != nil:
		return false, errors.Join(err, d.disk.Remove(temp))
	}
	return true, d.sync()
}

// Remove removes a file that the lock guards, if it is there.
func (h *Held) Remove(name string) (applied bool, err error) {
	if err := h.valid(); err != nil {
		return false, err
	}
	if err := h.dir.disk.Remove(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		return false, err
	}
	return true, h.dir.sync()
}

// Names returns the names of all files, in no order.
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

// sync makes all changes of names outlive a crash of the host.
func (d *Dir) sync() error {
	if err := d.disk.Sync(); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return nil
}
