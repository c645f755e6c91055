//go:build go1.26

// Package testing/cryptotest, which makes a seed repeatable, is new in Go 1.26.

package simulation_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/simulation"
)

var (
	simSeeds   = flag.Int("sim.seeds", 8, "how many seeds")
	simFirst   = flag.Uint64("sim.first", 1, "the first of them")
	simProcs   = flag.Int("sim.procs", 1, "in how many processes; 0: one for each core")
	simWithout = flag.String("sim.without", "", "kinds of faults to leave out, separated by commas")
	simUsers   = flag.Int("sim.users", 0, "how many users at most; 0: as the seed says")
	simSteps   = flag.Int("sim.steps", 0, "how many steps of each at most; 0: as the seed says")
	simSame    = flag.Int("sim.same", 6, "how many seeds are run twice, to compare their logs")
	simMemory  = flag.Bool("sim.memory", false, "over a memstore instead of a database")
	simForward = flag.Bool("sim.forward", false, "the clock of a primary may go forward far")
	simElects  = flag.Bool("sim.elections", false, "many elections, around one key")
	simAsking  = flag.Bool("sim.asking", false, "users ask again and again for a key that is held for long")
	simRolling = flag.Bool("sim.rolling", false, "all take permits, of numbers that differ as while deploys roll, while primaries fail")
	simSeveral = flag.Bool("sim.several", false, "users take several keys together again and again")
	simDying   = flag.Int("sim.dying", 50, "in how many of a thousand histories processes of a crowd die again and again")
	simMixed   = flag.Int("sim.mixed", 300, "in how many of a thousand histories the options of most calls are a mixture")
	simCrowd   = flag.Int("sim.crowd", 200, "in how many of a thousand histories many clients wait for one key")
	simServers = flag.String("sim.servers", "", "the kind of servers; empty: as the seed says")
	simLog     = flag.Bool("sim.log", false, "print the log of every seed")
)

var plain = simulation.Settings{Margin: -1, Crowd: 200, Mixed: 300, Dying: 50}

// asked returns the settings that the flags ask for.
func asked() simulation.Settings {
	s := plain
	s.Users, s.Steps, s.Memory = *simUsers, *simSteps, *simMemory
	s.Forward, s.Servers, s.Elections, s.Asking, s.Several = *simForward, *simServers, *simElects, *simAsking, *simSeveral
	s.Rolling = *simRolling
	s.Crowd, s.Mixed, s.Dying = *simCrowd, *simMixed, *simDying
	without := strings.Split(*simWithout, ",")
	for name, field := range map[string]*bool{
		"suspensions": &s.NoSuspensions, "clocksteps": &s.NoClockSteps, "failovers": &s.NoFailovers, "partitions": &s.NoPartitions,
		"stalls": &s.NoStalls, "slow": &s.NoSlow, "late": &s.NoLate, "loss": &s.NoLoss, "apart": &s.Together,
	} {
		*field = slices.Contains(without, name)
	}
	return s
}

// live runs one seed in a bubble of its own.
func live(t *testing.T, seed uint64, s simulation.Settings) *simulation.Outcome {
	return subject(simulation.Run).live(t, seed, s)
}

// A subject is what a simulation is about: locks, path locks, or updates of documents.
type subject func(seed uint64, s simulation.Settings) *simulation.Outcome

func (run subject) live(t *testing.T, seed uint64, s simulation.Settings) (out *simulation.Outcome) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // two goroutines of one instant may draw in either order
	cryptotest.SetGlobalRandom(t, seed)             // for the driver
	defer simulation.Seeded(seed)()
	synctest.Test(t, func(*testing.T) { out = run(seed, s) })
	return out
}

// keepsItsPromises runs the seeds that were asked for, one after the other.
func (run subject) keepsItsPromises(t *testing.T) {
	began := time.Now()
	sum := summary{faults: map[string]int{}}
	for i := range *simSeeds {
		seed := *simFirst + uint64(i)
		out := run.live(t, seed, asked())
		found := out.Check()
		if *simLog || len(found) > 0 {
			t.Logf("%s", out.Log)
		}
		if !assert.Empty(t, found, "seed %d", seed) {
			return
		}
		sum.add(out)
	}
	t.Log(sum.String())
	t.Logf("%d seeds from %d in %v", *simSeeds, *simFirst, time.Since(began).Round(time.Millisecond))
}

