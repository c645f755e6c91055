//go:build unix

package main

import (
	"errors"
	"fmt"
	"syscall"
)

// A group is a process group: that of the command.
type group interface {
	// signal sends a signal to the members that this process may send it to. The error is EPERM
	// if there are only others.
	signal(s syscall.Signal) error
	// living reports whether there is a member that is not a zombie.
	living() bool
}

// processes is the group with that ID.
type processes int

func (p processes) signal(s syscall.Signal) error { return syscall.Kill(-int(p), s) }
func (p processes) living() bool                  { return living(int(p)) }

// foreignText says why a group cannot be ended, if err is why.
func foreignText(g int, err error) string {
	if !errors.Is(err, syscall.EPERM) {
		return ""
	}
	return fmt.Sprintf("the command's process group %d cannot be signalled (operation not permitted): it runs as another user. Use sudo mongolock run …, not mongolock run … sudo", g)
}
