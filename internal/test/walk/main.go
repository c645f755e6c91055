// Command walk counts what a reader meets who follows a lease through the code, and fails if it is
// more than it was.
//
//	go run ./internal/test/walk              # the figures, against their ceilings
//	go run ./internal/test/walk -lower       # lowers the ceilings to the figures
//	go run ./internal/test/walk -print free  # the functions of one journey, indented by depth
//
// There are seven journeys: a free key is acquired, and released; a key that is held is waited for,
// and its release wakes the waiter; five leases are renewed; one is lost; a client with five leases
// is closed. journeys_test.go takes them in virtual time on the MongoDB in memory, in a build with a
// recorder at the start of every function that an importer of the root package compiles. The
// sources stay as they are: the build has an overlay.
//
// A figure is the functions, files or packages that a journey enters, or the files in which the
// methods of one type stand. The file ceilings has the greatest that each may be.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mongolock/mongolock/internal/test/patch"
)

const (
	module       = "github.com/mongolock/mongolock"
	here         = "internal/test/walk"
	ceilingsFile = here + "/ceilings"
	outVariable  = "WALK_OUT" // tells the journeys where their recordings belong
)

var journeys = []string{"free", "release", "held", "wakes", "renew", "loss", "close"}

func main() {
	show := flag.String("print", "", "print the functions of one `journey`")
	lowers := flag.Bool("lower", false, "lower the ceilings to the figures; it raises none")
	flag.Parse()
	if err := run(os.Stdout, *show, *lowers); err != nil {
		fmt.Fprintln(os.Stderr, "walk:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, show string, lowers bool) error {
	if _, err := os.Stat(here); err != nil {
		return errors.New("not in the root of the repository")
	}
	sources, err := compiled()
	if err != nil {
		return err
	}
	recordings, err := take(sources)
	if err != nil {
		return err
	}
	if show != "" {
		return printJourney(out, recordings[show])
	}
	now := make(figures)
	for _, journey := range journeys {
		now.count(journey, recordings[journey])
	}
	if err := now.countTypes(sources); err != nil {
		return err
	}
	content, err := os.ReadFile(ceilingsFile)
	if err != nil {
		return err
	}
	ceilings, err := parse(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", ceilingsFile, err)
	}
	printTable(out, now, ceilings)
	above, below := ceilings.compare(now)
	for _, line := range slices.Concat(above, below) {
		fmt.Fprintln(out, line)
	}
	switch {
	case len(above) > 0:
		return errors.New("a reader meets more than before: no ceiling is raised")
	case lowers:
		return os.WriteFile(ceilingsFile, []byte(now.String()), 0o644)
	case len(below) > 0:
		fmt.Fprintln(out, "a reader meets less than before: lower the ceilings by `make walk LOWER=1`")
	}
	return nil
}

// compiled returns the sources of this module that an importer of its root compiles, by their names in
// the repository.
func compiled() (map[string][]byte, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	list := exec.Command("go", "list", "-deps", "-f", `{{if .Module}}{{if .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`, ".")
	list.Stderr = os.Stderr
	names, err := list.Output()
	if err != nil {
		return nil, err
	}
	sources := make(map[string][]byte)
	for name := range strings.FieldsSeq(string(names)) {
		file, err := filepath.Rel(root, name)
		if err != nil {
			return nil, err
		}
		if sources[filepath.ToSlash(file)], err = os.ReadFile(name); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// A call of a function, as a journey entered it.
type call struct {
	depth    int
	function string // as in: lease.go:Lease.Release
}

// take makes the journeys, in sources with a recorder, and returns what each entered.
func take(sources map[string][]byte) (map[string][]call, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	out, err := os.MkdirTemp("", "walk")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(out) }()
	recorded := make(map[string][]byte)
	for file, source := range sources {
		if recorded[file], err = instrument(file, source); err != nil {
			return nil, err
		}
	}
	overlay, err := patch.Overlay(root, filepath.Join(root, "bin", "walk"), recorded)
	if err != nil {
		return nil, err
	}
	test := exec.Command("go", "test", "-vet=off", "-count=1", "-overlay", overlay, "-run", "^TestJourneys$", "./"+here)
	test.Env = append(os.Environ(), outVariable+"="+out)
	if said, err := test.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s%w", said, err)
	}
	all := make(map[string][]call)
	for _, journey := range journeys {
		content, err := os.ReadFile(filepath.Join(out, journey))
		if err != nil {
			return nil, err
		}
		if all[journey], err = calls(string(content)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// calls reads a recording.
func calls(recording string) (all []call, err error) {
	for line := range strings.Lines(recording) {
		parts := strings.Split(strings.TrimSpace(line), "\t")
		if len(parts) != 3 {
			return nil, fmt.Errorf("not a line of a recording: %q", line)
		}
		depth, err := strconv.Atoi(parts[1])
		if err != nil {
			return nil, err
		}
		all = append(all, call{depth, parts[2]})
	}
	return all, nil
}

func printJourney(out io.Writer, all []call) error {
	if all == nil {
		return fmt.Errorf("the journeys are %s", strings.Join(journeys, ", "))
	}
	for _, c := range all {
		fmt.Fprintf(out, "%s%s\n", strings.Repeat("  ", c.depth), c.function)
	}
	return nil
}

// Figures are what a reader meets, by what is counted: "free/files", "type/mongolock.Lease".
type figures map[string]int

// The figures of a journey, and how they and those of types are named.
const (
	ofFunctions = "/functions"
	ofFiles     = "/files"
	ofPackages  = "/packages"
	ofType      = "type/"
)

// enough is in how many files the methods of a type may stand that has no ceiling.
const enough = 2

// count adds the figures of a journey.
func (f figures) count(journey string, all []call) {
	functions, files, packages := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, c := range all {
		file, _, _ := strings.Cut(c.function, ":")
		functions[c.function], files[file], packages[path.Dir(file)] = true, true, true
	}
	f[journey+ofFunctions], f[journey+ofFiles], f[journey+ofPackages] = len(functions), len(files), len(packages)
}

// compare tells which figures are above these ceilings, and which are below.
func (f figures) compare(now figures) (above, below []string) {
	names := maps.Clone(f)
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		ceiling, known := f[name]
		if !known && strings.HasPrefix(name, ofType) {
			ceiling = enough
		}
		switch n := now[name]; {
		case n > ceiling:
			above = append(above, fmt.Sprintf("%s: %d, above its ceiling of %d", name, n, ceiling))
		case n < ceiling && known:
			below = append(below, fmt.Sprintf("%s: %d, below its ceiling of %d", name, n, ceiling))
		}
	}
	return above, below
}

// String returns the file of ceilings that these figures are.
func (f figures) String() string {
	var b strings.Builder
	b.WriteString("# What a reader meets, at most. Written by `make walk LOWER=1`, which raises no figure.\n")
	fmt.Fprintf(&b, "# A type without a line has its methods in at most %d files.\n", enough)
	for _, name := range f.inOrder() {
		fmt.Fprintf(&b, "%s %d\n", name, f[name])
	}
	return b.String()
}

// inOrder returns the names: the journeys in theirs, then the types, those in most files first.
func (f figures) inOrder() (names []string) {
	for _, journey := range journeys {
		for _, of := range []string{ofFunctions, ofFiles, ofPackages} {
			if _, ok := f[journey+of]; ok {
				names = append(names, journey+of)
			}
		}
	}
	types := slices.DeleteFunc(slices.Collect(maps.Keys(f)), func(name string) bool { return !strings.HasPrefix(name, ofType) })
	slices.SortFunc(types, func(a, b string) int { return cmp.Or(cmp.Compare(f[b], f[a]), cmp.Compare(a, b)) })
	return append(names, types...)
}

// parse reads a file of ceilings.
func parse(content string) (figures, error) {
	f := make(figures)
	for lines := bufio.NewScanner(strings.NewReader(content)); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, number, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("not a name and a number: %q", line)
		}
		f[name] = n
	}
	return f, nil
}

func printTable(out io.Writer, now, ceilings figures) {
	fmt.Fprintf(out, "%-8s %14s %14s %14s\n", "journey", "functions", "files", "packages")
	for _, journey := range journeys {
		fmt.Fprintf(out, "%-8s", journey)
		for _, of := range []string{ofFunctions, ofFiles, ofPackages} {
			fmt.Fprintf(out, " %14s", fmt.Sprintf("%d of %d", now[journey+of], ceilings[journey+of]))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "\n%-46s %6s\n", "type", "files")
	for _, name := range now.inOrder() {
		if t, ok := strings.CutPrefix(name, ofType); ok {
			fmt.Fprintf(out, "%-46s %6d\n", t, now[name])
		}
	}
}
