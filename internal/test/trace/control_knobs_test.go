//go:build knobs

package trace_test

import (
	"flag"
	"fmt"
	"regexp"
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

var (
	plain = simulation.Settings{Margin: -1}
)

// A control is one safety taken out. In the histories of its seed TLC must refuse a step, and
// say this of it.
type control struct {
	seed     uint64
	name     string
	set      func(on bool)
	settings simulation.Settings
	step     string
	refused  string
}

var controls = []control{
	{8, "margin zero with a late timer", func(bool) {}, simulation.Settings{Margin: 0, Late: 300 * time.Millisecond}, "lets go of", "its holder was not told, and others may have the key already"},
	{33, "deadline counted from the reply", func(on bool) { knob.DeadlineFromReply = on }, plain, "is told", "its holder is told when others may have the key already"},
	{16, "deadline from an unchecked old sample", func(on bool) { knob.DeadlineFromSample = on }, plain, "is granted", "the answer came too late to be a grant"},
	{2, "hand-over by key alone", func(on bool) { knob.HandOverByKey = on }, plain, "sends transfer", "it names neither a revision nor the holder"},
	{14, "release without id", func(on bool) { knob.ReleaseByKey = on }, plain, "sends delete", "it does not ask that nobody holds the key, and nobody waits"},
	{21, "renewal that upserts", func(on bool) { knob.RenewalUpserts = on }, plain, "executes renew", "the server has executed what does not match"},
	{6, "$set instead of $max in a renewal", func(on bool) { knob.RenewalSets = on }, plain, "executes renew", "it leaves another document than the specification says"},
	{1, "one id sent twice", func(on bool) { knob.OneID = on }, plain, "sends insert", "an id is sent once"},
	{14, "clean-up while a later attempt is under way", func(on bool) { knob.ReuseID = on }, plain, "sends insert", "an id is sent once"},
	{1, "counter token in the document", func(on bool) { knob.CounterToken = on }, plain, "is granted", "its token is not greater than those before"},
	{5, "token stamped before a stalled insert", func(on bool) { knob.StampedToken = on }, plain, "is granted", "its token is not greater than those before"},
	{76, "unknown outcome read as not held", func(on bool) { knob.UnknownIsNotHeld = on }, plain, "nothing more comes", "an attempt of unknown outcome was not cleaned up"},
	{14, "compare-and-swap on rev alone", func(on bool) { knob.SwapByRevAlone = on }, plain, "executes swap", "it drops a holder that it does not name"},
	{77, "clean-up in a new session", func(on bool) { knob.UndoElsewhere = on }, plain, "sends undo", "it is not in the session of its attempt"},
	{112, "one clean-up where there are no txnNumbers", func(on bool) { knob.UndoOnce = on }, plain, "nothing more comes", "a clean-up that found nothing was not repeated"},
	{628, "a driver retry's stalled twin ignored", func(on bool) { knob.TwinIgnored = on }, plain, "nothing more comes", "a slow refusal was not cleaned up"},
	{2, "Done closed after the transfer was sent", func(on bool) { knob.DoneAfterTransfer = on }, plain, "sends release", "the lease is not over yet for its holder"},
	{5, "a lost lease given back at its deadline", func(on bool) { knob.GiveBackAtDeadline = on }, plain, "sends release", "the work under it has had no margin to stop"},
	{7, "a join that writes the whole map", func(on bool) { knob.JoinWritesMap = on }, plain, "executes join", "it leaves another document than the specification says"},
	{11, "a join that keeps rev", func(on bool) { knob.JoinKeepsRev = on }, plain, "executes join", "it leaves another document than the specification says"},
	{13, "a dropped holder whose beat is not in the filter", func(on bool) { knob.JoinDropsTheLiving = on }, plain, "executes swap", "it drops a holder that it does not name"},
	{6, "a counter for a beat", func(on bool) { knob.BeatCounts = on }, simulation.Settings{Margin: -1, Elections: true}, "sends renew", "its beat is not greater than all before"},
	{401, "hello before the look", func(on bool) { knob.HelloBeforeLook = on }, plain, "sends swap", "it drops a holder that none of the three rules gives up"},
	{45, "the time seen still counted from the sending of the look", func(on bool) { knob.StillFromSending = on }, plain, "sends swap", "it drops a holder that none of the three rules gives up"},
	{4, "a renewal that keeps the beat", func(on bool) { knob.RenewalKeepsBeat = on }, plain, "sends renew", "its beat is not greater than all before"},
	{337, "epoch of the reader in place of the writer's", func(on bool) { knob.EpochOfReader = on }, plain, "sends swap", "it drops a holder that none of the three rules gives up"},
	{8, "clean-up of a join that deletes the document", func(on bool) { knob.UndoDeletes = on }, plain, "sends undo", "it is not the clean-up of that mode"},
	{14, "a swap without rev", func(on bool) { knob.SwapWithoutRev = on }, plain, "sends swap", "it names neither a revision nor the holder"},
	{1, "a grant that does not compare who is in line", func(on bool) { knob.GrantOutOfTurn = on }, plain, "sends swap", "it does not ask who is in line"},
	{1, "an offer taken by the place alone", func(on bool) { knob.OfferUncompared = on }, plain, "sends swap", "it names neither a revision nor the holder"},
	{1, "a release that removes the line", func(on bool) { knob.ReleaseDropsLine = on }, plain, "sends release", "it removes a document and does not ask who is in line"},
	{1, "a release that keeps rev", func(on bool) { knob.ReleaseKeepsRev = on }, plain, "executes release", "it leaves another document than the specification says"},
	{14, "a swap that names dates", func(on bool) { knob.SwapByDate = on }, plain, "executes swap", "it drops a holder that it does not name"},
}

var only = flag.String("trace.control", "", "only the controls whose name contains this")

func TestControlEverySafetyTakenOutIsRefused(t *testing.T) {
	refusesEach(t, controls, ofLocks)
}

// refusesEach has TLC decide about the histories of controls, with the safety and without.
func refusesEach(t *testing.T, controls []control, k kind) {
	t.Helper()
	var all []*trace.Behaviour
	of := map[*trace.Behaviour]int{} // of those with the safety taken out
	add := func(seed uint64, s simulation.Settings) []*trace.Behaviour {
		list, _, _ := k.live(t, seed, s)
		all = append(all, list...)
		return list
	}
	sound := map[string]bool{}
	for i, c := range controls {
		if !strings.Contains(c.name, *only) {
			continue
		}
		c.set(true)
		for _, b := range add(c.seed, c.settings) {
			of[b] = i
		}
		c.set(false)
		c.settings.Margin, c.settings.Late = plain.Margin, 0
		if run := fmt.Sprint(c.seed, c.settings); !sound[run] {
			sound[run] = true
			add(c.seed, c.settings)
		}
	}
	knob.LateTimer = 0
	found := map[int]bool{}
	for _, v := range ask(t, all) {
		i, out := of[v.Behaviour]
		switch {
		case !out:
			assert.Empty(t, v.Refused, "with all safeties: %v", v)
		case v.Refused != "" && strings.Contains(v.Step.Text, controls[i].step) && v.Refused == controls[i].refused && !found[i]:
			t.Logf("%s: %v", controls[i].name, v)
			found[i] = true
		}
	}
	for i, c := range controls {
		if strings.Contains(c.name, *only) {
			assert.True(t, found[i], "%s: of the histories of seed %d none is refused when it %s, because %s", c.name, c.seed, c.step, c.refused)
		}
	}
}

// The driver may hold a renewal back past the end of its lease, as it does in this seed: the client began with it before.
// Had it begun afterwards, the specification must refuse the same history.
func TestControlARenewalBegunAfterTheEndOfItsLeaseIsRefused(t *testing.T) {
	list, _, _ := ofLocks.live(t, 388, plain)
	late := 0
	for _, b := range list {
		late += beginLate(t, b)
	}
	require.Positive(t, late, "renewals that were held back past the end of their leases")
	for _, v := range ask(t, list) {
		if v.Refused != "" {
			assert.Contains(t, v.Step.Text, "sends renew")
			assert.Equal(t, "it renews a lease that is not in hand", v.Refused)
			late--
		}
	}
	assert.Zero(t, late, "behaviours with such a renewal that are allowed")
}

var (
	isTold = regexp.MustCompile(`^<<(\d+), "told", (\d+)>>$`)
	isOver = regexp.MustCompile(`^<<\d+, "forget", (\d+),`)
	isSent = regexp.MustCompile(`^<<\d+, "send", (\d+),`)
	renews = regexp.MustCompile(`^(<<\d+, "renew", (\d+), \d+, \d+, \d+, )(\d+)`)
)

// beginLate has the first renewal that was sent after the end of its lease begin after it too, and reports how many there are:
// one or none.
func beginLate(t *testing.T, b *trace.Behaviour) int {
	t.Helper()
	told := map[string]int{} // by attempt
	for _, s := range b.Steps {
		if m := isTold.FindStringSubmatch(s.Term); m != nil {
			at, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			told[m[2]] = at
		}
		if m := isOver.FindStringSubmatch(s.Term); m != nil {
			delete(told, m[1]) // another attempt has its number from now on
		}
		m := isSent.FindStringSubmatch(s.Term)
		if m == nil {
			continue
		}
		k, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		c := renews.FindStringSubmatch(b.Commands[k-1])
		if c == nil {
			continue
		}
		if end, over := told[c[2]]; over {
			b.Commands[k-1] = renews.ReplaceAllString(b.Commands[k-1], "${1}"+strconv.Itoa(end+1))
			return 1
		}
	}
	return 0
}
