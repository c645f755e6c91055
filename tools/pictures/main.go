// Command pictures draws the pictures of the pages, each from a text in the repository: sequences from
// docs/pictures/*.txt, the chart from the tables in docs/internals/locks-measured.md, and the moving picture
// from docs/pictures/demo.cast.
//
//	go run ./tools/pictures draw              draws all of them
//	COMMAND | go run ./tools/pictures record FILE    records what a command prints, as an asciicast
//
// A test draws them again and compares, so no picture shows what its text does not say. Two pictures, of which
// there is one of a kind, are drawn by hand: lease.svg and trust.svg.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		all, err := pictures(".")
		for name, svg := range all {
			err = errors.Join(err, os.WriteFile(name, []byte(svg), 0o644)) //nolint:gosec // pages are public
		}
		fmt.Fprintf(os.Stdout, "%d pictures\n", len(all))
		return err
	case len(args) == 2 && args[0] == "record":
		return record(args[1], os.Stdin)
	}
	return errors.New("usage: pictures draw | COMMAND | pictures record FILE")
}

// A picture is drawn from a text.
type picture struct {
	from, to string
	draw     func(text string) (string, error)
}

// pictures returns every picture, by path.
func pictures(root string) (map[string]string, error) {
	which := []picture{{"docs/pictures/demo.cast", "docs/pictures/demo.svg", film}}
	for path := range charts {
		which = append(which, picture{"docs/internals/locks-measured.md", path, func(page string) (string, error) { return chart(page, path) }})
	}
	texts, err := filepath.Glob(filepath.Join(root, "docs/pictures/*.txt"))
	if err != nil {
		return nil, err
	}
	for _, path := range texts {
		name := "docs/pictures/" + filepath.Base(path)
		which = append(which, picture{name, strings.TrimSuffix(name, ".txt") + ".svg", sequence})
	}
	all := make(map[string]string)
	for _, p := range which {
		text, err := os.ReadFile(filepath.Join(root, p.from))
		if err != nil {
			return nil, err
		}
		if all[p.to], err = p.draw(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", p.from, err)
		}
	}
	return all, nil
}
