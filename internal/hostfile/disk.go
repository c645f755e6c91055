package hostfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// A Disk is what a Dir needs of a directory. OpenDisk opens one of this host; package
// disktest has one that loses power.
type Disk interface {
	OpenLock(name string) (Lock, error) // created if missing
	Create(name string) (File, error)   // for writing; fs.ErrExist if it exists
	Read(name string) ([]byte, error)   // fs.ErrNotExist if it is missing
	Rename(from, to string) error       // replaces the target, atomically
	Remove(name string) error           // fs.ErrNotExist if it is missing
	Names() ([]string, error)           // in no order
	Sync() error                        // makes all changes of names safe
	Close() error
}

// A Lock is a file that can be locked. Closing it unlocks it, as does the death of its
// process.
type Lock interface {
	Try() (busy bool, err error)
	Stale() (bool, error) // the file has lost its name: other processes lock another file
	io.Closer
}

// A File is a file that is being written.
type File interface {
	io.Writer
	Sync() error // makes what was written safe, whatever name the file has
	io.Closer
}

// OpenDisk opens a directory of this host, and creates it if it is missing. It refuses one in which others could
// remove or replace files: one of another user than this or root, or that others may write to.
func OpenDisk(path string) (Disk, error) {
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
	if err := private(root); err != nil {
		_ = root.Close() // it was only looked at
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return host{root}, nil
}

type host struct{ *os.Root }

func (h host) OpenLock(name string) (Lock, error) {
	file, err := h.regular(name, os.O_RDWR|os.O_CREATE)
	return hostLock{file, h.Root, name}, err
}

// regular opens a file, and refuses what is none: a FIFO would make its reader wait for ever.
func (h host) regular(name string, flags int) (*os.File, error) {
	file, err := h.OpenFile(name, flags|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close() // nothing was written
		return nil, cmp.Or(err, fmt.Errorf("%s is not a regular file", name))
	}
	return file, nil
}

func (h host) Create(name string) (File, error) {
	return h.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (h host) Read(name string) ([]byte, error) {
	file, err := h.regular(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

func (h host) Names() ([]string, error) {
	dir, err := h.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

func (h host) Sync() error {
	dir, err := h.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

type hostLock struct {
	*os.File
	dir  *os.Root
	name string
}

func (l hostLock) Try() (busy bool, err error) { return tryLock(l.File) }

func (l hostLock) Stale() (bool, error) {
	ours, err := l.Stat()
	if err != nil {
		return false, err
	}
	named, err := l.dir.Lstat(l.name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && !os.SameFile(ours, named), err
}
