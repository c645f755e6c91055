package history

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// dropped is the history of a lease that was let go after 5 s. Another client dropped its
// holder at that time, before the holder had expired.
func dropped(at time.Duration, more ...Event) *History {
	of := func(kind Kind, at time.Duration) Event {
		return Event{Kind: kind, At: at, Client: 1, Key: "k", Op: 1, ID: "a", Token: 1, Until: 30 * time.Second}
	}
	by := Event{Kind: Dropped, At: at, Client: 2, Key: "k", ID: "a", Live: true}
	h := &History{TTL: 30 * time.Second, Margin: time.Second, Numbered: true, Events: append(more,
		of(Called, time.Second), of(Applied, 2*time.Second), of(Granted, 3*time.Second), of(LetGo, 5*time.Second), of(Told, 5*time.Second), by)}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return int(a.At - b.At) })
	return h
}

// undone is the history of a claim whose call failed after 5 s, and whose holder another client dropped.
func undone(at time.Duration, more ...Event) *History {
	h := dropped(at, more...)
	h.Events = slices.DeleteFunc(h.Events, func(e Event) bool { return e.Kind == LetGo || e.Kind == Told })
	for i := range h.Events {
		if e := &h.Events[i]; e.Kind == Granted {
			e.Kind, e.At, e.Note = Failed, 5*time.Second, Unknown
		}
	}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return int(a.At - b.At) })
	return h
}

func TestAHolderThatLeftOnADeposedPrimaryMayBeDroppedOnTheNext(t *testing.T) {
	failover := func(at, until time.Duration) Event {
		return Event{Kind: Trouble, At: at, Until: until, Client: -1, Note: Failover}
	}
	for name, c := range map[string]struct {
		h     *History
		wrong bool
	}{
		"it had left, and its primary was deposed then": {dropped(6*time.Second, failover(4*time.Second, 7*time.Second)), false},
		"it had left, and its primary was deposed soon": {dropped(6*time.Second, failover(5500*time.Millisecond, 7*time.Second)), false},
		"it had left, and no primary was deposed":       {dropped(6 * time.Second), true},
		"it had left after the failover was over":       {dropped(6*time.Second, failover(3*time.Second, 4*time.Second)), true},
		"it had not left yet":                           {dropped(4*time.Second, failover(3*time.Second, 7*time.Second)), true},
		"it had left, and the failover came later":      {dropped(6*time.Second, failover(7*time.Second, 8*time.Second)), true},
		"its claim had failed, and was taken back":      {undone(6*time.Second, failover(4*time.Second, 7*time.Second)), false},
		"the same, and no primary was deposed":          {undone(6 * time.Second), true},
		"its claim was still under way":                 {undone(4*time.Second, failover(3*time.Second, 7*time.Second)), true},
	} {
		found := collateral(c.h)
		assert.Equal(t, c.wrong, len(found) > 0, "%s: %v", name, found)
	}
}

// A quick refusal has no twin, whatever its reason. A slow one may have one, and it must be
// cleaned up. The refusal of a bulk of claims ends no call: its caller goes on, with each key by itself.
func TestATwinIsAGhostUnlessTheRefusalWasQuick(t *testing.T) {
	twin := func(took time.Duration, note string) *History {
		call := Event{Kind: Called, At: time.Second, Client: 1, Key: "k", Op: 1}
		failure := call
		failure.Kind, failure.At, failure.Note = Failed, time.Second+took, note
		return &History{TTL: 30 * time.Second, GhostLimit: time.Second, Numbered: true, Events: []Event{
			call, failure,
			{Kind: Applied, At: 10 * time.Second, Client: 1, Key: "k", ID: "a", Op: 1, Until: 40 * time.Second},
			{Kind: Dropped, At: 40 * time.Second, Client: 1, Key: "k", ID: "a", Note: Ours},
		}}
	}
	ofBulk := func(h *History) *History {
		h.Events[2].Note = Late
		return h
	}
	for _, c := range []struct {
		h     *History
		ghost bool
	}{
		{twin(20*time.Millisecond, Held), false},
		{twin(2*time.Second, Held), true},
		{twin(20*time.Millisecond, Sure), true},
		{twin(20*time.Millisecond, Unknown), true},
		{twin(20*time.Second, GaveUp), true},
		{ofBulk(twin(20*time.Second, GaveUp)), false},
	} {
		found := ghosts(c.h)
		assert.Equal(t, c.ghost, len(found) > 0, "%v: %v", c.h.Events[1], found)
	}
}
