//go:build knobs && go1.26

package trace_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/simulation"
	"github.com/mongolock/mongolock/internal/test/trace"
)

var lingering = simulation.Settings{Margin: -1, Linger: 1000}

// lingerControls are the safeties of keys that linger.
var lingerControls = []control{
	{2, "given out though somebody waits", func(on bool) { knob.LingerIgnoresWaiters = on }, lingering, "once more", "somebody waits, and its client has heard of that"},
	{3, "kept though somebody waits", func(on bool) { knob.LingerIgnoresWaiters = on }, lingering, "sends release", "it was kept for nobody while somebody waited"},
	{1, "a local grant under the token before", func(on bool) { knob.LocalTokenKept = on }, lingering, "once more", "its token is not greater than those before"},
}

func TestControlEverySafetyOfKeysThatLingerTakenOutIsRefused(t *testing.T) {
	refusesEach(t, lingerControls, ofLocks)
}

var alteredLingering = []alteration{
	{"a key that is detached, not released", detached, "once more", "its client does not keep the key", nil},
	{"a grant that comes a minute later", givenLater, "once more", "the holder that its client keeps is not trusted any more", nil},
	{"renewals that are never answered", without("has the answer to renew"), "once more", "a renewal of the holder is not answered", nil},
	{"a client that never heard of waiters", without("has opened its feed"), "once more", "its client has not heard of all who wait since it claimed the key", nil},
}

func TestControlAnAlteredHistoryOfKeysThatLingerIsRefused(t *testing.T) {
	refusesAltered(t, alteredLingering, ofLocks, lingering)
}

func detached(s *trace.Step) bool {
	if strings.Contains(s.Text, "lets go of") {
		s.Term = strings.ReplaceAll(s.Term, "TRUE", "FALSE")
	}
	return true
}

var isGivenAgain = regexp.MustCompile(`^<<(\d+), ("again", (\d+), )(\d+)>>$`)

func givenLater(s *trace.Step) bool {
	if m := isGivenAgain.FindStringSubmatch(s.Term); m != nil {
		at, _ := strconv.Atoi(m[1])
		s.Term = fmt.Sprintf("<<%d, %s%s>>", at+int(time.Minute/unit), m[2], m[4])
	}
	return true
}

// The store leaves room for 127 tokens. No run has as many local grants of one holder; so the first is repeated.
func TestControlALocalGrantWithoutAFreeTokenIsRefused(t *testing.T) {
	var all []*trace.Behaviour
	for seed := range uint64(6) {
		list, _, _ := ofLocks.live(t, seed+1, lingering)
		for _, b := range list {
			i := slices.IndexFunc(b.Steps, func(s trace.Step) bool { return isGivenAgain.MatchString(s.Term) })
			if i < 0 {
				continue
			}
			m := isGivenAgain.FindStringSubmatch(b.Steps[i].Term)
			token, err := strconv.Atoi(m[4])
			require.NoError(t, err)
			var more []trace.Step
			for n := range 127 {
				more = append(more,
					trace.Step{Term: fmt.Sprintf(`<<%s, "lets go", %s, TRUE>>`, m[1], m[3])}, trace.Step{Term: fmt.Sprintf(`<<%s, "told", %s>>`, m[1], m[3])},
					trace.Step{Term: fmt.Sprintf("<<%s, %s%d>>", m[1], m[2], token+n+1), Text: fmt.Sprint("local grant ", n+2)})
			}
			b.Steps = slices.Insert(b.Steps, i+1, more...)
			all = append(all, b)
		}
	}
	require.NotEmpty(t, all)
	refused := 0
	for _, v := range ask(t, all) {
		if v.Refused == "no token is left for it" {
			assert.True(t, strings.HasSuffix(v.Step.Text, "local grant 128"), v.Step.Text)
			refused++
		}
	}
	assert.Equal(t, len(all), refused)
}
