package history

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A hold is a lease as its user saw it.
type hold struct {
	from, to int // in seconds
	token    int64
	mode     Mode
}

// historyOf is the history of some leases of one key. Each call takes 100 ms.
func historyOf(holds ...hold) *History {
	h := &History{TTL: 30 * time.Second, Margin: time.Second}
	for i, l := range holds {
		e := Event{Client: i, Key: "k", Op: i + 1, ID: string(rune('a' + i)), Mode: l.mode}
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

func reader(from, to int, token int64) hold { return hold{from, to, token, Mode{Shared: true}} }
func permit(from, to int, token int64) hold {
	return hold{from, to, token, Mode{Shared: true, Limit: 2}}
}
func both(from, to int, token int64) hold {
	return hold{from, to, token, Mode{Shared: true, Limit: 2, Weight: 2}}
}

// of is a permit of a claim that allows n.
func of(n, from, to int, token int64) hold {
	return hold{from, to, token, Mode{Shared: true, Limit: n}}
}

func writer(from, to int, token int64) hold { return hold{from, to, token, Mode{}} }

func TestTheChecksKnowWhichHoldersMayShareAKey(t *testing.T) {
	for name, c := range map[string]struct {
		h     *History
		wrong string // the check that says so; empty: no violation
	}{
		"readers at the same time":                   {historyOf(reader(1, 9, 1), reader(2, 5, 2), writer(10, 11, 3)), ""},
		"a reader's token below another reader's":    {historyOf(reader(1, 9, 2), reader(2, 5, 1), writer(10, 11, 3)), ""},
		"a permit that is free again":                {historyOf(permit(1, 9, 1), permit(2, 4, 2), permit(5, 8, 3)), ""},
		"a reader beside a writer":                   {historyOf(writer(1, 9, 1), reader(2, 5, 2)), "two live leases"},
		"a writer beside a reader":                   {historyOf(reader(1, 9, 1), writer(2, 5, 2)), "two live leases"},
		"a third holder of one of two permits":       {historyOf(permit(1, 9, 1), permit(2, 8, 2), permit(3, 4, 3)), "permits"},
		"both permits after one":                     {historyOf(permit(1, 2, 1), both(3, 8, 2), permit(9, 10, 3)), ""},
		"both permits beside one":                    {historyOf(permit(1, 9, 1), both(2, 8, 2)), "permits"},
		"a third where three may be, beside two":     {historyOf(permit(1, 9, 1), permit(2, 8, 2), of(3, 3, 7, 3)), ""},
		"back to two, once one is left":              {historyOf(of(3, 1, 9, 1), of(3, 2, 8, 2), of(3, 3, 4, 3), permit(10, 11, 4)), ""},
		"a second of two beside one of three":        {historyOf(of(3, 1, 9, 1), permit(2, 8, 2)), ""},
		"a third of two beside two of three":         {historyOf(of(3, 1, 9, 1), of(3, 2, 8, 2), permit(3, 7, 3)), "linearizability"},
		"a fourth where three may be, beside twos":   {historyOf(permit(1, 9, 1), permit(2, 8, 2), of(3, 3, 7, 3), of(3, 4, 6, 4)), "permits"},
		"a reader beside a permit":                   {historyOf(permit(1, 9, 1), reader(2, 5, 2)), "two live leases"},
		"a writer's token below a reader's":          {historyOf(reader(1, 4, 2), writer(5, 9, 1)), "tokens"},
		"a writer's token below that of two readers": {historyOf(reader(1, 4, 5), reader(1, 4, 3), writer(5, 9, 4)), "tokens"},
		"a reader's token below a writer's":          {historyOf(writer(1, 4, 2), reader(5, 9, 1)), "tokens"},
	} {
		found := c.h.Check()
		if c.wrong == "" {
			assert.Empty(t, found, name)
			continue
		}
		assert.Contains(t, checksOf(found), c.wrong, name)
		assert.Contains(t, checksOf(found), "linearizability", name)
	}
}

func checksOf(found []Violation) (checks []string) {
	for _, v := range found {
		checks = append(checks, v.Check)
	}
	return checks
}

func TestAnUnknownOutcomeMayHaveHadItsEffectOrNot(t *testing.T) {
	for _, limit := range []int{0, 2} {
		h := historyOf(permit(2, 9, 1), permit(3, 8, 2))
		call := Event{Kind: Called, At: time.Second, Client: 9, Key: "k", Op: 99, Mode: Mode{Shared: true, Limit: limit}}
		failure := call
		failure.Kind, failure.At, failure.Note = Failed, 4*time.Second, Unknown
		h.Events = append([]Event{call}, append(h.Events, failure)...) // from before the first grant
		assert.Empty(t, h.Check(), "limit %d", limit)
	}
}

func TestAHolderThatComesBackIsNoticed(t *testing.T) {
	h := historyOf(reader(1, 4, 1))
	h.Events = append(h.Events,
		Event{Kind: Applied, At: time.Second, Key: "k", ID: "a", Until: 9 * time.Second},
		Event{Kind: Dropped, At: 4 * time.Second, Key: "k", ID: "a", Note: Ours, Until: 9 * time.Second},
		Event{Kind: Applied, At: 5 * time.Second, Key: "k", ID: "a", Until: 9 * time.Second},
	)
	assert.Equal(t, []string{"returned"}, checksOf(h.Check()))
}

// TestAGrantIsJudgedByItsOwnNumberOfPermits where the database tells the order of grants: neither by the
// largest nor by the first.
func TestAGrantIsJudgedByItsOwnNumberOfPermits(t *testing.T) {
	observed := func(holds ...hold) *History {
		h := historyOf(holds...)
		for _, e := range slices.Clone(h.Events) {
			if e.Kind == Granted {
				e.Kind, e.At, e.Until = Applied, e.At-time.Millisecond, e.At+time.Minute
				e.Began = e.At - time.Millisecond
				h.Events = append(h.Events, e)
			}
		}
		h.Sort()
		return h
	}
	assert.Empty(t, permits(observed(permit(1, 9, 1), permit(2, 8, 2), of(3, 3, 7, 3))))
	assert.Empty(t, permits(observed(of(3, 1, 9, 1), permit(2, 8, 2), of(3, 3, 7, 3))))
	assert.Equal(t, []string{"permits"}, checksOf(permits(observed(of(3, 1, 9, 1), of(3, 2, 8, 2), permit(3, 7, 3)))))
	assert.Equal(t, []string{"permits"}, checksOf(permits(observed(permit(1, 9, 1), permit(2, 8, 2), permit(3, 7, 3)))))
}
