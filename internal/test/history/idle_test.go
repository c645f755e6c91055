package history

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A key in these histories is free from 10 s on. Clients 1 and 2 stand first in line, and have been killed;
// client 3, which lives, waits behind them since 4 s, and is granted the key once. Times are in milliseconds.
type idleKey struct {
	granted int
	mode    Mode
	place   string // of client 3
	first   string // the place of client 1
	holder  Event
	still   bool
	more    []Event
}

func (k idleKey) history() *History {
	place, first := cmp.Or(k.place, "x:three:3"), cmp.Or(k.first, "x:one:1")
	holder, more := k.holder, k.more
	if holder.Kind == "" {
		holder, more = applied(1000, 0, "a", "", 600000), append(slices.Clone(more), droppedBy(10000, 0, "a"))
	}
	call := Event{Kind: Called, At: at(4000), Key: "k", Client: 3, Op: 3, Until: at(300000), Mode: k.mode}
	h := &History{TTL: 30 * time.Second, End: at(300000), Still: k.still, Events: append(more,
		holder, stood(2000, 1, first), killedAt(3000, 1), stood(2500, 2, "x:two:2"), killedAt(3100, 2), call, stood(4001, 3, place),
	)}
	if k.granted > 0 {
		h.Events = append(h.Events, applied(k.granted, 3, "n", place, k.granted+600000), gone(k.granted, 3, 3, place), answer(k.granted+1, 3, 3, Granted, "n"))
	}
	h.Sort()
	return h
}

func killedAt(ms, client int) Event {
	return Event{Kind: Trouble, At: at(ms), Client: client, Until: never, Note: Killed}
}

func said(ms, client int) Event {
	return Event{Kind: Waits, At: at(ms), Began: at(ms), Key: "k", Client: client, Owner: client, Place: "x:one:1", Until: at(ms + 90000)}
}

func looks(ms int) Event {
	e := said(ms, 3)
	e.Place = "x:three:3"
	return e
}

