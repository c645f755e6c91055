package history

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// kept is the history of a holder that was let go after 3 s, and removed after 20 s. Another client
// waits from 5 s to 15 s.
func kept(more ...Event) *History {
	of := func(kind Kind, at time.Duration, note string) Event {
		return Event{Kind: kind, At: at, Client: 1, Key: "k", Op: 1, ID: "a", Token: 1, Until: 30 * time.Second, Note: note}
	}
	rival := Event{Kind: Called, At: 5 * time.Second, Client: 2, Key: "k", Op: 2, Until: 15 * time.Second}
	failed := rival
	failed.Kind, failed.At, failed.Note = Failed, 15*time.Second, GaveUp
	h := &History{TTL: 30 * time.Second, NoFaults: true, IdleLimit: time.Second, Events: append(more,
		of(Applied, time.Second, Lingers), of(Granted, 2*time.Second, ""), of(LetGo, 3*time.Second, Released), of(Dropped, 20*time.Second, Ours), rival, failed)}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return int(a.At - b.At) })
	return h
}

func TestAKeyThatIsKeptIdleWhileAnotherWaitsIsAViolation(t *testing.T) {
	again := func(at, until time.Duration) []Event {
		of := func(kind Kind, at time.Duration, note string) Event {
			return Event{Kind: kind, At: at, Client: 1, Key: "k", Op: 3, ID: Local("a", 2), Token: 2, Note: note}
		}
		return []Event{of(Called, at, ""), of(Granted, at, ""), of(LetGo, until, Released)}
	}
	for name, c := range map[string]struct {
		h     *History
		wrong bool
	}{
		"for ten seconds": {kept(), true},
		"then it is used, until the other gives up":  {kept(again(5500*time.Millisecond, 16*time.Second)...), false},
		"it is used before, and not when they wait":  {kept(again(4*time.Second, 6*time.Second)...), true},
		"it is used for most of that time, and then": {kept(again(5500*time.Millisecond, 13*time.Second)...), true},
	} {
		assert.Equal(t, c.wrong, len(keptIdle(c.h)) > 0, name)
	}
	h := kept()
	h.NoFaults = false
	assert.Empty(t, keptIdle(h), "a notice may be lost")
}

// If a holder is removed while a later lease of it is in use, that is the later lease's loss.
func TestTheRemovalOfAHolderUnderALocalGrantIsCollateral(t *testing.T) {
	of := func(kind Kind, at time.Duration, id, note string) Event {
		return Event{Kind: kind, At: at, Client: 1, Key: "k", ID: id, Note: note, Live: true, Until: 30 * time.Second}
	}
	for inUse, end := range map[bool]time.Duration{true: 9 * time.Second, false: 5 * time.Second} {
		h := &History{TTL: 30 * time.Second, Events: []Event{
			of(Applied, time.Second, "a", Lingers), of(Granted, 2*time.Second, "a", ""), of(LetGo, 3*time.Second, "a", Released), of(Told, 3*time.Second, "a", ""),
			of(Granted, 4*time.Second, Local("a", 2), ""), of(LetGo, end, Local("a", 2), Released), of(Dropped, 7*time.Second, "a", Ours),
		}}
		slices.SortStableFunc(h.Events, func(a, b Event) int { return int(a.At - b.At) })
		assert.Equal(t, inUse, len(collateral(h)) > 0)
	}
}
