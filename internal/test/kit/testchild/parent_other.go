//go:build !linux

package testchild

import "os/exec"

// dieWithParent does nothing: such a child sees its standard input end.
func dieWithParent(*exec.Cmd) {}
