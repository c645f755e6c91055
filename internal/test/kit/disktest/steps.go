package disktest

import "github.com/mongolock/mongolock/internal/hostfile"

// Steps returns a disk that calls step after each change of a file, and in the middle of each
// write. A test can end a process there.
func Steps(disk hostfile.Disk, step func()) hostfile.Disk { return steps{disk, step} }

type steps struct {
	hostfile.Disk
	step func()
}

func (s steps) did(err error) error {
	s.step()
	return err
}

func (s steps) Create(name string) (hostfile.File, error) {
	file, err := s.Disk.Create(name)
	return stepFile{file, s}, s.did(err)
}

func (s steps) Rename(from, to string) error { return s.did(s.Disk.Rename(from, to)) }
func (s steps) Remove(name string) error     { return s.did(s.Disk.Remove(name)) }
func (s steps) Sync() error                  { return s.did(s.Disk.Sync()) }

type stepFile struct {
	hostfile.File
	steps steps
}

func (f stepFile) Write(text []byte) (n int, err error) {
	for _, part := range [][]byte{text[:len(text)/2], text[len(text)/2:]} {
		wrote, err := f.File.Write(part)
		n += wrote
		if f.steps.did(err) != nil {
			return n, err
		}
	}
	return n, nil
}

func (f stepFile) Sync() error { return f.steps.did(f.File.Sync()) }
