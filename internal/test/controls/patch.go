package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const knobPath = `"github.com/mongolock/mongolock/` + knobs + `"`

// A patch takes one safety out.
type patch struct {
	name  string
	hunks []hunk
}

// A hunk changes one place of a file, or is the content of a file that the patch adds.
type hunk struct {
	file  string
	adds  bool
	where string // the function, as git tells it: for the reader
	lines []string
}

// parse reads a unified diff. What stands above its first file is a comment.
func parse(name, text string) (patch, error) {
	p := patch{name: name}
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
			p.hunks, within = append(p.hunks, hunk{file: file, adds: adds, where: strings.TrimSpace(where)}), true
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
			h := &p.hunks[len(p.hunks)-1]
			h.lines = append(h.lines, line)
		}
	}
	if len(p.hunks) == 0 {
		return p, fmt.Errorf("%s: no hunk", name)
	}
	return p, nil
}

// changes reports whether anything is left without the imports of package knob.
func (h hunk) changes() bool {
	return slices.ContainsFunc(h.lines, func(l string) bool { return l[0] != ' ' && strings.TrimSpace(l[1:]) != "" })
}

// String returns the patch as it is kept: without line numbers, which would soon be wrong.
func (p patch) String() string {
	var b strings.Builder
	for i, h := range p.hunks {
		if i == 0 || p.hunks[i-1].file != h.file {
			from := "a/" + h.file
			if h.adds {
				from = "/dev/null"
			}
			fmt.Fprintf(&b, "diff --git a/%[2]s b/%[2]s\n--- %[1]s\n+++ b/%[2]s\n", from, h.file)
		}
		fmt.Fprintln(&b, strings.TrimSpace("@@ @@ "+h.where))
		for _, line := range h.lines {
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

// apply returns the content of the files that the patches change or add. Every hunk is looked for in
// the shipped file, whatever the other patches change there.
func apply(root string, patches ...patch) (map[string][]byte, error) {
	sources := map[string]*source{}
	var errs []error
	for _, p := range patches {
		for _, h := range p.hunks {
			s := sources[h.file]
			if s == nil {
				content, err := os.ReadFile(filepath.Join(root, h.file))
				if err != nil && !(h.adds && errors.Is(err, fs.ErrNotExist)) {
					return nil, fmt.Errorf("%s: %w", p.name, err)
				}
				s = &source{removed: map[int]string{}, before: map[int][]string{}}
				if !h.adds {
					s.lines = strings.Split(string(content), "\n")
				}
				sources[h.file] = s
			}
			if err := s.change(p.name, h); err != nil {
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

func (s *source) change(by string, h hunk) error {
	var old []string
	for _, line := range h.lines {
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
		return fmt.Errorf("%s.patch: these lines occur %d times in %s, not once (%s):\n%s", by, found, h.file, h.where, strings.Join(old, "\n"))
	}
	for _, line := range h.lines {
		switch line[0] {
		case '+':
			s.before[at] = append(s.before[at], line[1:])
			continue
		case '-':
			if other := s.removed[at]; other != "" {
				return fmt.Errorf("%s.patch and %s.patch remove the same line of %s: %s", by, other, h.file, line[1:])
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
