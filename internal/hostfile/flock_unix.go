//go:build unix && !solaris && !aix

package hostfile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

func supported() error { return nil }

// private says who else could change what is in a directory.
func private(dir *os.Root) error {
	info, err := dir.Stat(".")
	if err != nil {
		return err
	}
	switch is := info.Sys().(*syscall.Stat_t); {
	case int(is.Uid) != os.Geteuid() && is.Uid != 0:
		return fmt.Errorf("the directory belongs to another user (%d), who could remove locks: name one of your own", is.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write to the directory (%v), and could remove locks: chmod go-w, or name another", info.Mode())
	}
	return nil
}

// tryLock asks for the lock of an open file. busy reports that another process has it.
func tryLock(file *os.File) (busy bool, err error) {
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return true, nil
		default:
			return false, err
		}
	}
}
