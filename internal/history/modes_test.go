package history

import (
	"slices"
	"testing"
	"time"
)

// hold is a lease as its user saw it.
type hold struct {
	from, to int // in seconds
	token    int64
	shared   bool
	limit    int
}

// lived is the history of some leases of one key, each told half a second after it
// let go.
func lived(holds ...hold) *History {
	h := &History{TTL: 30 * time.Second, Margin: time.Second}
	for i, l := range holds {
		e := Event{Client: i, Key: "k", Op: i + 1, ID: string(rune('a' + i)), Shared: l.shared, Limit: l.limit}
		add := func(kind Kind, at time.Duration) {
			e.Kind, e.At = kind, at
			h.Events = append(h.Events, e)
		}
		from, to := time.Duration(l.from)*time.Second, time.Duration(l.to)*time.Second
		add(Called, from-100*time.Millisecond)
		e.Token = l.token
		add(Granted, from)
		add(LetGo, to)
		add(Told, to)
	}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return int(a.At - b.At) })
	return h
}

// reader and owner are those of what others may hold too.
func reader(from, to int, token int64) hold { return hold{from, to, token, true, 0} }
func owner(from, to int, token int64) hold  { return hold{from, to, token, true, 2} }
func writer(from, to int, token int64) hold { return hold{from, to, token, false, 0} }

func TestTheJudgeKnowsWhoMayShareAKey(t *testing.T) {
	for name, c := range map[string]struct {
		h     *History
		wrong string // the check that says so; empty: nothing is
	}{
		"readers one beside the other":         {lived(reader(1, 9, 1), reader(2, 5, 2), writer(10, 11, 3)), ""},
		"a reader's token below a reader's":    {lived(reader(1, 9, 2), reader(2, 5, 1), writer(10, 11, 3)), ""},
		"a permit that is free again":          {lived(owner(1, 9, 1), owner(2, 4, 2), owner(5, 8, 3)), ""},
		"a reader beside a writer":             {lived(writer(1, 9, 1), reader(2, 5, 2)), "two live leases"},
		"a writer beside a reader":             {lived(reader(1, 9, 1), writer(2, 5, 2)), "two live leases"},
		"a third with one of two permits":      {lived(owner(1, 9, 1), owner(2, 8, 2), owner(3, 4, 3)), "permits"},
		"a reader beside a permit":             {lived(owner(1, 9, 1), reader(2, 5, 2)), "two live leases"},
		"a writer's token below a reader's":    {lived(reader(1, 4, 2), writer(5, 9, 1)), "tokens"},
		"a writer's below one two readers ago": {lived(reader(1, 4, 5), reader(1, 4, 3), writer(5, 9, 4)), "tokens"},
		"a reader's token below a writer's":    {lived(writer(1, 4, 2), reader(5, 9, 1)), "tokens"},
	} {
		found := c.h.Check()
		var checks []string
		for _, v := range found {
			checks = append(checks, v.Check)
		}
		if c.wrong == "" && len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
		if c.wrong != "" && (!slices.Contains(checks, c.wrong) || !slices.Contains(checks, "linearizability")) {
			t.Errorf("%s: %v, not %s and linearizability", name, found, c.wrong)
		}
	}
}

func TestAnUnknownOutcomeMayHaveHadItsEffectOrNot(t *testing.T) {
	unknown := func(limit int) *History { // one of unknown outcome, from before the first grant
		h := lived(owner(2, 9, 1), owner(3, 8, 2))
		call := Event{Kind: Called, At: time.Second, Client: 9, Key: "k", Op: 99, Shared: true, Limit: limit}
		failure := call
		failure.Kind, failure.At, failure.Note = Failed, 4*time.Second, Unknown
		h.Events = append([]Event{call}, append(h.Events, failure)...)
		return h
	}
	for _, limit := range []int{0, 2} {
		if found := unknown(limit).Check(); len(found) > 0 {
			t.Errorf("limit %d: %v", limit, found)
		}
	}
}

func TestTheJudgeKnowsWhoCameBackOrPastAWord(t *testing.T) {
	h := lived(reader(1, 4, 1))
	h.Events = append(h.Events,
		Event{Kind: Applied, At: time.Second, Key: "k", ID: "a", Until: 9 * time.Second},
		Event{Kind: Overtook, At: time.Second, Key: "k", ID: "a"},
		Event{Kind: Dropped, At: 4 * time.Second, Key: "k", ID: "a", Note: Ours, Until: 9 * time.Second},
		Event{Kind: Applied, At: 5 * time.Second, Key: "k", ID: "a", Until: 9 * time.Second},
	)
	var checks []string
	for _, v := range h.Check() {
		checks = append(checks, v.Check)
	}
	if !slices.Equal(checks, []string{"words", "returned"}) {
		t.Error(checks)
	}
}
