//go:build !unix

package devmongo

import "syscall"

func detached() *syscall.SysProcAttr { return nil }
