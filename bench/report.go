package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
)

// A figure is one line of the table: a measurement and its target.
type figure struct {
	name     string
	measured float64
	form     string // of the number, "%.2f ×"
	target   float64
	bound    bound
	than     string // what it is compared with, or how it was counted
}

type bound int

const (
	noTarget bound = iota
	atMost
	atLeast
)

func (f figure) value() string { return fmt.Sprintf(f.form, f.measured) }

func (f figure) wanted() string {
	return [...]string{"", "≤ ", "≥ "}[f.bound] + map[bool]string{false: fmt.Sprintf(f.form, f.target)}[f.bound == noTarget]
}

func (f figure) verdict() string {
	switch {
	case f.bound == noTarget:
		return ""
	case f.bound == atMost && f.measured > f.target, f.bound == atLeast && f.measured < f.target:
		return "missed"
	}
	return "met"
}

// together merges the figures of several rounds: each becomes the median, with the range
// beside it.
func together(rounds [][]figure) []figure {
	if len(rounds) < 2 {
		return slices.Concat(rounds...)
	}
	all := slices.Clone(rounds[0])
	for i := range all {
		f, values := &all[i], make([]float64, len(rounds))
		for r, figures := range rounds {
			values[r] = figures[i].measured
		}
		f.measured = median(values)
		low, high := *f, *f
		low.measured, high.measured = slices.Min(values), slices.Max(values)
		if low.value() != high.value() {
			f.than += fmt.Sprintf("; %d rounds: %s to %s", len(rounds), low.value(), high.value())
		}
	}
	return all
}

// show prints the table for a terminal.
func show(w io.Writer, all []figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIGURE\tMEASURED\tTARGET\t\tAGAINST")
	for _, f := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", f.name, f.value(), f.wanted(), f.verdict(), f.than)
	}
	return t.Flush()
}

// markdown formats a table for a page, with the machine below it.
func markdown(all []figure, machine string) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "\n| figure | measured | target | against |")
	fmt.Fprintln(&b, "|---|---:|---:|---|")
	for _, f := range all {
		target := f.wanted()
		if f.verdict() == "missed" {
			target += ", **missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.name, f.value(), target, f.than)
	}
	fmt.Fprintf(&b, "\n%s\n\n", machine)
	return b.Bytes()
}

const (
	tableBegins = "<!-- written by `make bench` -->\n"
	tableEnds   = "<!-- end -->\n"
)

// writePage puts a table between the markers of a page.
func writePage(path string, table []byte) error {
	page, err := os.ReadFile(path)
	if err == nil {
		page, err = between(page, table)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, page, 0o644)
}

func between(page, table []byte) ([]byte, error) {
	head, rest, begun := bytes.Cut(page, []byte(tableBegins))
	_, tail, ended := bytes.Cut(rest, []byte(tableEnds))
	if !begun || !ended {
		return nil, fmt.Errorf("the markers %q and %q are not in it", tableBegins, tableEnds)
	}
	return slices.Concat(head, []byte(tableBegins), table, []byte(tableEnds), tail), nil
}
