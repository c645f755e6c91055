package mongolock

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// While claims fail, the heads of all keys together send one in this time. Once one is answered
// the others follow, each after that one.
const (
	probePause   = 500 * time.Millisecond
	probeIdle    = 5 * time.Second // after which another head asks, because the one whose turn it is cannot
	recoverPause = time.Millisecond
)

// nextProbe has the next of the heads ask whose claims have failed, in the order of their keys.
func (qs *queues) nextProbe() {
	first, next := "", ""
	for key, q := range qs.byKey.All {
		if q.head == nil || !q.view.Failing() {
			continue
		}
		if first == "" || key < first {
			first = key
		}
		if key > qs.probed && (next == "" || key < next) {
			next = key
		}
	}
	if qs.probed = cmp.Or(next, first); qs.probed != "" {
		qs.byKey.All[qs.probed].head.poke()
	}
}

// recovered lets the heads ask whose claims have failed, because the store answers again.
func (qs *queues) recovered(now monotonic.Moment) {
	if qs.probeAt == 0 {
		return
	}
	qs.probeAt, qs.probed = 0, ""
	for _, key := range slices.Sorted(maps.Keys(qs.byKey.All)) {
		if q := qs.byKey.All[key]; q.head != nil && q.view.Failing() && !q.head.asking {
			q.view.Recovered(now)
			q.head.poke()
			now = now.Add(recoverPause)
		}
	}
}

// mayProbe returns when the head of a key may ask whose last claim failed.
func (qs *queues) mayProbe(key string, now monotonic.Moment) (at monotonic.Moment) {
	if at = qs.probeAt; qs.probed != key {
		at = at.Add(probeIdle)
	}
	if at <= now {
		qs.probed = key
	}
	return at
}