func TestNoSeedBreaksAPromise(t *testing.T) {
	began := time.Now()
	if procs := *simProcs; procs != 1 {
		if procs == 0 {
			procs = runtime.NumCPU()
		}
		spread(t, procs, began)
		return
	}
	sum := summary{faults: map[string]int{}}
	for i := range *simSeeds {
		seed := *simFirst + uint64(i)
		out := live(t, seed, asked())
		if *simLog {
			t.Logf("%s", out.Log)
		}
		if found := out.Check(); len(found) > 0 {
			explain(t, seed, out, found)
			return
		}
		sum.add(out)
		if i%100 == 99 {
			fmt.Printf("done 100 seeds\n") // for the parent's progress
		}
	}
	t.Log(sum.String())
	fmt.Printf("sum %s\n", sum.String())
	t.Logf("%d seeds from %d in %v", *simSeeds, *simFirst, time.Since(began).Round(time.Millisecond))
}

// A summary counts what happened in some seeds.
type summary struct {
	seeds, commands, events int
	long                    time.Duration
	faults                  map[string]int
}

func (s *summary) add(o *simulation.Outcome) {
	s.seeds++
	s.commands += o.Commands
	s.events += len(o.History.Events)
	s.long += o.Long
	for what, n := range o.Faults {
		s.faults[what] += n
	}
}

func (s *summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seeds=%d commands=%d events=%d hours=%d", s.seeds, s.commands, s.events, int(s.long.Hours()))
	names := make([]string, 0, len(s.faults))
	for what := range s.faults {
		names = append(names, what)
	}
	slices.Sort(names)
	for _, what := range names {
		fmt.Fprintf(&b, " %s=%d", strings.ReplaceAll(what, " ", "-"), s.faults[what])
	}
	return b.String()
}

var faulty string // how a test with the faults of controls is built

// explain shrinks a failing seed, draws it, and tells how to run it again.
func explain(t *testing.T, seed uint64, out *simulation.Outcome, found []history.Violation) {
	for _, v := range found {
		t.Errorf("seed %d: %v", seed, v)
	}
	small := simulation.Shrink(asked(), func(s simulation.Settings) bool {
		o := live(t, seed, s)
		f := o.Check()
		if len(f) > 0 {
			out, found = o, f
		}
		return len(f) > 0
	})
	t.Logf("again: go test%s ./internal/test/simulation -run TestNoSeed -sim.seeds 1 -sim.first %d%s -sim.log -v", faulty, seed, small.Flags())
	out.History.Keep(t, fmt.Sprintf("seed-%d", seed), fmt.Sprintf("seed %d", seed), found)
	if *simLog {
		t.Logf("%s", out.Log)
	}
}

// spread runs the seeds in several processes, each of them on one core. The random source
// that is seeded belongs to the whole process.
func spread(t *testing.T, procs int, began time.Time) {
	self, err := os.Executable()
	require.NoError(t, err)
	lines := make(chan string)
	var children sync.WaitGroup
	part := (*simSeeds + procs - 1) / procs
	for i := range procs {
		n := min(part, *simSeeds-i*part)
		if n <= 0 {
			break
		}
		cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestNoSeedBreaksAPromise$", "-test.v", "-test.timeout", "0",
			"-test.outputdir", os.TempDir(), fmt.Sprint("-sim.seeds=", n), fmt.Sprint("-sim.first=", *simFirst+uint64(i*part)), "-sim.procs=1",
			fmt.Sprint("-sim.forward=", *simForward), fmt.Sprint("-sim.elections=", *simElects), fmt.Sprint("-sim.asking=", *simAsking), fmt.Sprint("-sim.several=", *simSeveral), fmt.Sprint("-sim.rolling=", *simRolling), fmt.Sprint("-sim.crowd=", *simCrowd), fmt.Sprint("-sim.mixed=", *simMixed), fmt.Sprint("-sim.dying=", *simDying), fmt.Sprint("-sim.memory=", *simMemory), "-sim.servers="+*simServers)
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400")
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = cmd.Stdout
		require.NoError(t, cmd.Start())
		children.Go(func() {
			scan := bufio.NewScanner(stdout)
			scan.Buffer(nil, 1<<20)
			for scan.Scan() {
				lines <- scan.Text()
			}
			assert.NoError(t, cmd.Wait(), "seeds from %d", *simFirst+uint64(i*part))
		})
	}
	go func() { children.Wait(); close(lines) }()
	progress(t, lines, began)
}

