package hostfile

import (
	"errors"
	"io"
	"os"
)

// A Disk is what a Dir needs of a directory. OpenDisk's is the host's; package disktest
// has one that loses power.
type Disk interface {
	OpenLock(name string) (Lock, error) // made if need be
	Create(name string) (File, error)   // for writing, and emptied if it is there
	Read(name string) ([]byte, error)   // fs.ErrNotExist if there is none
	Rename(from, to string) error       // over what is there, in one step
	Remove(name string) error           // fs.ErrNotExist if there is none
	Names() ([]string, error)           // in no order
	Sync() error                        // what became of names is safe then
	Close() error
}

// A Lock is a file that can be locked. Who closes it, or dies, unlocks it.
type Lock interface {
	Try() (busy bool, err error)
	io.Closer
}

// A File is one that is being written.
type File interface {
	io.Writer
	Sync() error // what was written is safe then, under whatever name it has
	io.Closer
}

// OpenDisk opens a directory of this host, and makes it if need be.
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
	return host{root}, nil
}

type host struct{ *os.Root }

func (h host) OpenLock(name string) (Lock, error) {
	file, err := h.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	return hostLock{file}, err
}

func (h host) Create(name string) (File, error) {
	return h.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

func (h host) Read(name string) ([]byte, error) { return h.ReadFile(name) }

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

type hostLock struct{ *os.File }

func (l hostLock) Try() (busy bool, err error) { return tryLock(l.File) }
