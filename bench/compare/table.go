package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/version"
)

type durations []time.Duration

// quantile returns the smallest value that so large a part of all values does not exceed.
func (d durations) quantile(q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[max(0, int(math.Ceil(q*float64(len(d))))-1)]
}

// tails is the cell of a median and of what 5 and 1 in 100 exceed.
func (d durations) tails() string {
	return fmt.Sprintf("%s · %s · %s ms", ms(d.quantile(0.5)), ms(d.quantile(0.95)), ms(d.quantile(0.99)))
}

// ms is for readers: a hundredth matters of little, and a tenth of much does not.
func ms(d time.Duration) string {
	switch x := d.Seconds() * 1000; {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}

func rate(x float64) string {
	if x >= 10 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func head(b *strings.Builder, columns ...string) {
	fmt.Fprintf(b, "| lock | server | %s |\n|---|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---:|", len(columns)))
}

func row(b *strings.Builder, r *rival, cells ...string) {
	fmt.Fprintf(b, "| %s | %s | %s |\n", r.name, r.server, strings.Join(cells, " | "))
}

func pairTable(all []*rival) string {
	var b strings.Builder
	head(&b, "a free key, acquired and released: median · 95 · 99 %")
	for _, r := range all {
		row(&b, r, r.pair[0].tails())
	}
	fmt.Fprintf(&b, "\n%d pairs each.", len(all[0].pair[0]))
	b.WriteString(ahead(all, "%s ms for a free pair", func(r *rival) float64 { return r.pair[0].quantile(0.5).Seconds() }, seconds))
	return b.String()
}

func waitersTable(all []*rival) string {
	var b strings.Builder
	head(&b, "1 waiter: median · 95 · 99 %", "8 waiters", "64 waiters")
	for _, r := range all {
		row(&b, r, r.handOver[0].tails(), r.handOver[1].tails(), r.handOver[2].tails())
	}
	first := all[0].handOver
	fmt.Fprintf(&b, "\n%d, %d and %d hand-overs each.", len(first[0]), len(first[1]), len(first[2]))
	for i, c := range crowds {
		what := fmt.Sprintf("%%s ms, handed to one of %d", c.waiters)
		b.WriteString(ahead(all, what, func(r *rival) float64 { return r.handOver[i].quantile(0.5).Seconds() }, seconds))
	}
	return b.String()
}

func contendedTable(all []*rival) string {
	var b strings.Builder
	head(&b, "grants a second", "Jain's index", "wait for a grant: median · 95 · 99 %", "longest")
	for _, r := range all {
		c := r.contended
		row(&b, r, rate(middle(c.rates)), fmt.Sprintf("%.2f", middle(c.fairness)), c.waits.tails(), ms(c.waits.quantile(1))+" ms")
	}
	fmt.Fprintf(&b, "\n%d processes for %v, %d time(s); grants and index are the median of these.", contendProcesses, contendLasts, len(all[0].contended.rates))
	b.WriteString(ahead(all, "%s grants a second", func(r *rival) float64 { return -middle(r.contended.rates) }, func(x float64) string { return rate(-x) }))
	return b.String()
}

func networkTable(all []*rival) string {
	var b strings.Builder
	head(&b, "a free pair: +1 ms", "+10 ms", "handed to 1 waiter: +1 ms", "+10 ms")
	for _, r := range all {
		row(&b, r, r.pair[1].median(), r.pair[2].median(), r.far[1].median(), r.far[2].median())
	}
	fmt.Fprintf(&b, "\nMedians of %d pairs and %d hand-overs each.", len(all[0].pair[1]), len(all[0].far[1]))
	b.WriteString(ahead(all, "%s ms, a pair with 10 ms between", func(r *rival) float64 { return r.pair[2].quantile(0.5).Seconds() }, seconds))
	b.WriteString(ahead(all, "%s ms, handed on with 10 ms between", func(r *rival) float64 { return r.far[2].quantile(0.5).Seconds() }, seconds))
	return b.String()
}

func crashTable(all []*rival) string {
	var b strings.Builder
	head(&b, "from the kill to the next grant: median", "shortest", "longest")
	for _, r := range all {
		row(&b, r, inSeconds(r.crash.quantile(0.5)), inSeconds(r.crash.quantile(0)), inSeconds(r.crash.quantile(1)))
	}
	fmt.Fprintf(&b, "\n%d keys each, with a TTL of %v.", len(all[0].crash), crashTTL)
	b.WriteString(ahead(all, "%s after a crash", func(r *rival) float64 { return r.crash.quantile(0.5).Seconds() }, func(x float64) string { return fmt.Sprintf("%.1f s", x) }))
	return b.String()
}

func (d durations) median() string { return ms(d.quantile(0.5)) + " ms" }

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func seconds(x float64) string { return ms(time.Duration(x * float64(time.Second))) }

func middle(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// ahead names those whose figure is lower than the first one's, which is ours, by more than
// a twentieth.
func ahead(all []*rival, what string, figure func(*rival) float64, format func(float64) string) string {
	var names []string
	ours := figure(all[0])
	for _, r := range all[1:] {
		if theirs := figure(r); theirs < ours-math.Abs(ours)/20 {
			names = append(names, fmt.Sprintf("%s on %s (%s)", shortened(r.name), shortened(r.server), format(figure(r))))
		}
	}
	what = fmt.Sprintf(what, format(ours))
	if len(names) == 0 {
		return fmt.Sprintf("\nNobody is ahead of mongolock's %s by more than 5 %%.\n", what)
	}
	return fmt.Sprintf("\n**Ahead of mongolock's %s by more than 5 %%:** %s.\n", what, strings.Join(names, "; "))
}

func shortened(s string) string {
	if strings.HasPrefix(s, "Redis,") {
		return s
	}
	s, _, _ = strings.Cut(s, ":")
	s, _, _ = strings.Cut(s, ",")
	return s
}

// serverOf names the server of a contender that is not Redis.
func serverOf(c contender) string {
	if c.short == "etcd" {
		return "etcd " + version.Version + ", one member"
	}
	return cmp.Or(os.Getenv("MONGOLOCK_KIND"), "uri") + journalled
}

// machine says where the figures were taken, and what else the machine was doing.
func machine(rounds int, before float64) string {
	busy := ""
	if before > float64(runtime.NumCPU())*3/4 {
		busy = " **The machine was busy with other work; take them as a sketch.**"
	}
	return fmt.Sprintf("Taken in %d round(s) on %d cores, %s/%s, %s, everything on one machine, which had a load average of %.1f before.%s\n",
		rounds, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), before, busy)
}

// load returns the load average of the last minute; 0 where the system does not tell.
func load() (x float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	_, _ = fmt.Sscan(string(text), &x)
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
