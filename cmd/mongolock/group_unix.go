//go:build unix

package main

import (
	"errors"
	"fmt"
	"syscall"
)

// A group is what was started under a lease, as far as it can be found.
type group interface {
	// signal sends signals to all members. The error is EPERM if there are some that this process may not signal.
	signal(all ...syscall.Signal) error
	// look reports whether there is a member that has not ended, and names those that have left the command's process
	// group.
	look() (living bool, strays []string)
}

// A processGroup is the process group with that ID.
type processGroup int

func (g processGroup) look() (living bool, strays []string) {
	return !errors.Is(g.signal(0), syscall.ESRCH), nil
}

func (g processGroup) signal(all ...syscall.Signal) (err error) {
	for _, s := range all {
		err = errors.Join(err, syscall.Kill(-int(g), s))
	}
	return err
}

// foreignText says why processes cannot be ended, if err is why.
func foreignText(group int, err error) string {
	if !errors.Is(err, syscall.EPERM) {
		return ""
	}
	return fmt.Sprintf("not all that the command (process group %d) has started can be signalled (operation not permitted): it runs as another user. Use sudo mongolock run …, not mongolock run … sudo", group)
}
