// Package backoff yields the pauses between the attempts at something that fails.
// They double from a least to a most, and each is jittered by a fifth, so that
// processes which failed together do not try again together.
//
// Jitter draws from crypto/rand, JitterSize bytes at a time. A simulation puts its
// own reader there, and knows a draw of jitter by its size: within one instant it
// answers all of them alike. Goroutines that wake in the same instant run in any
// order, and which of them draws first must make no difference.
package backoff

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"math"
	"time"
)

// JitterSize is how many bytes of crypto/rand one draw of jitter takes. Nothing else
// in this library draws as many at once.
const JitterSize = 8

// A Backoff yields growing pauses. Not safe for concurrent use.
type Backoff struct{ least, most, next time.Duration }

// New makes a Backoff whose pauses double from least to most, which must be
// positive.
func New(least, most time.Duration) *Backoff {
	return &Backoff{least: least, most: most, next: least}
}

// Next is the pause before the next attempt.
func (b *Backoff) Next() time.Duration {
	d := b.next
	b.next = min(2*b.next, b.most)
	return Jitter(d)
}

// Reset begins again with the least pause: the trouble is over.
func (b *Backoff) Reset() { b.next = b.least }

// Jitter is d, longer or shorter by up to a fifth.
func Jitter(d time.Duration) time.Duration {
	var b [JitterSize]byte
	_, _ = rand.Read(b[:])                                            // it never fails
	unit := float64(binary.LittleEndian.Uint64(b[:])>>11) / (1 << 53) // from 0 to 1, without the 1
	return d + time.Duration((unit-0.5)*0.4*math.Abs(float64(d)))
}

// Sleep waits for d, and returns false if ctx ends first. Without a wait to come it asks ctx
// alone.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
