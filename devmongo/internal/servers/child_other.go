//go:build !unix

package servers

import "syscall"

func detached() *syscall.SysProcAttr { return nil }
