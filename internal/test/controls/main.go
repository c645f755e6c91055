// Command controls builds faults into copies of the sources, so that controls can show that the
// tests notice. The shipped code has no switch: NAME.patch, beside this file, adds the code that
// takes one safety out while knob.NAME is set. All patches are applied at once, into an overlay:
//
//	go test -tags knobs -overlay=$(go run ./internal/test/controls) -run Control ./pathlock
//
// Several patches (package patch) may change one place, but none may remove a line that another
// removes: rather insert a line that corrects the one before. Patched files import package knob
// without being told. Code that needs other imports goes into a file of its own, which the patch adds.
//
// To make a patch or to change one: `git add` what is to stay, build the fault into the sources,
// and move it into the patch, which restores the sources as they were added:
//
//	go run ./internal/test/controls edit NAME # puts the patch that exists into the sources
//	go run ./internal/test/controls take NAME # makes NAME.patch from git diff
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/mongolock/mongolock/internal/test/patch"
)

const (
	here  = "internal/test/controls"
	knobs = "internal/test/knob"
	guard = knobs + "/unpatched.go" // panics in a build with -tags knobs and without the overlay
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controls:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 0:
		path, err := overlay(root)
		fmt.Fprintln(os.Stdout, path)
		return err
	case len(args) == 2 && args[0] == "edit":
		return patch.Edit(root, file(root, args[1]))
	case len(args) == 2 && args[0] == "take":
		if err := patch.Take(root, file(root, args[1])); err != nil {
			return err
		}
		_, err = overlay(root)
		return err
	}
	return errors.New("usage: controls [edit NAME | take NAME]")
}

func file(root, name string) string { return filepath.Join(root, here, name+".patch") }

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

// overlay applies all patches to copies of the sources, and returns the file that names them.
func overlay(root string) (string, error) {
	files, err := patched(root)
	if err != nil {
		return "", err
	}
	return patch.Overlay(root, filepath.Join(root, "bin", "controls"), files, guard)
}

// patched returns the content of all files that patches change or add.
func patched(root string) (map[string][]byte, error) {
	names, err := filepath.Glob(filepath.Join(root, here, "*.patch"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []patch.Patch
	for _, name := range names {
		p, err := patch.Read(name)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return patch.Apply(root, all...)
}
