package history

import (
	"cmp"
	"slices"
	"time"
)

// A setting is a call of SetLimit that may have had an effect.
type setting struct {
	n                int // 0: the number of claims counts again
	called, returned time.Duration
	sure             bool // it succeeded
}

// The settings of a key, in the order of their calls.
type settings []setting

// settings returns those of each key. One that never returned may have an effect at any time.
func (h *History) settings() map[string]settings {
	all, at := map[string]settings{}, map[int]int{}
	for _, e := range h.Events {
		list := all[e.Key]
		i, known := at[e.Op]
		switch {
		case e.Kind == Sets:
			at[e.Op] = len(list)
			all[e.Key] = append(list, setting{n: e.Limit, called: e.At, returned: never})
		case !known:
		case e.Kind == Set:
			list[i].returned, list[i].sure = e.At, true
		case e.Kind == NotSet && e.Note == Sure:
			list[i].called = never
		case e.Kind == NotSet:
			list[i].returned = e.At
		}
	}
	return all
}

// between returns the smallest and the largest number of permits that a key may have had at some
// moment between two, for claims that name another number with OneOf. Of an unknown outcome it is
// left open when it had its effect, until a later call has succeeded.
func (all settings) between(from, to time.Duration, own int) (least, most int) {
	replaced := func(since time.Duration) bool { // before all of the time
		return slices.ContainsFunc(all, func(s setting) bool { return s.sure && s.called >= since && s.returned <= from })
	}
	numbers := make([]int, 0, 1+len(all))
	if !replaced(0) {
		numbers = append(numbers, own)
	}
	for _, s := range all {
		if s.called <= to && !replaced(s.returned) {
			numbers = append(numbers, cmp.Or(s.n, own))
		}
	}
	return slices.Min(numbers), slices.Max(numbers)
}

// least is the smallest of between.
func (all settings) least(from, to time.Duration, own int) int {
	n, _ := all.between(from, to, own)
	return n
}

// most is the largest of between.
func (all settings) most(from, to time.Duration, own int) int {
	_, n := all.between(from, to, own)
	return n
}

// attempts returns since when each grant was asked for: its command began, or its call where the
// database was not observed.
func (h *History) attempts() map[string]time.Duration {
	calls, began := map[int]time.Duration{}, map[string]time.Duration{}
	for _, e := range h.Events {
		switch e.Kind {
		case Called:
			calls[e.Op] = e.At
		case Applied:
			if _, known := began[e.ID]; !known {
				began[e.ID] = e.Began
			}
		}
	}
	for _, e := range h.Events {
		if e.Kind == Granted {
			if _, known := began[e.ID]; !known {
				began[e.ID] = calls[e.Op]
			}
		}
	}
	return began
}

// tooHeavy reports whether a caller may want more permits than the key has at some moment between
// two: then it waits, and others pass it.
func (all settings) tooHeavy(m Mode, from, to time.Duration) bool {
	return m.Limit > 0 && m.takes() > all.least(from, to, m.Limit)
}
