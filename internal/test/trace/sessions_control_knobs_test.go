//go:build knobs && go1.26

package trace_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/simulation"
	"github.com/mongolock/mongolock/internal/test/trace"
)

var (
	underSessions = simulation.Settings{Margin: -1, Sessions: 1000, NoSuspensions: true}
	allSessions   = simulation.Settings{Margin: -1, Sessions: 1000}
	underElected  = simulation.Settings{Margin: -1, Sessions: 1000, Elections: true, NoSuspensions: true}
)

// sessionControls are the safeties of sessions.
var sessionControls = []control{
	{2, "a key taken over without the mark", func(on bool) { knob.TakenUnmarked = on }, underElected, "sends claim", "no majority has marked the session of the holder that it drops"},
	{3, "the mark by one node", func(on bool) { knob.MarkUnvoted = on }, underElected, "sends claim", "no majority has marked the session of the holder that it drops"},
	{3, "renewal of the dead", func(on bool) { knob.SessionRevived = on }, underElected, "sends keep", "it renews a session that is not in hand"},
	{6, "trust past its deadline", func(on bool) { knob.SessionOverstayed = on }, underElected, "is told", "its holder is told when others may have the key already"},
	{1, "one id used twice", func(on bool) { knob.SessionReused = on }, underSessions, "sends begin", "the id of a session is used twice"},
	{1, "a release by one node", func(on bool) { knob.ReleaseUnvoted = on }, underSessions, "sends release", "one node acknowledges the removal of what its session keeps"},
	{9, "a sweep by key", func(on bool) { knob.SweepByKey = on }, underElected, "sends release", "it names no holder"},
	{2, "a sweep by the id", func(on bool) { knob.SweepByID = on }, underElected, "sends release", "it removes a holder of another process"},
	{1, "a takeover that names no session", func(on bool) { knob.UnderUnseen = on }, underSessions, "sends claim", "it does not say under which session it saw the holder"},
	{7, "a sweep that names no session", func(on bool) { knob.UnderUnseen = on }, underElected, "sends sweep", "it does not say under which session it saw the holder"},
	{1, "a leave that keeps the revision", func(on bool) { knob.AloneKeepsRev = on }, underSessions, "executes leave", "it leaves another document than the specification says"},
	{200, "come under together, whatever the answer", func(on bool) { knob.EnteredUnseen = on }, allSessions, "lets go of", "its holder was not told, and others may have the key already"},
}

// sharedControls are asked of keys that are shared alone.
var sharedControls = []control{
	{66, "a shared key taken over without the mark", func(on bool) { knob.TakenUnmarked = on }, allSessions, "sends claim", "no majority has marked the session of the holder that it drops"},
	{43, "a sharer that trusts its session past its deadline", func(on bool) { knob.SessionOverstayed = on }, allSessions, "lets go of", "its holder was not told, and others may have the key already"},
	{10, "a join that drops a sharer whose beat it does not name", func(on bool) { knob.JoinDropsTheLiving = on }, allSessions, "executes join", "it leaves another document than the specification says"},
	{7, "a join that writes the whole map", func(on bool) { knob.JoinWritesMap = on }, allSessions, "executes join", "it leaves another document than the specification says"},
	{7, "a sharer's release by one node", func(on bool) { knob.ReleaseUnvoted = on }, allSessions, "sends release", "one node acknowledges the removal of what its session keeps"},
}

var ofShared = kind{"shared keys and sessions", simulation.Run, func(seed uint64, r *simulation.Recording) (all []*trace.Behaviour, commands, covered int) {
	all, commands, covered = trace.Sessions(seed, r)
	return slices.DeleteFunc(all, func(b *trace.Behaviour) bool {
		return !strings.Contains(b.Name, `"gamma"`) && !strings.Contains(b.Name, `"delta"`)
	}), commands, covered
}}

func TestControlEverySafetyOfSharedKeysUnderSessionsTakenOutIsRefused(t *testing.T) {
	refusesEach(t, sharedControls, ofShared)
}

var alteredShared = []alteration{
	{"a joiner whose claim was not answered", without("has the answer to join"), "is granted", "no answer has granted it", nil},
	{"an empty document whose sharers did not leave", without(" release of "), "executes last", "the server has executed what does not match", nil},
	{"a grant of a join that no primary executed", without("executes join"), "is granted", "the answer came too late to be a grant", nil},
}

func TestControlAnAlteredHistoryOfSharedKeysUnderSessionsIsRefused(t *testing.T) {
	refusesAlteredFrom(t, 7, alteredShared, ofShared, allSessions)
}

func TestControlEverySafetyOfSessionsTakenOutIsRefused(t *testing.T) {
	refusesEach(t, sessionControls, ofSessions)
}