func progress(t *testing.T, lines <-chan string, began time.Time) {
	done := 0
	for l := range lines {
		switch {
		case l == "done 100 seeds":
			if done += 100; done%1000 == 0 {
				rate := float64(done) / time.Since(began).Seconds()
				left := time.Duration(float64(*simSeeds-done) / rate * float64(time.Second))
				fmt.Fprintf(os.Stderr, "%d of %d seeds, %.0f a second, %v left\n", done, *simSeeds, rate, left.Round(time.Second))
			}
		case strings.HasPrefix(l, "sum "):
			t.Log(strings.TrimPrefix(l, "sum "))
		case strings.Contains(l, "seed ") || strings.Contains(l, "again:") || strings.Contains(l, "drawn in") || strings.Contains(l, "panic"):
			t.Log(strings.TrimSpace(l))
		}
	}
	t.Logf("%d seeds from %d in %v: %.0f a second", *simSeeds, *simFirst, time.Since(began).Round(time.Millisecond), float64(*simSeeds)/time.Since(began).Seconds())
}

func TestNoSeedBreaksAPromiseInMemory(t *testing.T) {
	for seed := *simFirst; seed < *simFirst+uint64(*simSeeds); seed++ {
		s := plain
		s.Memory = true
		for _, v := range live(t, seed, s).Check() {
			t.Errorf("seed %d: %v%s", seed, v, again(t, seed))
		}
	}
}

// Users take several keys together: AcquireAll claims them side by side, and then one after the other.
func TestNoSeedBreaksAPromiseOfSeveralKeys(t *testing.T) {
	for seed := *simFirst; seed < *simFirst+uint64(*simSeeds); seed++ {
		for _, memory := range []bool{false, true} {
			s := simulation.Settings{Margin: -1, Several: true, AtOnce: seed%2 == 0, Memory: memory}
			for _, v := range live(t, seed, s).Check() {
				t.Errorf("seed %d: %v, in memory: %t%s", seed, v, memory, again(t, seed))
			}
		}
	}
}

// All take permits of one key, whose number differs among them, while primaries fail.
func TestNoSeedBreaksAPromiseWhileDeploysRoll(t *testing.T) {
	for seed := *simFirst; seed < *simFirst+uint64(*simSeeds); seed++ {
		for _, v := range live(t, seed, simulation.Settings{Margin: -1, Rolling: true}).Check() {
			t.Errorf("seed %d: %v%s", seed, v, again(t, seed))
		}
	}
}

// again says how one seed of a test is run once more.
func again(t *testing.T, seed uint64) string {
	return fmt.Sprintf(" (again: -run %s$ -sim.seeds 1 -sim.first %d)", t.Name(), seed)
}

// A seed gives one log, unless two timers of one instant want the same thing, the hello that they
// share for one: Go draws their order in each run of a bubble again, and nothing seeds it. So
// one log must come twice before there are more than such draws explain: seed 4 has four of them,
// two renewals that a client sends at once three times, and the race detector finds all 16 orders.
func TestTheSameSeedGivesTheSameLog(t *testing.T) {
	const most = 16
	for i := range *simSame {
		seed := *simFirst + uint64(i)
		logs := [][]byte{live(t, seed, asked()).Log}
		for {
			next := live(t, seed, asked()).Log
			if slices.ContainsFunc(logs, func(l []byte) bool { return bytes.Equal(l, next) }) {
				break
			}
			if logs = append(logs, next); len(logs) > most {
				t.Errorf("seed %d has %d histories: %s", seed, len(logs), firstDifference(logs[0], next))
				break
			}
		}
		if len(logs) > 1 {
			t.Logf("seed %d has %d histories, by the order of timers of one instant", seed, len(logs))
		}
	}
}

func firstDifference(a, b []byte) string {
	x, y := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range min(len(x), len(y)) {
		if !bytes.Equal(x[i], y[i]) {
			return string(x[i]) + "\nand\n" + string(y[i])
		}
	}
	return "one log is longer"
}
