// Package disktest shows what a crash leaves of locks in files: the crash of a process, or
// that of the host, for which it has a disk that loses power.
package disktest

import (
	"bytes"
	"io/fs"
	"iter"
	"maps"
	"slices"

	"github.com/mongolock/mongolock/internal/hostfile"
)

// A Disk is a directory in memory that knows what a power cut would leave of it. As on a real
// one, content is safe once its file was synced, and changes of names once the directory
// was. Until then each may have reached the disk or not, and content may have in part.
// Changes of names reach the disk in order. A Disk is for one goroutine.
type Disk struct {
	files, safe map[string]*file
	since       []func(map[string]*file) // the changes of names since the last sync
}

// A file is content. It may have one name, another, or none.
type file struct{ text, safe []byte }

// NewDisk returns an empty Disk.
func NewDisk() *Disk { return &Disk{files: map[string]*file{}, safe: map[string]*file{}} }

// AfterPowerCut yields every disk that a power cut at this moment may leave.
func (d *Disk) AfterPowerCut() iter.Seq[*Disk] {
	return func(yield func(*Disk) bool) {
		names := maps.Clone(d.safe)
		for i := 0; ; i++ {
			for _, kept := range []func(*file) []byte{
				func(f *file) []byte { return f.safe },
				func(*file) []byte { return nil },
				func(f *file) []byte { return f.text[:len(f.text)/2] },
				func(f *file) []byte { return f.text },
			} {
				left := NewDisk()
				for name, f := range names {
					text := f.safe
					if !bytes.Equal(f.text, f.safe) {
						text = kept(f)
					}
					left.files[name] = &file{text: text, safe: text}
				}
				left.safe = maps.Clone(left.files)
				if !yield(left) {
					return
				}
			}
			if i == len(d.since) {
				return
			}
			d.since[i](names)
		}
	}
}

// name changes the names, now, and later on the disk.
func (d *Disk) name(do func(map[string]*file)) {
	do(d.files)
	d.since = append(d.since, do)
}

// Create creates an empty file.
func (d *Disk) Create(name string) (hostfile.File, error) {
	if d.files[name] != nil {
		return nil, fs.ErrExist
	}
	f := &file{}
	d.name(func(names map[string]*file) { names[name] = f })
	return f, nil
}

// Read returns a file's content as programs see it.
func (d *Disk) Read(name string) ([]byte, error) {
	f := d.files[name]
	if f == nil {
		return nil, fs.ErrNotExist
	}
	return bytes.Clone(f.text), nil
}

// Rename replaces a name, in one step on the disk as well.
func (d *Disk) Rename(from, to string) error {
	f := d.files[from]
	if f == nil {
		return fs.ErrNotExist
	}
	d.name(func(names map[string]*file) {
		delete(names, from)
		names[to] = f
	})
	return nil
}

// Remove removes a name.
func (d *Disk) Remove(name string) error {
	if d.files[name] == nil {
		return fs.ErrNotExist
	}
	d.name(func(names map[string]*file) { delete(names, name) })
	return nil
}

// Names returns the names that programs see.
func (d *Disk) Names() ([]string, error) { return slices.Collect(maps.Keys(d.files)), nil }

// Sync makes all changes of names safe.
func (d *Disk) Sync() error {
	d.safe, d.since = maps.Clone(d.files), nil
	return nil
}

// Close does nothing.
func (d *Disk) Close() error { return nil }

// OpenLock returns a lock that is always free: there is one goroutine.
func (d *Disk) OpenLock(string) (hostfile.Lock, error) { return free{}, nil }

type free struct{}

func (free) Try() (busy bool, err error) { return false, nil }
func (free) Stale() (bool, error)        { return false, nil }
func (free) Close() error                { return nil }

func (f *file) Write(text []byte) (int, error) {
	f.text = append(bytes.Clone(f.text), text...)
	return len(text), nil
}

func (f *file) Sync() error {
	f.safe = f.text
	return nil
}

func (f *file) Close() error { return nil }
