//go:build !unix || solaris || aix

package hostfile

import (
	"errors"
	"fmt"
	"os"
)

func supported() error {
	return fmt.Errorf("file locks on this system: %w", errors.ErrUnsupported)
}

func private(*os.Root) error { return supported() }

func tryLock(*os.File) (busy bool, err error) { return false, supported() }