func TestAKeyIdlesForAMomentHoweverManyDied(t *testing.T) {
	permit, third, reader := Mode{Shared: true, Limit: 2}, Mode{Shared: true, Limit: 3}, Mode{Shared: true}
	others := func(m Mode) Event { // that share the key
		e := applied(1000, 0, "a", "", 600000)
		e.Mode = m
		return e
	}
	passed := func(ms int) []Event { return []Event{gone(ms, 3, 2, "x:two:2")} } // so that only client 1 is before it
	ending := applied(1001, 0, "b", "", 5000)
	ending.Mode = third
	ranOut := applied(1000, 0, "a", "", 10000)
	lost := Event{Kind: Trouble, At: at(10000), Until: at(12000), Client: 0, Note: "insert"}
	beside := func() []Event { // client 4, a reader that passes the dead, of which one has said that it lives
		e := applied(11700, 4, "b", "s:four:4", 600000)
		e.Mode = reader
		return []Event{said(10600, 1), killedAt(10700, 1), stood(3500, 4, "s:four:4"), e, gone(11700, 4, 1, "x:one:1"), gone(11700, 4, 2, "x:two:2"), gone(11700, 4, 4, "s:four:4")}
	}
	last := said(10600, 4)
	last.Place = "x:four:4"
	behind := []Event{stood(4500, 4, last.Place), last, killedAt(10700, 4), gone(11000, 4, 4, last.Place)}
	for name, c := range map[string]struct {
		key  idleKey
		idle bool
	}{
		"granted in time":                            {idleKey{granted: 11400}, false},
		"granted late":                               {idleKey{granted: 11700}, true},
		"never granted":                              {idleKey{}, true},
		"a waiter that polls, in time":               {idleKey{granted: 13400, place: "x::3"}, false},
		"a waiter that polls, late":                  {idleKey{granted: 13700, place: "x::3"}, true},
		"a dead one polled, in time":                 {idleKey{granted: 13400, first: "x::1"}, false},
		"a dead one polled, late":                    {idleKey{granted: 13700, first: "x::1"}, true},
		"a dead one said that it lives, in time":     {idleKey{granted: 12000, more: []Event{said(10600, 1), killedAt(10700, 1)}}, false},
		"a dead one said that it lives, and late":    {idleKey{granted: 12200, more: []Event{said(10600, 1), killedAt(10700, 1)}}, true},
		"behind a reader that passed such a one":     {idleKey{granted: 12000, mode: reader, place: "s:three:3", more: beside()}, false},
		"behind a reader that passed one, and late":  {idleKey{granted: 12200, mode: reader, place: "s:three:3", more: beside()}, true},
		"a dead one behind said so, and late":        {idleKey{granted: 12000, more: behind}, true},
		"the waiter died as well":                    {idleKey{more: []Event{killedAt(11000, 3)}}, false},
		"the waiter died later":                      {idleKey{more: []Event{killedAt(12000, 3)}}, true},
		"the waiter gave up":                         {idleKey{more: []Event{answer(11000, 3, 3, Failed, "")}}, false},
		"another had the key meanwhile":              {idleKey{granted: 14000, more: []Event{applied(10900, 4, "b", "", 600000), droppedBy(13000, 4, "b")}}, false},
		"another had it for a moment":                {idleKey{granted: 15000, more: []Event{applied(10900, 4, "b", "", 600000), droppedBy(11000, 4, "b")}}, true},
		"a holder that ran out, in time":             {idleKey{granted: 11500, holder: ranOut}, false},
		"a holder that ran out, late":                {idleKey{granted: 11700, holder: ranOut}, true},
		"one that had run out left, in time":         {idleKey{granted: 12400, holder: ranOut, more: []Event{droppedBy(11000, 0, "a")}}, false},
		"one that had run out left, late":            {idleKey{granted: 12700, holder: ranOut, more: []Event{droppedBy(11000, 0, "a")}}, true},
		"who freed it died at once, in time":         {idleKey{granted: 41400, more: []Event{killedAt(10500, 0)}}, false},
		"who freed it died at once, late":            {idleKey{granted: 41700, more: []Event{killedAt(10500, 0)}}, true},
		"who freed it died later":                    {idleKey{granted: 14000, more: []Event{killedAt(11600, 0)}}, true},
		"held on, as under MinHold":                  {idleKey{granted: 21500, holder: ranOut, more: []Event{extended(9000, 0, "a", 20000)}}, false},
		"held on, and late after that":               {idleKey{granted: 21700, holder: ranOut, more: []Event{extended(9000, 0, "a", 20000)}}, true},
		"it has to be seen still, in time":           {idleKey{granted: 41700, holder: ranOut, still: true}, false},
		"it has to be seen still, late":              {idleKey{granted: 42000, holder: ranOut, still: true}, true},
		"nobody can tell when it runs out":           {idleKey{granted: 41700, holder: applied(1000, 0, "a", "", 0), still: true, more: []Event{extended(10000, 0, "a", 0)}}, false},
		"nobody can tell, and it looked soon":        {idleKey{granted: 42300, holder: applied(1000, 0, "a", "", 0), still: true, more: []Event{extended(10000, 0, "a", 0), looks(10100)}}, true},
		"nobody can tell, and it looked late":        {idleKey{granted: 57700, holder: applied(1000, 0, "a", "", 0), still: true, more: []Event{extended(10000, 0, "a", 0), looks(26000)}}, false},
		"nobody can tell, and late after that":       {idleKey{granted: 58000, holder: applied(1000, 0, "a", "", 0), still: true, more: []Event{extended(10000, 0, "a", 0), looks(26000), looks(50000)}}, true},
		"released where it had to be seen still":     {idleKey{granted: 11700, still: true}, true},
		"an election since it was written, in time":  {idleKey{granted: 41700, holder: ranOut, more: []Event{election(8000, 9000)}}, false},
		"an election after it was over":              {idleKey{granted: 91700, holder: ranOut, more: []Event{election(30000, 31000), killedAt(9000, 3), {Kind: Called, At: at(60000), Key: "k", Client: 4, Op: 4, Until: at(300000)}, answer(91701, 4, 4, Failed, "")}}, false},
		"a clock set back not long before":           {idleKey{granted: 41700, holder: ranOut, more: []Event{{Kind: Trouble, At: at(500), Until: at(600), Client: -1, Note: Stepped}}}, false},
		"its writer may not have known the election": {idleKey{granted: 41700, holder: ranOut, more: []Event{{Kind: Trouble, At: at(500), Until: at(600), Client: 0, Note: "hello"}}}, false},
		"its writer's clock had stood still":         {idleKey{granted: 41700, holder: ranOut, more: []Event{{Kind: Trouble, At: at(-90000), Until: at(-80000), Client: 0, Note: Stopped}}}, false},
		"the waiter's clock had stood still":         {idleKey{granted: 41700, holder: ranOut, more: []Event{{Kind: Trouble, At: at(-90000), Until: at(-80000), Client: 3, Note: Stopped}}}, false},
		"and late after that":                        {idleKey{granted: 42000, holder: ranOut, more: []Event{{Kind: Trouble, At: at(-90000), Until: at(-80000), Client: 3, Note: Stopped}}}, true},
		"another's clock had stood still":            {idleKey{granted: 41700, holder: ranOut, more: []Event{{Kind: Trouble, At: at(-90000), Until: at(-80000), Client: 4, Note: Stopped}}}, true},
		"another's fault then":                       {idleKey{granted: 41700, holder: ranOut, more: []Event{{Kind: Trouble, At: at(-50000), Until: at(-40000), Client: 2, Note: "hello"}}}, true},
		"an election before it was written":          {idleKey{granted: 41700, holder: ranOut, more: []Event{election(500, 900)}}, false},
		"an election before, and late after it":      {idleKey{granted: 111700, holder: ranOut, more: []Event{election(500, 900)}}, true},
		"an election meanwhile":                      {idleKey{granted: 60000, more: []Event{election(10500, 11000)}}, false},
		"a wake-up may be lost":                      {idleKey{granted: 81400, more: []Event{lost}}, false},
		"a wake-up may be lost, and late after it":   {idleKey{granted: 81700, more: []Event{lost}}, true},
		"readers beside, behind a dead writer":       {idleKey{granted: 34000, mode: reader, place: "s:three:3", holder: others(reader)}, false},
		"readers beside, and late after it":          {idleKey{granted: 34200, mode: reader, place: "s:three:3", holder: others(reader)}, true},
		"a permit is free, behind a dead one":        {idleKey{granted: 5400, mode: permit, place: "p2:three:3", first: "p2:one:1", holder: others(permit), more: passed(3500)}, false},
		"a permit is free, and late after it":        {idleKey{granted: 5700, mode: permit, place: "p2:three:3", first: "p2:one:1", holder: others(permit), more: passed(3500)}, true},
		"another permit runs out, in time":           {idleKey{granted: 6500, mode: third, place: "p3:three:3", first: "p3:one:1", holder: others(third), more: append(passed(3500), ending)}, false},
		"another permit runs out, and late after it": {idleKey{granted: 6700, mode: third, place: "p3:three:3", first: "p3:one:1", holder: others(third), more: append(passed(3500), ending)}, true},
		"another has to be seen over, in time":       {idleKey{granted: 36500, mode: third, place: "p3:three:3", first: "p3:one:1", holder: others(third), still: true, more: append(passed(3500), ending)}, false},
		"another has to be seen over, and late":      {idleKey{granted: 37200, mode: third, place: "p3:three:3", first: "p3:one:1", holder: others(third), still: true, more: append(passed(3500), ending)}, true},
		"behind a dead claim of fewer permits":       {idleKey{granted: 92000, mode: permit, place: "p2:three:3", first: "p1:one:1", holder: others(permit), more: passed(3500)}, false},
		"and late after its place went stale":        {idleKey{granted: 93700, mode: permit, place: "p2:three:3", first: "p1:one:1", holder: others(permit), more: passed(3500)}, true},
		"no permit is free":                          {idleKey{granted: 90000, mode: permit, place: "p2:three:3", first: "p2:one:1", holder: others(Mode{Shared: true, Limit: 2, Weight: 2}), more: passed(3500)}, false},
		"a permit behind a dead heavy claim":         {idleKey{granted: 33500, mode: permit, place: "p2:three:3", first: "p2w2:one:1", holder: others(permit), more: passed(3500)}, false},
		"and late after its place was stale":         {idleKey{granted: 33700, mode: permit, place: "p2:three:3", first: "p2w2:one:1", holder: others(permit), more: passed(3500)}, true},
	} {
		found := checksOf(inLine(c.key.history()))
		assert.Equal(t, c.idle, slices.Contains(found, "idle"), "%s: %v", name, found)
	}
}
