package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The database in these histories: client 0 has the key alone from 1 s on, and from 2 s and 3 s on
// clients 1 and 2 stand in line. Times are in milliseconds.
func inLineOnce(until int, more ...Event) *History {
	all := []Event{
		applied(1000, 0, "a", "", until),
		stood(2000, 1, "x:one:1"), stood(3000, 2, "x:two:2"),
	}
	return &History{Events: append(all, more...), TTL: 30 * time.Second}
}

func at(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }

func applied(ms, client int, id, place string, until int) Event {
	return Event{Kind: Applied, At: at(ms), Began: at(ms), Key: "k", Client: client, Op: ms, ID: id, Place: place, Until: at(until)}
}

func stood(ms, client int, place string) Event {
	return Event{Kind: Stood, At: at(ms), Began: at(ms), Key: "k", Client: client, Owner: client, Place: place, Until: at(ms + 90000)}
}

func extended(ms, client int, id string, until int) Event {
	return Event{Kind: Extended, At: at(ms), Began: at(ms), Key: "k", Client: client, ID: id, Until: at(until)}
}

func droppedBy(ms, client int, id string) Event {
	return Event{Kind: Dropped, At: at(ms), Began: at(ms), Key: "k", Client: client, ID: id}
}

func gone(ms, client, owner int, place string) Event {
	return Event{Kind: Left, At: at(ms), Began: at(ms), Key: "k", Client: client, Owner: owner, Place: place}
}

func answer(ms, client, op int, kind Kind, id string) Event {
	return Event{Kind: kind, At: at(ms), Key: "k", Client: client, Op: op, ID: id}
}

func election(from, to int) Event {
	return Event{Kind: Trouble, At: at(from), Until: at(to), Client: -1, Note: Failover}
}

func waitsAgain(ms, client int, place string) Event {
	return Event{Kind: Waits, At: at(ms), Began: at(ms), Key: "k", Client: client, Owner: client, Place: place, Until: at(ms + 90000)}
}

// takes is a grant to a client that stands in line, or to a client's own next call, in one write.
func takes(ms, client int, place string, drops string, passed ...string) (all []Event) {
	if drops != "" {
		all = append(all, droppedBy(ms, client, drops))
	}
	all = append(all, applied(ms, client, "n", place, ms+30000))
	for _, p := range passed {
		all = append(all, gone(ms, client, 1, p))
	}
	if place != "" {
		all = append(all, gone(ms, client, client, place))
	}
	return all
}

// freed is the release of the holder.
func freed(ms int) []Event { return []Event{droppedBy(ms, 0, "a")} }

func still(h *History) *History {
	h.Still = true
	return h
}

// again is one that stands in line before another, and says since when.
func again(ms, client int, place, behind string, since int) Event {
	e := stood(ms, client, place)
	e.Behind, e.Since = behind, at(since)
	return e
}

// Each thing that excuses a write of being out of turn, and the nearest one that it does not excuse.
func TestWhatExcusesAWriteExcusesNoMore(t *testing.T) {
	for name, c := range map[string]struct {
		h     *History
		wrong string // empty: no violation
	}{
		"the first in turn":                             {inLineOnce(10000, takes(10001, 1, "x:one:1", "a")...), ""},
		"the second in turn":                            {inLineOnce(10000, takes(10101, 2, "x:two:2", "a")...), "out of turn"},
		"the first in turn, which left its place":       {inLineOnce(10000, takes(10101, 1, "", "a")...), ""},
		"the second, which left its place":              {inLineOnce(10000, takes(10101, 2, "", "a")...), "out of turn"},
		"the second, after the first one's grace":       {inLineOnce(30000, append(freed(10000), takes(10101, 2, "x:two:2", "", "x:one:1")...)...), ""},
		"the second, within the first one's grace":      {inLineOnce(30000, append(freed(10000), takes(10040, 2, "x:two:2", "", "x:one:1")...)...), "passed early"},
		"the second, though the first was seen":         {inLineOnce(30000, append(append(freed(10000), waitsAgain(10080, 1, "x:one:1")), takes(10101, 2, "x:two:2", "", "x:one:1")...)...), "passed early"},
		"the second, long after the first was seen":     {inLineOnce(30000, append(append(freed(10000), waitsAgain(10080, 1, "x:one:1")), takes(10301, 2, "x:two:2", "", "x:one:1")...)...), ""},
		"the second, by when the holder ran out":        {inLineOnce(10000, takes(10101, 2, "x:two:2", "a", "x:one:1")...), ""},
		"the first passes one behind it":                {inLineOnce(10000, append(takes(10101, 1, "x:one:1", "a"), gone(10101, 1, 2, "x:two:2"))...), "place lost"},
		"one that was passed stands before the second":  {inLineOnce(30000, gone(9000, 2, 1, "x:one:1"), again(9100, 1, "x:one:1", "x:two:2", 2000)), "place lost"},
		"it stands there though it came later":          {inLineOnce(30000, again(9100, 3, "x:three:3", "x:two:2", 9100)), "jumps the line"},
		"it says that it came before":                   {inLineOnce(30000, again(9100, 3, "x:three:3", "x:two:2", 2500)), "jumps the line"},
		"a handoff inside, of what was let go in time":  {inLineOnce(10000, append([]Event{answer(9000, 0, 1000, LetGo, "a")}, takes(10500, 0, "", "a")...)...), ""},
		"a handoff inside, of what was let go too late": {inLineOnce(10000, append([]Event{answer(10100, 0, 1000, LetGo, "a")}, takes(10500, 0, "", "a")...)...), "out of turn"},
		"let go before its TTL, where no date ends it":  {still(inLineOnce(10000, append([]Event{answer(10100, 0, 1000, LetGo, "a")}, takes(10500, 0, "", "a")...)...)), ""},
		"let go after its TTL, where no date ends it":   {still(inLineOnce(10000, append([]Event{answer(31100, 0, 1000, LetGo, "a")}, takes(31500, 0, "", "a")...)...)), "out of turn"},
		"a handoff of a call that failed in time":       {inLineOnce(10000, append([]Event{answer(9000, 0, 1000, Failed, "")}, takes(10500, 0, "", "a")...)...), ""},
		"a handoff of a call that failed too late":      {inLineOnce(10000, append([]Event{answer(10100, 0, 1000, Failed, "")}, takes(10500, 0, "", "a")...)...), "out of turn"},
		"a handoff of a call that was granted":          {inLineOnce(10000, append([]Event{answer(9000, 0, 1000, Granted, "a")}, takes(10500, 0, "", "a")...)...), "out of turn"},
		"the one before is taken out by nobody in line": {inLineOnce(10000, gone(10500, 2, 1, "x:one:1")), "place lost"},
		"a reader's look, in an election":               {inLineOnce(10000, election(9000, 11000), gone(10500, 2, 1, "x:one:1")), ""},
		"a writer's claim, in an election":              {inLineOnce(30000, append(append(freed(10000), election(9000, 11000)), takes(10040, 2, "x:two:2", "", "x:one:1")...)...), "passed early"},
		"by the TTL index":                              {inLineOnce(10000, Event{Kind: Left, At: at(10500), Key: "k", Owner: 1, Client: 1, Place: "x:one:1", Note: Swept}), "place lost"},
	} {
		found := checksOf(inLine(c.h))
		if c.wrong == "" {
			assert.Empty(t, found, name)
		} else {
			assert.Contains(t, found, c.wrong, name)
		}
	}
}
