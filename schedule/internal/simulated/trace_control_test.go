package simulated_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/trace"
)

// Histories that are made wrong after the fact: each is refused at that step, and for that reason.
var altered = []struct {
	what    string
	alter   func(trace.Step) []trace.Step
	step    string
	refused string
}{
	{"a claim while the job is paused", without("it is resumed"), "sends claim", "the job is paused"},
	{"a claim of what is decided", termed(`"send", <<\d+>>, (\d+), (\d+)`, plus(-120_000)), "sends claim", "its due time is decided"},
	{"a claim that takes a due time for decided that is not", termed(`"send", <<\d+>>, (\d+)`, plus(120_000)), "sends claim", "it takes for decided what is not"},
	{"a claim while a run is open", without("ended as succeeded"), "sends claim", "a run is open"},
	{"a claim that does not say what it drops", termed(`"send", .*(\{<<.*>>\}), <<>>`, replaced("{}")), "sends claim", "the specification makes another claim of this document"},
	{"a claim that drops more", termed(`"send", .*"", (\{\}), <<>>`, replaced("{<<1, 100000000>>}")), "sends claim", "the specification makes another claim of this document"},
	{"a run that is too late and has no verdict", termed(`"send", .*("too late")`, replaced(`""`)), "sends claim", "the specification makes another claim of this document"},
	{"a death that is not counted", termed(`"send", .*<<\d+>>, \d+, ([12]),`, replaced("0")), "sends claim", "the specification makes another claim of this document"},
	{"a failure that is not counted", termed(`"send", .*<<\d+>>, ([12]), \d+,`, replaced("0")), "sends claim", "the specification makes another claim of this document"},
	{"a repetition of what is not over", termed(`"(?:claim|renew)", <<\d+>>, (?:"has", )?(\d+)`, plus(3_600_000)), "sends claim", "a run is open that is not over"},
	{"a retry before its time", termed(`"return", .*"failed", (\d+)`, plus(600_000)), "sends claim", "it goes on with a run before its time"},
	{"a token that is older", termed(`"claim", <<\d+>>, "\w+", \d+, (\d+)`, plus(-1)), "is granted", "tokens do not rise"},
	{"a grant that leaves another document", termed(`"claim", .*, <<(\d+), \d+, FALSE`, plus(1)), "is granted", "it leaves another document than the specification says"},
	{"a run that begins twice", twice(" begins"), "begins", "it begins what was not claimed, or again"},
	{"a run that begins long after its claim", termed(`(\d+), "begin"`, plus(100_000)), "begins", "its lease is over"},
	{"a run that begins while another is trusted", without("nothing"), "begins", "another runs"},
	{"a renewal that shortens a run", termed(`"renew", <<\d+>>, (\d+)`, plus(-100_000)), "is renewed", "it shortens a run"},
	{"a renewal that says that a run has begun", without(" begins"), "is renewed", "it says that a run has begun that has not"},
	{"an end that nobody sent", without(" returns: "), "ended as", "the specification has no such step"},
	{"a retry too many", termed(`"return", <<\d+>>, ("fail", "")`, replaced(`"fail", "failed"`)), "returns: failed", "the specification has no such step"},
	{"a retry too few", termed(`"return", <<\d+>>, ("fail", "failed")`, replaced(`"fail", ""`)), "returns: failed", "the specification has no such step"},
	{"an undo that takes the run out", termed(`"undo", <<\d+>>, <<.*(\{<<.*"unbegun".*>>\})`, replaced("{}")), "left as unbegun", "it leaves another document than the specification says"},
	{"a new plan from a time that is decided", termed(`"meet", "\w+", (\d+)`, plus(-100_000_000)), "has another plan", "the new plan holds from a time that is decided, or before the last one's"},
	{"a new plan from a later time on", termed(`"meet", "\w+", (\d+)`, plus(600_000)), "has another plan", "the new plan holds from a later time on"},
	{"a pause that is forgotten", termed(`"resume".*(, \[plan \|-> ""[^]]*\])`, replaced("")), "it is resumed", "it leaves other plans"},
}

func without(text string) func(trace.Step) []trace.Step {
	return func(s trace.Step) []trace.Step {
		if strings.Contains(s.Text, text) {
			return nil
		}
		return []trace.Step{s}
	}
}

// termed changes a step whose term matches, in the last group of the match.
func termed(pattern string, change func(string) string) func(trace.Step) []trace.Step {
	re := regexp.MustCompile(pattern)
	return func(s trace.Step) []trace.Step {
		if m := re.FindStringSubmatchIndex(s.Term); m != nil {
			from, to := m[len(m)-2], m[len(m)-1]
			s.Term = s.Term[:from] + change(s.Term[from:to]) + s.Term[to:]
		}
		return []trace.Step{s}
	}
}

func plus(d int) func(string) string {
	return func(n string) string { was, _ := strconv.Atoi(n); return strconv.Itoa(was + d) }
}

func replaced(by string) func(string) string { return func(string) string { return by } }

// twice has each such step come again.
func twice(text string) func(trace.Step) []trace.Step {
	return func(s trace.Step) []trace.Step {
		if strings.HasSuffix(s.Text, text) {
			return []trace.Step{s, s}
		}
		return []trace.Step{s}
	}
}

func TestControlAnAlteredHistoryOfAJobIsRefused(t *testing.T) {
	var all []*trace.Behaviour
	of := map[*trace.Behaviour]int{}
	for _, seed := range []uint64{5, 6, 21, 131} {
		h := play(t, seed, onMemory)
		for i, a := range altered {
			if a.refused == "another runs" {
				h.ttl *= 2
			}
			b := h.behaviour()
			h.ttl = ttl
			var steps []trace.Step
			for _, s := range b.Steps {
				steps = append(steps, a.alter(s)...)
			}
			if !slices.Equal(steps, b.Steps) || a.refused == "another runs" {
				b.Steps, of[b] = steps, i
				all = append(all, b)
			}
		}
	}
	found := map[int]bool{}
	for _, v := range ask(t, all) {
		if a := altered[of[v.Behaviour]]; v.Refused == a.refused && strings.Contains(v.Step.Text, a.step) {
			found[of[v.Behaviour]] = true
		} else {
			t.Log(a.what, v)
		}
	}
	for i, a := range altered {
		assert.True(t, found[i], "%s: no history is refused when it %s, because %s", a.what, a.step, a.refused)
	}
}
