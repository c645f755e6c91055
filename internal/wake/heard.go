package wake

import "sync/atomic"

// Heard is what a process had heard of other processes' waiters at some moment.
type Heard struct {
	opening int    // which opening of the feed has told of all waiters since
	asks    uint32 // how often others had asked for such keys
}

// An askCount counts how often others asked for keys, several keys in one counter. A notice may
// come before the reply to the claim whose holder it asks.
type askCount [64]atomic.Uint32

func (a *askCount) of(key string) *atomic.Uint32 {
	hash := uint32(2166136261) // FNV-1a
	for i := range len(key) {
		hash = (hash ^ uint32(key[i])) * 16777619
	}
	return &a[hash%uint32(len(a))]
}

// HeardBy returns what has been heard by now of those who wait for a key.
func (w *Watch) HeardBy(key string) Heard {
	opening, _ := w.Hears()
	return Heard{opening, w.asks.of(key).Load()}
}

// AskedSince reports whether others have asked for the key since then, or maybe for another one.
func (w *Watch) AskedSince(h Heard, key string) bool { return w.asks.of(key).Load() != h.asks }

// HeardAllSince reports whether no notice can have been missed since then.
func (w *Watch) HeardAllSince(h Heard) bool {
	opening, live := w.Hears()
	return live && opening == h.opening
}
