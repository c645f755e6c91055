// Command record keeps the faults that were found in the library, and the tests that still find them:
// faults.json, from which it draws docs/internals/record.md.
//
//	record                  draws the page
//	record reproduce [NAME] builds each fault in, and fails if its test does not find it
//	record edit NAME        puts the fault of faults/NAME.patch into the sources
//	record take NAME        makes faults/NAME.patch from git diff, and restores the sources
//
// Each has a patch that puts it back into today's code. One for which there is no place any more goes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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
		return os.WriteFile(filepath.Join(root, pageFile), []byte(rec.page()), 0o644) //nolint:gosec // a page of the repository
	case args[0] == "reproduce":
		return rec.reproduce(ctx, args[1:])
	case len(args) == 2 && args[0] == "edit":
		return patch.Edit(root, rec.patchOf(args[1]))
	case len(args) == 2 && args[0] == "take":
		return patch.Take(root, rec.patchOf(args[1]))
	}
	return errors.New("usage: record [reproduce [NAME...] | edit NAME | take NAME]")
}

// A record is what faults.json holds.
type record struct {
	root   string
	faults []fault
}

func load(root string) (*record, error) {
	file := filepath.Join(root, here, "faults.json")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &record{root: root}
	if err := json.Unmarshal(text, &r.faults); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// page draws docs/internals/record.md.
func (r *record) page() string {
	var rows strings.Builder
	for _, f := range r.faults {
		fmt.Fprintf(&rows, "%s|%s|%s\n", f.Name, f.Saw, f.Found)
	}
	return fmt.Sprintf(`# The record

Faults that users could have met, all found before the first release. Each has a patch in
[faults](../../internal/test/record/faults) that puts it back, and `+"`make reproduce`"+` fails if its test no longer finds it:
`+"`make reproduce FAULT=NAME`"+` tries one, and prints the command. The page is drawn from
[faults.json](../../internal/test/record/faults.json) by `+"`go run ./internal/test/record`"+`.

name|what a user could have seen|found by
---|---|---
%s`, rows.String())
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
