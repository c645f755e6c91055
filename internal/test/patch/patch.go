// Package patch builds faults into copies of the sources. A patch is a unified diff without line
// numbers. The old lines of each hunk (context and removed lines) must occur once in the shipped
// file. The copies are named by an overlay (go test -overlay), so the sources stay as they are.
package patch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const knobPath = `"github.com/mongolock/mongolock/internal/test/knob"`

// A Patch takes one safety out, or puts a fault back.
type Patch struct {
	Name  string
	Hunks []Hunk
}

// A Hunk changes one place of a file, or is the content of a file that the patch adds.
type Hunk struct {
	File  string
	adds  bool
	where string // the function, as git tells it: for the reader
	Lines []string
}

// Parse reads a unified diff. What stands above its first file is a comment.
func Parse(name, text string) (Patch, error) {
	p := Patch{Name: name}
	var file string
	var adds, within bool
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "diff "):
			within = false
		case strings.HasPrefix(line, "--- ") && !within:
			adds = line == "--- /dev/null"
		case strings.HasPrefix(line, "+++ ") && !within:
			file = strings.TrimLeft(strings.TrimPrefix(line, "+++ "), "ab")
			file = strings.TrimPrefix(file, "/")
		case strings.HasPrefix(line, "@@"):
			if file == "" {
				return p, fmt.Errorf("%s: a hunk before the name of its file", name)
			}
			_, where, _ := strings.Cut(strings.TrimPrefix(line, "@@"), "@@")
			p.Hunks, within = append(p.Hunks, Hunk{File: file, adds: adds, where: strings.TrimSpace(where)}), true
		case within:
			if line == "" {
				line = " " // an editor has trimmed it
			}
			if !strings.ContainsAny(line[:1], " +-") {
				return p, fmt.Errorf("%s: a line that is neither context nor changed: %s", name, line)
			}
			if line[0] != ' ' && strings.HasSuffix(line, knobPath) {
				continue // apply imports it
			}
			h := &p.Hunks[len(p.Hunks)-1]
			h.Lines = append(h.Lines, line)
		}
	}
	if len(p.Hunks) == 0 {
		return p, fmt.Errorf("%s: no hunk", name)
	}
	return p, nil
}

// changes reports whether anything is left without the imports of package knob.
func (h Hunk) changes() bool {
	return slices.ContainsFunc(h.Lines, func(l string) bool { return l[0] != ' ' && strings.TrimSpace(l[1:]) != "" })
}

// String returns the patch as it is kept: without line numbers, which would soon be wrong.
func (p Patch) String() string {
	var b strings.Builder
	for i, h := range p.Hunks {
		if i == 0 || p.Hunks[i-1].File != h.File {
			from := "a/" + h.File
			if h.adds {
				from = "/dev/null"
			}
			fmt.Fprintf(&b, "diff --git a/%[2]s b/%[2]s\n--- %[1]s\n+++ b/%[2]s\n", from, h.File)
		}
		fmt.Fprintln(&b, strings.TrimSpace("@@ @@ "+h.where))
		for _, line := range h.Lines {
			fmt.Fprintln(&b, line)
		}
	}
	return b.String()
}

// A source is a shipped file and what patches change in it.
type source struct {
	lines   []string
	removed map[int]string   // by which patch
	before  map[int][]string // what is inserted before a line
}

// Apply returns the content of the files that the patches change or add. Every hunk is looked for in
// the shipped file, whatever the other patches change there.
func Apply(root string, patches ...Patch) (map[string][]byte, error) {
	sources := map[string]*source{}
	var errs []error
	for _, p := range patches {
		for _, h := range p.Hunks {
			s := sources[h.File]
			if s == nil {
				content, err := os.ReadFile(filepath.Join(root, h.File))
				if err != nil && !(h.adds && errors.Is(err, fs.ErrNotExist)) {
					return nil, fmt.Errorf("%s: %w", p.Name, err)
				}
				s = &source{removed: map[int]string{}, before: map[int][]string{}}
				if !h.adds {
					s.lines = strings.Split(string(content), "\n")
				}
				sources[h.File] = s
			}
			if err := s.change(p.Name, h); err != nil {
				errs = append(errs, err)
			}
		}
	}
	files := map[string][]byte{}
	for file, s := range sources {
		files[file] = s.content()
	}
	return files, errors.Join(errs...)
}

func (s *source) change(by string, h Hunk) error {
	var old []string
	for _, line := range h.Lines {
		if line[0] != '+' {
			old = append(old, line[1:])
		}
	}
	at, found := 0, 0
	for i := 0; i+len(old) <= len(s.lines); i++ {
		if slices.Equal(s.lines[i:i+len(old)], old) {
			at, found = i, found+1
		}
	}
	if found != 1 && !h.adds {
		return fmt.Errorf("%s.patch: these lines occur %d times in %s, not once (%s):\n%s", by, found, h.File, h.where, strings.Join(old, "\n"))
	}
	for _, line := range h.Lines {
		switch line[0] {
		case '+':
			s.before[at] = append(s.before[at], line[1:])
			continue
		case '-':
			if other := s.removed[at]; other != "" {
				return fmt.Errorf("%s.patch and %s.patch remove the same line of %s: %s", by, other, h.File, line[1:])
			}
			s.removed[at] = by
		}
		at++
	}
	return nil
}

// content returns the changed source, with an import of package knob if it needs one.
func (s *source) content() []byte {
	var lines []string
	for i := 0; i <= len(s.lines); i++ {
		lines = append(lines, s.before[i]...)
		if i < len(s.lines) && s.removed[i] == "" {
			lines = append(lines, s.lines[i])
		}
	}
	imports := slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, knobPath) })
	uses := slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "knob.") })
	if clause := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "package ") }); uses && !imports {
		lines = slices.Insert(lines, clause+1, "", "import "+knobPath)
	}
	return []byte(strings.Join(lines, "\n"))
}
