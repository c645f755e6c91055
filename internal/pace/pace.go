// Package pace makes the time limits of tests follow the machine: what takes a second on an
// idle one may take five where twenty processes share two cores.
package pace

import (
	"sync"
	"time"
)

// Of stretches a duration on a machine that is busy: the TTL of a lease that a test means to
// keep, or the time that it gives others. Never use it for what a safety promises.
func Of(d time.Duration) time.Duration { return time.Duration(float64(d) * factor()) }

// factor says how much slower than an idle machine this one is, from 1 to slowest. It is
// measured once in a process, so that all durations of a test keep their proportions.
var factor = sync.OnceValue(func() float64 {
	var worst time.Duration
	for range measurements {
		begin := time.Now()
		<-time.After(nap)
		worst = max(worst, time.Since(begin)-nap)
	}
	return factorFor(worst)
})

const (
	measurements = 40
	nap          = 5 * time.Millisecond
	harmless     = 20 * time.Millisecond // a nap that was late by this much says that time is twice as slow
	slowest      = 6
)

func factorFor(late time.Duration) float64 {
	return min(1+float64(late)/float64(harmless), slowest)
}
