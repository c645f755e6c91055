package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
)

const (
	tableBegins = "<!-- written by `make bench` -->\n"
	tableEnds   = "<!-- end -->\n"
)

// show prints the table for a terminal.
func show(w io.Writer, all []figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIGURE\tMEASURED\tTARGET\t\tAGAINST")
	for _, f := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", f.name, f.value(), f.wanted(), f.verdict(), f.than)
	}
	return t.Flush()
}

// markdown formats the table for the page, with the machine below it.
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

// writePage puts a table between the markers of a page.
func writePage(path string, table []byte) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page, err = between(page, table)
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
	return bytes.Join([][]byte{head, []byte(tableBegins), table, []byte(tableEnds), tail}, nil), nil
}

// machine describes what the figures were taken on, without naming the host.
func (l *lab) machine(ctx context.Context) string {
	load := "unknown"
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(text), " ")
	}
	return fmt.Sprintf("Taken on %s, %d cores, %s/%s, %s, with a load average of %s; server: %s %s, on this machine, as `devmongo` starts it.",
		processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), load, l.server.Kind(), l.version(ctx))
}

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "an unnamed processor"
}
