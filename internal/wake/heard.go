package wake

import "sync/atomic"

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

// Asked returns a number that changes whenever others ask for the key, and sometimes when they ask for
// another one.
func (w *Watch) Asked(key string) uint32 { return w.asks.of(key).Load() }
