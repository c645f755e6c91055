// Command record keeps docs/internals/record.md: what ran, which faults were found, whether the
// tests still find them, and which seed notices each control. The page is drawn from the files
// beside this one, and from nothing else.
//
//	record                          draws the page
//	record run WHAT -- COMMAND      runs a command, and keeps what it showed
//	record controls                 keeps the seeds that a search printed (make simulate-controls), from standard input
//	record reproduce [-keep] [NAME] builds each fault in, and fails if its test does not find it
//	record edit NAME                puts the fault of faults/NAME.patch into the sources
//	record take NAME                makes faults/NAME.patch from git diff, and restores the sources
//
// A fault of faults.json has a patch that puts it back into today's code, or says why there is no
// place for it any more.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/mongolock/mongolock/internal/test/patch"
)

const (
	here     = "internal/test/record"
	pageFile = "docs/internals/record.md"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := work(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func work(ctx context.Context, args []string) error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	rec, err := load(root)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 0:
	case len(args) > 3 && args[0] == "run" && args[2] == "--":
		err = rec.run(ctx, args[1], args[3:])
	case len(args) == 1 && args[0] == "controls":
		err = rec.search(os.Stdin)
	case args[0] == "reproduce":
		return rec.reproduce(ctx, args[1:])
	case len(args) == 2 && args[0] == "edit":
		return patch.Edit(root, rec.patchOf(args[1]))
	case len(args) == 2 && args[0] == "take":
		return patch.Take(root, rec.patchOf(args[1]))
	default:
		return errors.New("usage: record [run WHAT -- COMMAND | controls | reproduce [-keep] [NAME...] | edit NAME | take NAME]")
	}
	return errors.Join(err, rec.draw())
}

// A record is what the files beside this one hold.
type record struct {
	root       string
	runs       []run
	faults     []fault
	searches   []search
	reproduced map[string]moment // by the name of a fault
	servers    []serverRun
}

// A moment is when something was shown, and of which code.
type moment struct {
	Commit string `json:"commit"`
	On     string `json:"on"`
}

func load(root string) (*record, error) {
	r := &record{root: root}
	var elsewhere []serverRun
	err := errors.Join(
		read(filepath.Join(root, here, "runs.json"), &r.runs),
		read(filepath.Join(root, here, "faults.json"), &r.faults),
		read(filepath.Join(root, here, "controls.json"), &r.searches),
		read(filepath.Join(root, here, "reproduced.json"), &r.reproduced),
		read(filepath.Join(root, "docs", "servers.json"), &r.servers),
		read(filepath.Join(root, here, "elsewhere.json"), &elsewhere),
	)
	r.servers = append(r.servers, elsewhere...)
	return r, err
}

func read(file string, to any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// save replaces one of the files beside this one.
func (r *record) save(name string, content any) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.root, here, name), append(text, '\n'), 0o644)
}

func (r *record) draw() error {
	return os.WriteFile(filepath.Join(r.root, pageFile), []byte(r.page()), 0o644)
}

func (r *record) patchOf(name string) string {
	return filepath.Join(r.root, here, "faults", name+".patch")
}

// findRoot returns the folder of the library's module.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, here)); err == nil {
			return dir, nil
		}
	}
	return "", errors.Join(err, errors.New("not in the repository"))
}

// output returns what a command prints.
func (r *record) output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.root
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
