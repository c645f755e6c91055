//go:build unix && !solaris && !aix

package hostfile

import (
	"errors"
	"os"
	"syscall"
)

func supported() error { return nil }

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
