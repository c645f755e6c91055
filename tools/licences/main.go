// Command licences writes docs/internals/dependencies.md: which modules a program compiles that imports or installs a
// released module of this repository, and under which licences.
//
//	go run ./tools/licences
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const page = "docs/internals/dependencies.md"

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	all, err := released(root)
	if err != nil {
		return err
	}
	var s strings.Builder
	s.WriteString(head)
	for _, m := range all {
		section, err := sectionOf(root, m)
		if err != nil {
			return err
		}
		s.WriteString(section)
	}
	return os.WriteFile(filepath.Join(root, page), []byte(s.String()), 0o644) //nolint:gosec // a page of the repository
}

const head = `# Dependencies

What a program compiles beside the standard library, for each module that is released. ` + "`make licences`" + ` writes this page.
What only tests use is not on it.
`

// released returns the folders of the modules that are released, the root's first.
func released(root string) (all []string, err error) {
	all = []string{"."}
	for _, in := range []string{"adapters/*/go.mod", "cmd/*/go.mod"} {
		files, err := filepath.Glob(filepath.Join(root, in))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			dir, err := filepath.Rel(root, filepath.Dir(f))
			if err != nil {
				return nil, err
			}
			all = append(all, filepath.ToSlash(dir))
		}
	}
	return all, nil
}

const own = "github.com/mongolock/mongolock"

// sectionOf returns what the page says of a module.
func sectionOf(root, dir string) (string, error) {
	in := func(args ...string) (string, error) {
		cmd := exec.Command("go", append([]string{"list"}, args...)...)
		cmd.Dir, cmd.Env = filepath.Join(root, dir), append(os.Environ(), "GOOS=linux", "GOARCH=amd64") // the same page everywhere
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("%s: %w: %s", dir, err, exit.Stderr)
		}
		return string(out), err
	}
	list, err := in("./...")
	if err != nil {
		return "", err
	}
	packages := slices.DeleteFunc(strings.Fields(list), func(p string) bool {
		return strings.Contains(p, "/internal/test/") || strings.HasPrefix(p, own+"/tools/")
	})
	out, err := in(append([]string{"-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}"}, packages...)...)
	if err != nil {
		return "", err
	}
	modules := make(map[string][]string)
	for line := range strings.Lines(out) {
		m := strings.Split(strings.TrimSpace(line), "\t")
		if len(m) == 3 && m[0] != own && !strings.HasPrefix(m[0], own+"/") {
			modules[m[0]] = m[1:]
		}
	}
	name := strings.TrimSuffix(own+"/"+dir, "/.")
	s := "\n## " + name + "\n\n"
	if len(modules) == 0 {
		return s + "None.\n", nil
	}
	s += "| module | version | licence |\n|---|---|---|\n"
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		licence, err := licenceIn(modules[path][1])
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		s += fmt.Sprintf("| %s | %s | %s |\n", path, modules[path][0], licence)
	}
	return s, nil
}

// marks are words that only one licence has. The first that is found decides.
var marks = []struct{ words, licence string }{
	{"Apache License Version 2.0", "Apache-2.0"},
	{"Mozilla Public License Version 2.0", "MPL-2.0"},
	{"Mozilla Public License, version 2.0", "MPL-2.0"},
	{"GNU LESSER GENERAL PUBLIC LICENSE", "LGPL"},
	{"GNU GENERAL PUBLIC LICENSE", "GPL"},
	{"Permission is hereby granted, free of charge, to any person obtaining a copy", "MIT"},
	{"Permission to use, copy, modify, and/or distribute this software", "ISC"},
	{"Permission to use, copy, modify, and distribute this software", "ISC"},
	{"Neither the name of", "BSD-3-Clause"},
	{"may not be used to endorse or promote products", "BSD-3-Clause"},
	{"Redistributions in binary form must reproduce", "BSD-2-Clause"},
	{"This is free and unencumbered software", "Unlicense"},
	{"CC0 1.0 Universal", "CC0-1.0"},
}

// licenceIn names the licence of the module in a folder. One that it does not know is an error.
func licenceIn(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		words := strings.ToLower(strings.Join(strings.Fields(string(text)), " "))
		for _, m := range marks {
			if strings.Contains(words, strings.ToLower(m.words)) {
				return m.licence, nil
			}
		}
	}
	return "", errors.New("no licence that this program knows")
}
