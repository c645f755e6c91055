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
// measured once in a process, so that all durations of a test keep their proportions. In a
// bubble, where time stands still while something computes, it is 1.
func factor() float64 {
	measuring.Lock()
	defer measuring.Unlock()
	if measured > 0 {
		return measured
	}
	computes, inBubble := computing(longEnough)
	if inBubble {
		return 1
	}
	var worst time.Duration
	for range naps {
		begin := time.Now()
		<-time.After(nap)
		worst = max(worst, time.Since(begin)-nap)
	}
	measured = factorFor(computes, worst)
	return measured
}

var (
	measuring sync.Mutex
	measured  float64 // protected by measuring
)

const (
	longEnough = 150 * time.Millisecond
	gap        = time.Millisecond // between two looks at the clock: others had the processor
	stands     = 10000            // looks in a row that show one time: it is a bubble's

	naps     = 20
	nap      = 5 * time.Millisecond
	harmless = 20 * time.Millisecond // a nap that was late by this much says that time is twice as slow

	slowest = 12
)

// computing is the part of the time for which this goroutine has a processor if it never rests.
func computing(most time.Duration) (part float64, inBubble bool) {
	var others time.Duration
	begin, same := time.Now(), 0
	for last := begin; last.Sub(begin) < most; {
		now := time.Now()
		d := now.Sub(last)
		if same++; d > 0 {
			same = 0
		}
		if same == stands {
			return 1, true
		}
		if d > gap {
			others += d
		}
		last = now
	}
	return 1 - float64(others)/float64(time.Since(begin)), false
}

func factorFor(computes float64, late time.Duration) float64 {
	return min(max(1/max(computes, 1./slowest), 1+float64(late)/float64(harmless)), slowest)
}
