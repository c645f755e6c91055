package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/store"
)

func TestAPlaceOfAnotherShapeIsOfferedNothing(t *testing.T) {
	now := time.Now()
	for _, p := range []store.Place{"x", "x:", "x:here", "y:here:1", "xs:here:1", "p:here:1", "p0:here:1", "p-1:here:1", "p1.5:here:1", "pw2:here:1"} {
		mode, limit := p.Mode()
		assert.Empty(t, mode, p)
		assert.Zero(t, limit, p)
		s := store.Status{Now: now, Line: []store.Waiter{{Place: p, Seen: now}}}
		assert.Zero(t, s.Offered(s.Waiting("")), p)
		assert.False(t, s.Turn(&store.Claim{}), "%q: a newcomer comes after it", p)
	}
}

func TestAPlaceIsShort(t *testing.T) {
	assert.Equal(t, 1, store.Place("p20w9223372036854775807:a:b").Weight(), "sums of any weights fit an int")
	p := store.NewPlace(store.Permits, 10_000, 10_000, "Kq3fA9Kq3fA9Kq3fA9Kq3fA9Kq3fA9Kq")
	assert.LessOrEqual(t, len(p), 64)
	assert.NotContains(t, p, ".")
	assert.NotContains(t, p, "$")
}

// What is offered to a line depends on the live holders alone.
func TestWhatIsOfferedToALine(t *testing.T) {
	now := time.Now()
	live, dead := now.Add(time.Second), now
	for _, c := range []struct {
		line    string // the modes of its places
		mode    store.Mode
		holders []time.Time // when they end
		offered int
	}{
		{line: "x,x", offered: 1},
		{line: "s,s,x,s", offered: 2},
		{line: "s,s,s", offered: 3},
		{line: "p2,p2,p2", offered: 2},
		{line: "p3,p2", offered: 2},
		{line: "p3,s", offered: 1},
		{line: "p4w3,p4,p4", offered: 2},
		{line: "p4,p4w4,p4", offered: 1},
		{line: "p2w3,p2", offered: 0},
		{line: "p4w3,p4", mode: store.Permits, holders: []time.Time{live, live}, offered: 0},
		{line: "p4w2,p4", mode: store.Permits, holders: []time.Time{live, live}, offered: 1},
		{line: "x", mode: store.Exclusive, holders: []time.Time{live}, offered: 0},
		{line: "s", mode: store.Exclusive, holders: []time.Time{live}, offered: 0},
		{line: "s,s", mode: store.Exclusive, holders: []time.Time{dead}, offered: 2},
		{line: "x,s", mode: store.Shared, holders: []time.Time{live}, offered: 0},
		{line: "s,s,x", mode: store.Shared, holders: []time.Time{live, live}, offered: 2},
		{line: "p2,s", mode: store.Shared, holders: []time.Time{live}, offered: 0},
		{line: "p2,s", mode: store.Shared, holders: []time.Time{dead}, offered: 1},
		{line: "p3,p3,p3", mode: store.Permits, holders: []time.Time{live, live, dead}, offered: 1},
		{line: "p3", mode: store.Permits, holders: []time.Time{live, live, live}, offered: 0},
		{line: "p4", mode: store.Permits, holders: []time.Time{live, live, live}, offered: 1},
		{line: "p2,p3", mode: store.Permits, holders: []time.Time{live, live}, offered: 0},
		{line: "p2,p3", mode: store.Permits, holders: []time.Time{live}, offered: 1},
		{line: "p3,p2,p4", mode: store.Permits, holders: []time.Time{live}, offered: 1},
		{line: "p3,p2,p4", offered: 2},
		{line: "p6w4,p5", mode: store.Permits, holders: []time.Time{live}, offered: 1},
		{line: "s", mode: store.Permits, holders: []time.Time{live}, offered: 0},
	} {
		s := store.Status{Now: now, Mode: c.mode}
		for _, end := range c.holders {
			s.Holders = append(s.Holders, store.Holder{ExpireAt: end})
		}
		for i, mode := range strings.Split(c.line, ",") {
			s.Line = append(s.Line, store.Waiter{Place: store.Place(fmt.Sprint(mode, ":here:", i)), Seen: now})
		}
		line := s.Waiting("")
		assert.Equal(t, c.offered, s.Offered(line), "%+v", c)
		for i, p := range line {
			assert.Equal(t, i == 0 || i < c.offered, s.Turn(&store.Claim{Place: p}), "the turn of place %d of %+v", i, c)
		}
	}
}

// The own place is never stale, and a place that is passed does not count.
func TestWhoCountsInALine(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		mode    store.Mode    // of a live holder; empty: the key is free
		unseen  time.Duration // the writer in line, or one that wants several permits
		counted bool
	}{
		{"", store.PlaceFor - 1, true},
		{"", store.PlaceFor, false},
		{store.Exclusive, store.PlaceFor - 1, true},
		{store.Exclusive, store.PlaceFor, false},
		{store.Shared, store.ReserveFor - 1, true},
		{store.Shared, store.ReserveFor, false},
		{store.Permits, store.ReserveFor, false},
		{"", -time.Hour - store.PlaceFor, true},
		{"", -time.Hour - store.PlaceFor - 1, false},
		{store.Shared, -time.Hour - store.PlaceFor - 1, false},
	} {
		for _, writer := range []store.Place{store.NewPlace(store.Exclusive, 1, 1, ""), store.NewPlace(store.Permits, 4, 2, "")} {
			reader := store.NewPlace(store.Shared, 0, 1, "")
			s := store.Status{Now: now, Line: []store.Waiter{{Place: writer, Seen: now.Add(-c.unseen)}, {Place: reader, Seen: now.Add(-store.ReserveFor)}}}
			if c.mode != "" {
				s.Mode, s.Holders = c.mode, []store.Holder{{ExpireAt: now.Add(time.Second)}}
			}
			want := []store.Place{reader}
			if c.counted {
				want = []store.Place{writer, reader}
			}
			assert.Equal(t, want, s.Waiting(""), "%+v", c)
			assert.Equal(t, []store.Place{writer, reader}, s.Waiting(writer), "%+v", c)
		}
	}
}
