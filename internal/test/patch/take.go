package patch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Read reads the patch in a file, and names it by the file.
func Read(file string) (Patch, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return Patch{}, err
	}
	return Parse(strings.TrimSuffix(filepath.Base(file), ".patch"), string(content))
}

// Edit builds the fault of a file into the sources.
func Edit(root, file string) error {
	p, err := Read(file)
	if err != nil {
		return err
	}
	files, err := Apply(root, p)
	for file, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, file), content, 0o644))
	}
	return err
}

// Take makes a patch from what the sources differ from what was added to git, and restores them.
func Take(root, file string) error {
	var diffs []string
	for context := 1; context <= 8; context++ {
		out, err := Git(root, "diff", "--no-ext-diff", "--no-color", fmt.Sprintf("-U%d", context), "--", "*.go", ":!*_test.go", ":!internal/test")
		if err != nil {
			return err
		}
		diffs = append(diffs, out)
	}
	var p Patch
	var err error
	for i, diff := range diffs { // the least context that says where
		if p, err = Parse(strings.TrimSuffix(filepath.Base(file), ".patch"), diff); err != nil {
			return err
		}
		p.Hunks = slices.DeleteFunc(p.Hunks, func(h Hunk) bool { return !h.changes() })
		if len(p.Hunks) == 0 {
			return errors.New("the sources are as they were added to git: there is no fault to take")
		}
		if i == 0 {
			if err := restore(root, p); err != nil {
				return err
			}
		}
		if _, err = Apply(root, p); err == nil {
			break
		}
	}
	return errors.Join(err, os.WriteFile(file, []byte(p.String()), 0o644))
}

func restore(root string, p Patch) error {
	for _, h := range p.Hunks {
		if h.adds {
			if err := os.Remove(filepath.Join(root, h.File)); err != nil {
				return err
			}
			if _, err := Git(root, "rm", "-q", "--cached", "--", h.File); err != nil {
				return err
			}
		} else if _, err := Git(root, "checkout", "-q", "--", h.File); err != nil {
			return err
		}
	}
	return nil
}

// Git runs git in the repository, and returns what it prints.
func Git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	return string(out), err
}
