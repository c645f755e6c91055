package history

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Two callers of client 1 wait to read a key, at one place. The first gives up at 5 s, and the place goes.
func TestAPlaceIsGivenUpWhileTheNextCallerWaits(t *testing.T) {
	reader, permit := Mode{Shared: true}, Mode{Shared: true, Limit: 2}
	for name, c := range map[string]struct {
		holder Mode
		left   int // when the holder did
		gone   int // when the place went
		found  bool
	}{
		"a writer has the key":                           {Mode{}, 4500, 5100, true},
		"a reader has it":                                {reader, 4500, 5100, true},
		"permits are taken: the first one's claim fails": {permit, 4500, 5100, false},
		"and they still are":                             {permit, 0, 5100, false},
		"they were taken before that claim":              {permit, 3000, 5100, true},
		"that claim is long over":                        {permit, 0, 6100, true},
	} {
		holder := applied(1000, 0, "a", "", 600000)
		holder.Mode = c.holder
		first, next := stood(2000, 1, "s:one:1"), Event{Kind: Called, At: at(1900), Key: "k", Client: 1, Op: 11, Until: at(300000), Mode: reader}
		first.Op = 10
		h := &History{TTL: at(30000), End: at(60000), NoFaults: true, Events: []Event{
			holder, {Kind: Called, At: at(1800), Key: "k", Client: 1, Op: 10, Until: at(300000), Mode: reader}, next, first,
			answer(5000, 1, 10, Failed, ""), gone(c.gone, 1, 1, "s:one:1"),
		}}
		if c.left != 0 {
			h.Events = append(h.Events, droppedBy(c.left, 0, "a"))
		}
		slices.SortStableFunc(h.Events, func(a, b Event) int { return int(a.At - b.At) })
		found := checksOf(inLine(h))
		assert.Equal(t, c.found, slices.Contains(found, "place given up"), "%s: %v", name, found)
	}
}
