//go:build linux

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/store"
)

// A queued key is one for which these wait, in that order.
func queued(holders []store.Holder, waiters ...store.Waiter) keyView {
	now := time.Date(2026, 5, 3, 2, 0, 0, 0, time.UTC)
	s := mongolock.Status{Key: "nightly", Holders: holders, Now: now}
	for i, w := range waiters {
		w.Owner = fmt.Sprint("host-", i)
		if w.Since = now.Add(-2 * time.Minute); w.Seen.IsZero() {
			w.Seen = now
		}
		s.Line = append(s.Line, w)
	}
	return viewOf(s)
}

func places(all ...store.Place) (waiters []store.Waiter) {
	for _, p := range all {
		waiters = append(waiters, store.Waiter{Place: p})
	}
	return waiters
}

func TestWhatIsShownOfALine(t *testing.T) {
	reader, writer := store.NewPlace(store.Shared, 0, 1, "a"), store.NewPlace(store.Exclusive, 1, 1, "b")
	polls, permit := store.NewPlace(store.Shared, 0, 1, ""), store.NewPlace(store.Permits, 3, 2, "c")
	line := places(reader, polls, writer, permit)
	line[0].Seen = time.Date(2026, 5, 3, 1, 58, 0, 0, time.UTC)
	v := queued(nil, line...)
	var texts []string
	for _, w := range v.Line {
		texts = append(texts, v.waitOf(w))
	}
	assert.Equal(t, []string{"shared, for 2m, stale: not seen for 2m", "shared, for 2m, and may have the key now",
		"exclusive, for 2m", "2 permits of 3, for 2m"}, texts)
	assert.Equal(t, "3, 1 stale", v.waiters())
	assert.Equal(t, []bool{false, true, false, false}, []bool{v.Line[0].Polls, v.Line[1].Polls, v.Line[2].Polls, v.Line[3].Polls})
	assert.Equal(t, []int{0, 0, 0, 3}, []int{v.Line[0].Limit, v.Line[1].Limit, v.Line[2].Limit, v.Line[3].Limit})

	rows := v.rows(false)
	require.Len(t, rows, 1, "a key that nobody holds")
	assert.Equal(t, "offered to host-1", rows[0][4])
	assert.Equal(t, "offered to host-0, host-1", queued(nil, places(reader, polls, writer)...).next())
	assert.Equal(t, "offered to nobody", queued(nil, places("of a newer version", writer)...).next())
	dead := places(reader)
	dead[0].Seen = line[0].Seen
	assert.Equal(t, "0, 1 stale", queued(nil, dead...).rows(true)[0][5])
	assert.Equal(t, "free", queued(nil).rows(true)[0][1], "what --all lists")
	assert.Empty(t, queued(nil).waiters())
}

func TestWatchShowsWhoJoinsTheLine(t *testing.T) {
	one, two := store.NewPlace(store.Exclusive, 1, 1, "a"), store.NewPlace(store.Permits, 2, 1, "b")
	now := time.Date(2026, 5, 3, 2, 0, 0, 0, time.UTC)
	before := mongolock.Status{Key: "k", Now: now, Line: []store.Waiter{{Place: one, Owner: "one", Seen: now}}}
	after := before
	after.Line = append(after.Line, store.Waiter{Place: two, Owner: "two", Seen: now}, store.Waiter{Place: "dead", Owner: "three"})
	assert.Equal(t, []change{{At: now, Kind: "waits", Key: "k", Owner: "two", Text: "1 permit of 2, 1 ahead"}}, changesOf("k", before, after, now))
	assert.Empty(t, changesOf("k", after, after, now))
}

func TestAKeyThatWasKeptDidNotRunOut(t *testing.T) {
	now := time.Date(2026, 5, 3, 2, 0, 0, 0, time.UTC)
	kept := store.Holder{ID: "1", Owner: "one", Since: now.Add(-time.Minute), ExpireAt: now.Add(time.Second), Released: true}
	before := mongolock.Status{Key: "k", Now: now, Mode: store.Exclusive, Holders: []store.Holder{kept}}
	after := before
	after.Now = now.Add(2 * time.Second)
	assert.Equal(t, []change{{At: after.Now, Kind: "freed", Key: "k", Owner: "one", Text: "after 1m2s"}}, changesOf("k", before, after, now))
	v := viewOf(after)
	assert.Equal(t, "released, was kept until 1s ago", v.stateOf(v.Holders[0]))
	assert.Equal(t, 2*time.Second, graceOf(before), "nobody has to be told of a break")
}

