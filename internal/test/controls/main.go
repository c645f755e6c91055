// Command controls builds faults into copies of the sources, so that controls can show that the
// tests notice. The shipped code has no switch: NAME.patch, beside this file, adds the code that
// takes one safety out while knob.NAME is set. All patches are applied at once, into an overlay:
//
//	go test -tags knobs -overlay=$(go run ./internal/test/controls) -run Control ./pathlock
//
// A patch is a unified diff without line numbers. The old lines of each hunk (context and removed
// lines) must occur once in the shipped file. Several patches may change one place, but none may
// remove a line that another removes: rather insert a line that corrects the one before. Patched
// files import package knob without being told. Code that needs other imports goes into a file of
// its own, which the patch adds.
//
// To make a patch or to change one: `git add` what is to stay, build the fault into the sources,
// and move it into the patch, which restores the sources as they were added:
//
//	go run ./internal/test/controls edit NAME # puts the patch that exists into the sources
//	go run ./internal/test/controls take NAME # makes NAME.patch from git diff
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
		return edit(root, args[1])
	case len(args) == 2 && args[0] == "take":
		return take(root, args[1])
	}
	return errors.New("usage: controls [edit NAME | take NAME]")
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

// overlay applies all patches to copies of the sources, and returns the file that names them.
func overlay(root string) (string, error) {
	files, err := patched(root)
	if err != nil {
		return "", err
	}
	out := filepath.Join(root, "bin", "controls")
	replace := map[string]string{filepath.Join(root, guard): ""}
	for file, content := range files {
		// Not .go: neither gofmt nor ./... is to find the copies.
		faulty := filepath.Join(out, strings.ReplaceAll(file, "/", "_")+".patched")
		if err := write(faulty, content); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = faulty
	}
	content, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	path := filepath.Join(out, "overlay.json")
	return path, write(path, content)
}

// patched returns the content of all files that patches change or add.
func patched(root string) (map[string][]byte, error) {
	names, err := filepath.Glob(filepath.Join(root, here, "*.patch"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []patch
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		p, err := parse(strings.TrimSuffix(filepath.Base(name), ".patch"), string(content))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return apply(root, all...)
}

// write replaces a file at once: another build may be reading it.
func write(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(temp, content, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// edit builds one fault into the sources.
func edit(root, name string) error {
	content, err := os.ReadFile(filepath.Join(root, here, name+".patch"))
	if err != nil {
		return err
	}
	p, err := parse(name, string(content))
	if err != nil {
		return err
	}
	files, err := apply(root, p)
	for file, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, file), content, 0o644))
	}
	return err
}

// take makes a patch from what the sources differ from what was added to git, and restores them.
func take(root, name string) error {
	var diffs []string
	for context := 1; context <= 8; context++ {
		out, err := git(root, "diff", "--no-ext-diff", "--no-color", fmt.Sprintf("-U%d", context), "--", "*.go", ":!*_test.go", ":!internal/test")
		if err != nil {
			return err
		}
		diffs = append(diffs, out)
	}
	var p patch
	var err error
	for i, diff := range diffs { // the least context that says where
		if p, err = parse(name, diff); err != nil {
			return err
		}
		p.hunks = slices.DeleteFunc(p.hunks, func(h hunk) bool { return !h.changes() })
		if len(p.hunks) == 0 {
			return errors.New("the sources are as they were added to git: there is no fault to take")
		}
		if i == 0 {
			if err := restore(root, p); err != nil {
				return err
			}
		}
		if _, err = apply(root, p); err == nil {
			break
		}
	}
	if err := errors.Join(err, os.WriteFile(filepath.Join(root, here, name+".patch"), []byte(p.String()), 0o644)); err != nil {
		return err
	}
	_, err = overlay(root)
	return err
}

func restore(root string, p patch) error {
	for _, h := range p.hunks {
		if h.adds {
			if err := os.Remove(filepath.Join(root, h.file)); err != nil {
				return err
			}
			if _, err := git(root, "rm", "-q", "--cached", "--", h.file); err != nil {
				return err
			}
		} else if _, err := git(root, "checkout", "-q", "--", h.file); err != nil {
			return err
		}
	}
	return nil
}

func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	return string(out), err
}
