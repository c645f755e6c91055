// Command pictures draws the pictures of the pages, each from a text in the repository:
// diagrams from docs/pictures/*.txt, the decision tree from the README's list, the charts
// from the tables in docs/comparison.md, and the moving picture from docs/pictures/demo.cast.
//
//	go run ./tools/pictures draw                    draws all of them
//	go run ./tools/pictures record FILE -- CMD…     records what a command prints, as an asciicast
//
// A test draws them again and compares, so no picture shows what its text does not say.
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "draw":
		return drawAll(".")
	case len(args) > 3 && args[0] == "record" && args[2] == "--":
		return record(args[1], args[3:])
	}
	return errors.New("usage: pictures draw | pictures record FILE -- COMMAND…")
}

// drawAll draws every picture of the repository at root.
func drawAll(root string) error {
	all, err := pictures(root)
	if err != nil {
		return err
	}
	for name, svg := range all {
		if err := os.WriteFile(filepath.Join(root, name), []byte(svg), 0o644); err != nil { //nolint:gosec // pages are public
			return err
		}
	}
	fmt.Fprintf(os.Stdout, "%d pictures\n", len(all))
	return nil
}

// pictures returns every picture, by path.
func pictures(root string) (map[string]string, error) {
	sources := map[string]func(string) (string, error){
		"docs/pictures/demo.cast": film,
		"README.md":               tree,
	}
	targets := map[string]string{
		"docs/pictures/demo.cast": "docs/pictures/demo.svg",
		"README.md":               "docs/pictures/choosing.svg",
	}
	texts, err := filepath.Glob(filepath.Join(root, "docs/pictures/*.txt"))
	if err != nil {
		return nil, err
	}
	for _, path := range texts {
		name := "docs/pictures/" + filepath.Base(path)
		sources[name], targets[name] = diagram, strings.TrimSuffix(name, ".txt")+".svg"
	}
	all := make(map[string]string)
	for _, source := range slices.Sorted(maps.Keys(sources)) {
		text, err := os.ReadFile(filepath.Join(root, source))
		if err != nil {
			return nil, err
		}
		svg, err := sources[source](string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		all[targets[source]] = svg
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/comparison.md"))
	if err != nil {
		return nil, err
	}
	for path := range charts {
		if all[path], err = chart(string(page), path); err != nil {
			return nil, fmt.Errorf("docs/comparison.md: %w", err)
		}
	}
	return all, nil
}

// diagram draws a text of docs/pictures by the kind that its first line names.
func diagram(text string) (string, error) {
	kind, rest, _ := strings.Cut(text, "\n")
	kinds := map[string]func(lines []line) (string, error){"sequence": sequence, "timeline": timeline, "states": states}
	draw, ok := kinds[strings.TrimSpace(kind)]
	if !ok {
		return "", fmt.Errorf("the first line must name a kind, not %q", kind)
	}
	return draw(statements(rest))
}

// A line is one statement of a diagram: "head: text".
type line struct {
	number     int
	head, text string
	words      []string // of the head
}

func (l line) wrong() error { return fmt.Errorf("line %d: no such statement: %q", l.number, l.head) }

// statements splits a text. Empty lines and lines that begin with # are left out.
func statements(text string) (all []line) {
	for i, s := range strings.Split(text, "\n") {
		s = strings.TrimSpace(s)
		if s == "" || s[0] == '#' {
			continue
		}
		head, rest, _ := strings.Cut(s, ":")
		all = append(all, line{i + 2, head, strings.TrimSpace(rest), strings.Fields(head)})
	}
	return all
}
