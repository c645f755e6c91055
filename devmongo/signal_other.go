//go:build !unix

package devmongo

import "os"

// There are no such signals here.
var suspendSignal, continueSignal os.Signal
