package knob

import "sync/atomic"

var largest atomic.Int64

// Largest returns the largest number that it was called with so far.
func Largest(n int) int {
	for {
		known := largest.Load()
		if int64(n) <= known {
			return int(known)
		}
		if largest.CompareAndSwap(known, int64(n)) {
			return n
		}
	}
}
