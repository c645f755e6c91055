// Package recorder records which functions run. Command walk builds calls of it into every function
// that an importer of the root package compiles; in any other build nothing calls it.
package recorder

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
)

var (
	mu    sync.Mutex // protects the rest
	on    bool
	depth map[int]int // of each goroutine, in the recording under way
	lines bytes.Buffer
)

// In notes that the function of that name begins. What it returns notes that it ends.
func In(name string) (out func()) {
	mu.Lock()
	defer mu.Unlock()
	if !on {
		return func() {}
	}
	g, in := goroutine(), depth // a later recording has another map
	fmt.Fprintf(&lines, "%d\t%d\t%s\n", g, in[g], name)
	in[g]++
	return func() {
		mu.Lock()
		defer mu.Unlock()
		in[g]--
	}
}

// goroutine returns the number of the one that calls it, which Go tells nowhere but at the
// beginning of a stack: "goroutine 7 [running]:".
func goroutine() int {
	var stack [64]byte
	n, _ := strconv.Atoi(string(bytes.Fields(stack[:runtime.Stack(stack[:], false)])[1]))
	return n
}

// Start begins a recording.
func Start() {
	mu.Lock()
	defer mu.Unlock()
	on, depth = true, map[int]int{}
	lines.Reset()
}

// Stop ends the recording and writes it to a file: a line for each call, with the goroutine, how
// deep the call is in what was recorded of it, and the function.
func Stop(file string) error {
	mu.Lock()
	defer mu.Unlock()
	on = false
	return os.WriteFile(file, lines.Bytes(), 0o600)
}
