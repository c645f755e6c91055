package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// A figure is the same thing measured again and again.
type figure []float64

// median is the lower of the two in the middle, of an even number.
func (f figure) median() float64 {
	if len(f) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(f))[(len(f)-1)/2]
}

// ms is for readers: a hundredth matters of little, and a tenth of much does not.
func (f figure) ms() string {
	ms := f.median() * 1000
	return fmt.Sprintf("%.*f", map[bool]int{true: 1}[ms >= 10 && ms < 100]+map[bool]int{true: 2}[ms < 10], ms)
}

func rate(x float64) string { return fmt.Sprintf("%.*f", map[bool]int{true: 2}[x < 10], x) }

// summary is the table of the page: one number of each kind.
func summary(all []*rival) string {
	var b strings.Builder
	columns := []string{
		"lock", "server", "free key, ms", "handed to 1 waiter, ms", "one of 64, ms",
		"requests a second of 64 waiters", "grants a second of 8 processes", "Jain's index",
	}
	fmt.Fprintf(&b, "| %s |\n|---|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---:|", len(columns)-2))
	for _, r := range all {
		cells := []string{
			r.name, r.server, r.pair.ms(), r.handOver[0].ms(), r.handOver[1].ms(),
			rate(r.idle), rate(r.grants.median()), fmt.Sprintf("%.2f", r.fairness.median()),
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

// machine says where the figures were taken, and what else the machine was doing.
func machine(rounds int, before float64) string {
	return fmt.Sprintf("Taken in %d round(s) on %d cores, %s/%s, %s, everything on one machine, which had a load average of %.1f before.\n",
		rounds, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), before)
}

// load returns the load average of the last minute; 0 where the system does not tell.
func load() (x float64) {
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &x)
	}
	return x
}

// putTables puts each table between the markers of its name in a page.
func putTables(file string, tables map[string]string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for name, table := range tables {
		begins, ends := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->\n"
		before, rest, ok := bytes.Cut(page, []byte(begins))
		_, after, closed := bytes.Cut(rest, []byte(ends))
		if !ok || !closed {
			return fmt.Errorf("%s: the markers of %s are missing", file, name)
		}
		page = fmt.Appendf(nil, "%s%s%s%s%s", before, begins, table, ends, after)
	}
	return os.WriteFile(file, page, 0o600)
}
