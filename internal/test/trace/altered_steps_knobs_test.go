//go:build knobs && go1.26

package trace_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/simulation"
	"github.com/mongolock/mongolock/internal/test/trace"
)

// Conditions that no switch takes out are taken out of histories: a condition without a history that it refuses shows nothing.
type alteration struct {
	what    string
	alter   func(*trace.Step) (stays bool)
	step    string
	refused string
	command func(string) string // alters commands, too
}

var alteredPaths = []alteration{
	{"a holder who trusts its lock for a minute more", trustedLonger("has"), "is granted", "its holder may trust it for longer than it lasts", nil},
	{"the same of a refresh", trustedLonger("refreshed"), "is told of the refresh", "its holder may trust it for longer than it lasts", nil},
	{"a lock that is removed though nobody let go of it", without("lets go of"), "sends remove", "it removes by its token a lock that is in hand", nil},
	{"a refresh that nobody called", without("calls Refresh"), "sends refresh", "nobody waits for it any more", nil},
	{"a grant of what was not answered", without("has the answer to add"), "is granted", "no answer says that it was added", nil},
	{"a grant while what was over is not removed", without("has the answer to remove"), "is granted", "each look showed a lock in its way", nil},
	{"answers before a majority has it", without("a majority has"), "has the answer", "it is answered before a majority has it", nil},
}

var alteredDocuments = []alteration{
	{"a change that is told to be made, and was not", without("executes finish"), "is told", "Acknowledged", nil},
	{"a change that is told to be surely not made, and was", toldOtherwise, "is told", "SurelyNot", nil},
	{"a save under a lock that was not granted", without("has the answer to claim"), "sends finish", "it saves under a lock that is not granted", nil},
	{"a save that goes by an older value", without("executes claim"), "executes finish", "the server has executed what does not match", nil},
	{"answers before a majority has it", without("a majority has"), "has the answer", "it is answered before a majority has it", nil},
	{"a save without a change that was there", without("none of this"), "sends finish", "it saves something else than one change more than it was given", lost},
	{"a claim that is sent again before it was answered", without("nothing was found"), "sends claim", "an id is sent again, and the claim before may have been applied", nil},
}

// Processes die in line, so others are passed, although they live, and join again.
var dying = simulation.Settings{Margin: -1, Dying: 1000}

var alteredLines = []alteration{
	{"one that was passed, and is not before those that came later", without("none of this"), "executes note", "it leaves another document than the specification says", last},
}

var joinsBefore = regexp.MustCompile(`^(<<\d+, "note", .*\}, \d+, )\d+>>>>$`)

// last has a place that joins before others join at the end.
func last(command string) string { return joinsBefore.ReplaceAllString(command, "$1-1>>>>") }

var savesTwo = regexp.MustCompile(`^(<<"finish".*, <<)\d+, (.*>>>>)$`)

// lost drops the first change of what a save has, if there is another.
func lost(command string) string { return savesTwo.ReplaceAllString(command, "$1$2") }

func toldOtherwise(s *trace.Step) bool {
	s.Term = strings.ReplaceAll(s.Term, `"changed"`, `"unchanged"`)
	return true
}

func without(text string) func(*trace.Step) bool {
	return func(s *trace.Step) bool { return !strings.Contains(s.Text, text) }
}

var isTrusted = regexp.MustCompile(`^(<<\d+, "(has|refreshed)", \d+, )(\d+)>>$`)

func trustedLonger(which string) func(*trace.Step) bool {
	return func(s *trace.Step) bool {
		if m := isTrusted.FindStringSubmatch(s.Term); m != nil && m[2] == which {
			until, _ := strconv.Atoi(m[3])
			s.Term = m[1] + strconv.Itoa(until+int(time.Minute/unit)) + ">>"
		}
		return true
	}
}

func TestControlAnAlteredHistoryOfALineIsRefused(t *testing.T) {
	refusesAltered(t, alteredLines, ofLocks, dying)
}

func TestControlAnAlteredHistoryOfPathLocksIsRefused(t *testing.T) {
	refusesAltered(t, alteredPaths, ofPaths, plain)
}

func TestControlAnAlteredHistoryOfUpdatesIsRefused(t *testing.T) {
	refusesAltered(t, alteredDocuments, ofUpdates, plain)
}

// refusesAltered has TLC decide about the altered histories of four seeds.
func refusesAltered(t *testing.T, altered []alteration, k kind, settings simulation.Settings) {
	t.Helper()
	refusesAlteredFrom(t, 1, altered, k, settings)
}

func refusesAlteredFrom(t *testing.T, from uint64, altered []alteration, k kind, settings simulation.Settings) {
	t.Helper()
	of := map[*trace.Behaviour]int{}
	var all []*trace.Behaviour
	for i, a := range altered {
		for seed := range uint64(4) {
			list, _, _ := k.live(t, from+seed, settings)
			for _, b := range list {
				var steps []trace.Step
				for _, s := range b.Steps {
					if a.alter(&s) {
						steps = append(steps, s)
					}
				}
				b.Steps = steps
				for i, c := range b.Commands {
					if a.command != nil {
						b.Commands[i] = a.command(c)
					}
				}
				of[b] = i
				all = append(all, b)
			}
		}
	}
	found := map[int]bool{}
	for _, v := range ask(t, all) {
		if a := altered[of[v.Behaviour]]; v.Refused == a.refused && strings.Contains(v.Step.Text, a.step) {
			found[of[v.Behaviour]] = true
		} else if v.Refused != "" {
			t.Log(a.what, v)
		}
	}
	for i, a := range altered {
		assert.True(t, found[i], "%s: no history is refused when it %s, because %s", a.what, a.step, a.refused)
	}
}