// Of several holders one may be kept: the key is held by the others.
func TestARefusedCommandSaysWhoHoldsTheKey(t *testing.T) {
	now := time.Date(2026, 5, 3, 2, 0, 0, 0, time.UTC)
	kept := store.Holder{Owner: "one", Since: now.Add(-time.Minute), ExpireAt: now.Add(20 * time.Second), Released: true}
	works := store.Holder{Owner: "two", Since: now.Add(-30 * time.Second), ExpireAt: now.Add(30 * time.Second)}
	unsure := kept // its end is past by the present primary's clock, which may not be the one that wrote it
	unsure.ExpireAt, unsure.KnownBy = now.Add(-5*time.Second), now.Add(20*time.Second)
	for _, test := range []struct {
		holders []store.Holder
		text    string
	}{
		{[]store.Holder{kept, works}, " by two for 30s"},
		{[]store.Holder{kept}, " by one, which released it, for another 20s"},
		{[]store.Holder{unsure}, " by one, which released it, for another 20s"},
	} {
		err := &mongolock.HeldError{Status: mongolock.Status{Key: "k", Mode: store.Shared, Now: now, Holders: test.holders}}
		assert.Equal(t, test.text, by(err))
	}
}

func TestTheLineOfAKeyIsShown(t *testing.T) {
	p := newProgram(t)
	_, err := p.owner("billing-7").Acquire(t.Context(), "nightly")
	require.NoError(t, err)
	p.doctor().says("waiting", ok, "no process is in line for a key")
	wait := func(owner string, opts ...mongolock.AcquireOption) {
		c := p.owner(owner)
		go func() { _, _ = c.Acquire(t.Context(), "nightly", opts...) }() // ends with the test
		require.Eventually(t, func() bool { return c.Stats().InLine == 1 }, pace.Of(10*time.Second), 10*time.Millisecond)
	}
	wait("billing-8")
	wait("billing-9", mongolock.Shared())
	assert.Regexp(t, `^nightly\texclusive\tbilling-7\t\S+\t\S+ left\t2\t\n$`, p.prints("ls"))
	assert.Regexp(t, `(?s)waiter\tbilling-8\n  waits\texclusive, for \S+\nwaiter\tbilling-9\n  waits\tshared, for \S+\n$`, p.prints("show", "nightly"))
	assert.Regexp(t, `"line":\[\{"owner":"billing-8","mode":"exclusive","since":"[^"]+Z","seen":"[^"]+Z"\},\{"owner":"billing-9","mode":"shared",`, p.prints("show", "nightly", "--output", "json"))
	p.doctor().says("waiting", ok, "2 for nightly, the first is billing-8, for ")

	// The processes died.
	seen := bson.D{}
	status, err := p.owner("operator").Inspect(t.Context(), "nightly")
	require.NoError(t, err)
	for _, w := range status.Line {
		seen = append(seen, bson.E{Key: "waits." + string(w.Place) + ".seen", Value: time.Now().Add(-time.Hour)})
	}
	_, err = p.database().Collection("locks").UpdateByID(t.Context(), "nightly", bson.D{{Key: "$set", Value: seen}})
	require.NoError(t, err)
	assert.Contains(t, p.prints("show", "nightly"), "stale: not seen for 1h0m")
	assert.Contains(t, p.prints("ls"), "\t0, 2 stale\t")
	p.doctor().says("waiting", ok, "(2 stale places of processes that died")
}

func TestDoctorNamesALineThatIsFull(t *testing.T) {
	p := newProgram(t)
	_, err := p.owner("billing-7").Acquire(t.Context(), "nightly")
	require.NoError(t, err)
	var line bson.A
	waits := bson.D{}
	for range store.LineMost {
		place := string(store.NewPlace(store.Exclusive, 1, 1, "a"))
		line, waits = append(line, place), append(waits, bson.E{Key: place, Value: bson.D{{Key: "owner", Value: "w"}, {Key: "since", Value: time.Now()}, {Key: "seen", Value: time.Now()}}})
	}
	_, err = p.database().Collection("locks").UpdateByID(t.Context(), "nightly", bson.D{{Key: "$set", Value: bson.D{{Key: "line", Value: line}, {Key: "waits", Value: waits}}}})
	require.NoError(t, err)
	p.doctor().says("waiting", warning, "The line of nightly is full")
	assert.Contains(t, p.prints("show", "nightly"), "the line is full: others may wait too")
}
