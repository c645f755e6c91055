package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Verdict is what TLC says of a behaviour.
type Verdict struct {
	Behaviour *Behaviour
	Refused   string // the condition that does not hold; empty: the specification allows it all
	Step      Step   // the first step that is not allowed
	At        int    // its place among the behaviour's steps
}

func (v Verdict) String() string {
	if v.Refused == "" {
		return v.Behaviour.Name + " is allowed"
	}
	return fmt.Sprintf("%s: %s: %s", v.Behaviour.Name, v.Step.Text, v.Refused)
}

var said = regexp.MustCompile(`(?m)^<<\s*"(refused|allowed)",\s*(\d+),\s*(\d+)(?:,\s*"(.*)")?\s*>>$`)

// Ask has TLC decide about behaviours, so many runs of it at once, each about those of one TTL and margin.
func Ask(ctx context.Context, jar, spec string, procs int, all []*Behaviour) (verdicts []Verdict, err error) {
	groups := map[[2]int][]*Behaviour{}
	for _, b := range all {
		of := [2]int{b.TTL, b.Margin}
		groups[of] = append(groups[of], b)
	}
	var (
		mu   sync.Mutex // protects what is returned
		runs sync.WaitGroup
		gate = make(chan struct{}, procs)
	)
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b *Behaviour) int { return a.IDs - b.IDs }) // TLC gives all as many
		for part := range slices.Chunk(g, g[0].of.most) {
			runs.Go(func() {
				gate <- struct{}{}
				defer func() { <-gate }()
				found, failed := tlc(ctx, jar, spec, part)
				mu.Lock()
				defer mu.Unlock()
				verdicts, err = append(verdicts, found...), errors.Join(err, failed)
			})
		}
	}
	runs.Wait()
	return verdicts, err
}

// tlc has the jar of TLC decide about behaviours of one specification, TTL and margin. spec is the folder of
// the specifications.
func tlc(ctx context.Context, jar, spec string, behaviours []*Behaviour) ([]Verdict, error) {
	work, err := os.MkdirTemp("", "trace")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for _, module := range behaviours[0].of.modules {
		module += ".tla"
		text, err := os.ReadFile(filepath.Join(spec, module))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(work, module), text, 0o600); err != nil {
			return nil, err
		}
	}
	if err := write(work, behaviours); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "java", "-Xms512m", "-Xmx1500m", "-Xss64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.io.tmpdir="+work, "-cp", jar,
		"tlc2.TLC", "-workers", "1", "-fpmem", "0.05", "-metadir", filepath.Join(work, "states"), "-config", "Histories.cfg", "Histories")
	cmd.Dir = work
	out, runErr := cmd.CombinedOutput()
	if !bytes.Contains(out, []byte("Model checking completed. No error has been found.")) {
		return nil, fmt.Errorf("TLC did not finish: %w\n%s", errors.Join(runErr, ctx.Err()), out[max(0, len(out)-4000):])
	}
	return verdicts(behaviours, out)
}

// verdicts reads what TLC printed. A behaviour of which it says nothing is an error: it was
// neither allowed nor refused.
func verdicts(behaviours []*Behaviour, out []byte) ([]Verdict, error) {
	all := make([]Verdict, len(behaviours))
	for _, m := range said.FindAllSubmatch(out, -1) {
		n, _ := strconv.Atoi(string(m[2]))
		at, _ := strconv.Atoi(string(m[3]))
		b := behaviours[n-1]
		v := Verdict{Behaviour: b, Refused: string(m[4]), Step: b.Steps[at-1], At: at - 1}
		if was := all[n-1]; was.Behaviour != nil && was != v { // it says one thing twice if the step is possible for two reasons
			return nil, fmt.Errorf("TLC says two things of %s", b.Name)
		}
		all[n-1] = v
	}
	for i, v := range all {
		if v.Behaviour == nil {
			return nil, fmt.Errorf("TLC says nothing of %s:\n%s", behaviours[i].Name, out[max(0, len(out)-4000):])
		}
	}
	return all, nil
}

// write makes the module of the behaviours, and its configuration.
func write(work string, behaviours []*Behaviour) error {
	var m strings.Builder
	of := behaviours[0].of
	m.WriteString("---- MODULE Histories ----\nEXTENDS " + of.modules[len(of.modules)-1] + "\n")
	ids := 1
	for i, b := range behaviours {
		ids = max(ids, b.IDs)
		fmt.Fprintf(&m, "C%d == <<%s>>\nS%d == <<\n", i+1, strings.Join(b.Commands, ",\n"), i+1)
		for j, s := range b.Steps {
			m.WriteString(s.Term)
			if j < len(b.Steps)-1 {
				m.WriteString(",\n")
			}
		}
		m.WriteString(">>\n")
	}
	m.WriteString("TheHistories == <<\n")
	for i, b := range behaviours {
		comma := ","
		if i == len(behaviours)-1 {
			comma = ""
		}
		fmt.Fprintf(&m, "[%s, commands |-> C%d, steps |-> S%d]%s\n", b.fields, i+1, i+1, comma)
	}
	m.WriteString(">>\nEveryProc == 1.." + strconv.Itoa(ids) + "\n====\n")
	if err := os.WriteFile(filepath.Join(work, "Histories.tla"), []byte(m.String()), 0o600); err != nil {
		return err
	}
	config := "SPECIFICATION TraceSpec\nCHECK_DEADLOCK FALSE\nVIEW Where\nCONSTANTS\n  Traces <- TheHistories\n  " + of.numbers + " <- EveryProc\n" + of.config(behaviours[0])
	return os.WriteFile(filepath.Join(work, "Histories.cfg"), []byte(config), 0o600)
}
