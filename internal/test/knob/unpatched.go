//go:build knobs

package knob

// The overlay removes this file.
func init() {
	panic("built with -tags knobs and without the faults that the switches turn on, so that no control can notice any: " +
		"use a target of the Makefile (make controls PKG=./pathlock), or " +
		"go test -tags knobs -overlay=$(go run ./internal/test/controls) ./pathlock")
}
