//go:build !unix

package servers

import "os"

// There are no such signals here.
var suspendSignal, continueSignal os.Signal
