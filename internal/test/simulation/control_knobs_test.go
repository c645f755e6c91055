//go:build knobs && go1.26

package simulation_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/test/knob"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

// A control is one safety taken out. The simulation must notice within the number of seeds
// that CI runs. The first seed that noticed is tried before the others, unless -sim.search
// looks for it. A safety of the engine must be missed over a memstore as well.
type control struct {
	first    uint64 // seed that notices, over servers
	memory   uint64 // the same over a memstore; 0: a memstore does not have this safety
	name     string
	set      func(on bool)
	settings simulation.Settings
}

var usual = simulation.Settings{Margin: -1}

var controls = []control{
	{8, 5, "margin zero with a late timer", func(bool) {}, simulation.Settings{Margin: 0, Late: 300 * time.Millisecond}},
	{33, 45, "deadline counted from the reply", func(on bool) { knob.DeadlineFromReply = on }, usual},
	{76, 0, "deadline from an unchecked old sample", func(on bool) { knob.DeadlineFromSample = on }, usual},
	{2, 0, "hand-over by key alone", func(on bool) { knob.HandOverByKey = on }, usual},
	{1, 0, "release without id", func(on bool) { knob.ReleaseByKey = on }, usual},
	{21, 0, "renewal that upserts", func(on bool) { knob.RenewalUpserts = on }, usual},
	{6, 0, "$set instead of $max in a renewal", func(on bool) { knob.RenewalSets = on }, usual},
	{1, 1, "one id sent twice", func(on bool) { knob.OneID = on }, usual},
	{86, 200, "clean-up while a later attempt is under way", func(on bool) { knob.ReuseID = on }, usual},
	{1, 0, "counter token in the document", func(on bool) { knob.CounterToken = on }, usual},
	{1, 0, "token stamped before a stalled insert", func(on bool) { knob.StampedToken = on }, usual},
	{77, 4, "unknown outcome read as not held", func(on bool) { knob.UnknownIsNotHeld = on }, usual},
	{1404, 0, "compare-and-swap on rev alone", func(on bool) { knob.SwapByRevAlone = on }, usual},
	{77, 0, "clean-up in a new session", func(on bool) { knob.UndoElsewhere = on }, usual},
	{112, 0, "one clean-up where there are no txnNumbers", func(on bool) { knob.UndoOnce = on }, usual},
	{628, 0, "a driver retry's stalled twin ignored", func(on bool) { knob.TwinIgnored = on }, usual},
	{2, 2, "Done closed after the transfer was sent", func(on bool) { knob.DoneAfterTransfer = on }, usual},
	{5, 9, "a lost lease given back at its deadline", func(on bool) { knob.GiveBackAtDeadline = on }, usual},
	{11, 0, "a join that writes the whole map", func(on bool) { knob.JoinWritesMap = on }, usual},
	{8, 0, "weights that are not counted", func(on bool) { knob.WeightIgnored = on }, simulation.Settings{Margin: -1, Mixed: 1000}},
	{2, 0, "permits counted against the largest number", func(on bool) { knob.LargestLimit = on }, simulation.Settings{Margin: -1, Rolling: true}},
	{66, 0, "a join that keeps rev", func(on bool) { knob.JoinKeepsRev = on }, usual},
	{50, 0, "all shards judged by one clock", func(on bool) { knob.ShardsOfOneClock = on }, simulation.Settings{Margin: -1, Servers: "routers"}},
	// Faults beyond the promises are noticed as well.
	{223, 0, "a primary's clock that goes forward far", func(bool) {}, simulation.Settings{Margin: -1, Forward: true}},
	// A look has to be answered late, after a renewal under a clock that is behind.
	{700, 0, "dates in place of beats in the swap", func(on bool) { knob.SwapByDate = on }, simulation.Settings{Margin: -1, Elections: true, Asking: true}},
	{7, 0, "a counter for a beat", func(on bool) { knob.BeatCounts = on }, simulation.Settings{Margin: -1, Elections: true}},
	{45, 0, "the time seen still counted from the sending of the look", func(on bool) { knob.StillFromSending = on }, usual},
	{4, 0, "a renewal that keeps the beat", func(on bool) { knob.RenewalKeepsBeat = on }, usual},
	{337, 0, "epoch of the reader in place of the writer's", func(on bool) { knob.EpochOfReader = on }, usual},
	{8, 0, "a delete without rev", func(on bool) { knob.LastDeletesHeld = on }, usual},
	{145, 0, "a write without its fence", func(bool) {}, simulation.Settings{Margin: -1, Unfenced: true}},
	{1, 2, "what was granted after a refusal kept", func(on bool) { knob.LaterKeysKept = on }, simulation.Settings{Margin: -1, Several: true}},
	{76, 0, "clean-up of a join that deletes the document", func(on bool) { knob.UndoDeletes = on }, usual},
}

var (
	simControl = flag.String("sim.control", "", "run only the controls whose name contains this")
	simBudget  = flag.Int("sim.budget", 2000, "how many seeds a control may take")
	simSearch  = flag.Bool("sim.search", false, "find the first seed that notices each control")
)

func init() { faulty = " -tags knobs -overlay=$(go run ./internal/test/controls)" }

func TestControlEverySafetyTakenOutIsNoticed(t *testing.T) {
	for _, c := range controls {
		if !strings.Contains(c.name, *simControl) {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.isNoticed(t, c.first) })
		if c.memory > 0 {
			c.settings.Memory = true
			t.Run(c.name+" over a memstore", func(t *testing.T) { c.isNoticed(t, c.memory) })
		}
	}
	knob.LateTimer = 0
}

func (c control) isNoticed(t *testing.T, first uint64) {
	defer c.set(false)
	if !*simSearch && c.noticed(t, first) {
		return
	}
	for seed := range uint64(*simBudget) {
		if c.noticed(t, seed+1) {
			return
		}
	}
	t.Errorf("no violation in %d seeds", *simBudget)
}

func (c control) noticed(t *testing.T, seed uint64) bool {
	c.set(true)
	out := live(t, seed, c.settings)
	c.set(false)
	found := out.Check()
	if len(found) > 0 {
		if *simLog {
			t.Logf("%s", out.Log)
		}
		t.Logf("seed %d: %v", seed, found[0])
	}
	return len(found) > 0
}
