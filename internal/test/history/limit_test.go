package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A set is a call of SetLimit, from and to in seconds; to 0: it never returned.
type set struct {
	n, from, to int
	note        string // of a failure
}

// setting returns a history in which the number of permits is set too.
func (h *History) setting(calls ...set) *History {
	for i, s := range calls {
		call := Event{Kind: Sets, At: time.Duration(s.from) * time.Second, Client: 50 + i, Key: "k", Op: 500 + i, Mode: Mode{Limit: s.n}}
		h.Events = append(h.Events, call)
		if s.to > 0 {
			call.Kind, call.At, call.Note = Set, time.Duration(s.to)*time.Second, s.note
			if s.note != "" {
				call.Kind = NotSet
			}
			h.Events = append(h.Events, call)
		}
	}
	h.Sort()
	return h
}

func TestTheChecksKnowHowManyPermitsAreSet(t *testing.T) {
	one := func() *History { return historyOf(permit(10, 20, 1), permit(12, 18, 2)) }
	three := func() *History { return historyOf(permit(10, 20, 1), permit(11, 20, 2), permit(12, 18, 3)) }
	for name, c := range map[string]struct {
		h     *History
		wrong bool
	}{
		"two of one that is set":                      {one().setting(set{1, 1, 2, ""}), true},
		"two, of which one was taken before":          {one().setting(set{1, 11, 13, ""}), false},
		"two before one is set":                       {one().setting(set{1, 13, 14, ""}), false},
		"two of one that is taken back":               {one().setting(set{1, 1, 2, ""}, set{0, 3, 4, ""}), false},
		"two of one that is taken back too late":      {one().setting(set{1, 1, 2, ""}, set{0, 13, 14, ""}), true},
		"two of one that was surely not set":          {one().setting(set{1, 1, 2, Sure}), false},
		"two of one that perhaps was set":             {one().setting(set{1, 1, 2, Unknown}), false},
		"three of two":                                {three().setting(), true},
		"three of three that are set":                 {three().setting(set{3, 1, 2, ""}), false},
		"three of three that perhaps are set":         {three().setting(set{3, 1, 2, Unknown}), false},
		"three of three of a client that was killed":  {three().setting(set{3, 1, 0, ""}), false},
		"three of three that are set too late":        {three().setting(set{3, 13, 14, ""}), true},
		"three of three that surely are not set":      {three().setting(set{3, 1, 2, Sure}), true},
		"three of three, perhaps, and then of two":    {three().setting(set{3, 1, 2, Unknown}, set{2, 3, 4, ""}), true},
		"three of three and two set at the same time": {three().setting(set{3, 1, 4, ""}, set{2, 2, 3, ""}), false},
	} {
		found := checksOf(c.h.Check())
		if !c.wrong {
			assert.Empty(t, found, name)
			continue
		}
		assert.Contains(t, found, "permits", name)
		assert.Contains(t, found, "linearizability", name)
	}
}
