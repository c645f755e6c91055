package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
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

func (d durations) seconds() float64 { return d.quantile(0.5).Seconds() }

// tails is the cell of a median and of what 5 and 1 in 100 exceed.
func (d durations) tails() string {
	return fmt.Sprintf("%s · %s · %s ms", ms(d.quantile(0.5)), ms(d.quantile(0.95)), ms(d.quantile(0.99)))
}

func (d durations) median() string { return ms(d.quantile(0.5)) + " ms" }

// ms is for readers: a hundredth matters of little, and a tenth of much does not.
func ms(d time.Duration) string {
	x := d.Seconds() * 1000
	return fmt.Sprintf("%.*f", map[bool]int{true: 1}[x >= 10 && x < 100]+map[bool]int{true: 2}[x < 10], x)
}

func inMS(x float64) string { return ms(time.Duration(x * float64(time.Second))) }

func inSeconds(x float64) string { return fmt.Sprintf("%.1f s", x) }

func rate(x float64) string { return fmt.Sprintf("%.*f", map[bool]int{true: 2}[x < 10], x) }

func middle(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// A table has a row for each rival, a line about how it was taken, and says who is ahead.
type table struct {
	columns []string
	cells   func(r *rival) []string
	taken   func(first *rival) string
	ahead   []lead
}

// A lead is a figure of which less is better, and how to write it.
type lead struct {
	what   string
	figure func(r *rival) float64
	format func(float64) string
}

var pairTable = table{
	[]string{"a free key, acquired and released: median · 95 · 99 %"},
	func(r *rival) []string { return []string{r.pair[0].tails()} },
	func(r *rival) string { return fmt.Sprintf("%d pairs each.", len(r.pair[0])) },
	[]lead{{"%s ms for a free pair", func(r *rival) float64 { return r.pair[0].seconds() }, inMS}},
}

var waitersTable = table{
	[]string{"1 waiter: median · 95 · 99 %", "8 waiters", "64 waiters"},
	func(r *rival) []string {
		return []string{r.handOver[0].tails(), r.handOver[1].tails(), r.handOver[2].tails()}
	},
	func(r *rival) string {
		return fmt.Sprintf("%d, %d and %d handoffs each.", len(r.handOver[0]), len(r.handOver[1]), len(r.handOver[2]))
	},
	[]lead{handedTo(0), handedTo(1), handedTo(2)},
}

func handedTo(i int) lead {
	return lead{fmt.Sprintf("%%s ms, handed to one of %d", crowds[i].waiters), func(r *rival) float64 { return r.handOver[i].seconds() }, inMS}
}

var contendedTable = table{
	[]string{"grants a second: 2 processes", "8", "32", "requests a grant: 2", "8", "32", "Jain's index of 32", "longest wait of 32"},
	func(r *rival) (cells []string) {
		for _, c := range r.contended {
			cells = append(cells, rate(middle(c.rates)))
		}
		for _, c := range r.contended {
			cells = append(cells, fmt.Sprintf("%.1f", middle(c.asked)))
		}
		last := r.contended[len(r.contended)-1]
		return append(cells, fmt.Sprintf("%.2f", middle(last.fairness)), ms(last.waits.quantile(1))+" ms")
	},
	func(r *rival) string {
		return fmt.Sprintf("All want one key without a pause, for %v, %d time(s); medians of these.", contendLasts, len(r.contended[0].rates))
	},
	[]lead{
		{"%s grants a second of 2 processes", func(r *rival) float64 { return -middle(r.contended[0].rates) }, func(x float64) string { return rate(-x) }},
		{"%s grants a second of 32 processes", func(r *rival) float64 { return -middle(r.contended[2].rates) }, func(x float64) string { return rate(-x) }},
		{"%s requests a grant of 32 processes", func(r *rival) float64 { return middle(r.contended[2].asked) }, rate},
	},
}

var networkTable = table{
	[]string{"a free pair: +1 ms", "+10 ms", "handed to 1 waiter: +1 ms", "+10 ms"},
	func(r *rival) []string {
		return []string{r.pair[1].median(), r.pair[2].median(), r.far[1].median(), r.far[2].median()}
	},
	func(r *rival) string {
		return fmt.Sprintf("Medians of %d pairs and %d handoffs each.", len(r.pair[1]), len(r.far[1]))
	},
	[]lead{
		{"%s ms, a pair with 10 ms between", func(r *rival) float64 { return r.pair[2].seconds() }, inMS},
		{"%s ms, handed on with 10 ms between", func(r *rival) float64 { return r.far[2].seconds() }, inMS},
	},
}

var crashTable = table{
	[]string{"from the kill to the next grant: median", "shortest", "longest"},
	func(r *rival) []string {
		return []string{inSeconds(r.crash.seconds()), inSeconds(r.crash.quantile(0).Seconds()), inSeconds(r.crash.quantile(1).Seconds())}
	},
	func(r *rival) string { return fmt.Sprintf("%d keys each, with a TTL of %v.", len(r.crash), crashTTL) },
	[]lead{{"%s after a crash", func(r *rival) float64 { return r.crash.seconds() }, inSeconds}},
}

var idleTable = table{
	[]string{"requests a second of a holder and 64 waiters in 8 processes"},
	func(r *rival) []string { return []string{rate(r.idle)} },
	func(*rival) string {
		return fmt.Sprintf("Counted for %v, those that ask again and again for %v.", idleWoken, idlePolled)
	},
	[]lead{{"%s requests a second", func(r *rival) float64 { return r.idle }, rate}},
}

// summary is the table of the users' page: one number of each kind.
func summary(all []*rival) string {
	var b strings.Builder
	columns := []string{
		"lock", "server", "free key, ms", "handed to 1 waiter, ms", "one of 64, ms",
		"requests a second of 64 waiters", "grants a second of 8 processes", "Jain's index",
	}
	fmt.Fprintf(&b, "| %s |\n|---|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---:|", len(columns)-2))
	for _, r := range all {
		server, _, _ := strings.Cut(r.server, ",")
		switch {
		case strings.HasPrefix(r.server, "secantus"):
			server = "SecantusDB"
		case strings.HasPrefix(r.server, "Redis, "):
			server = "Redis, durable"
		default:
			server = shortened(server)
		}
		cells := []string{
			shortened(r.name), server, inMS(r.pair[0].seconds()), inMS(r.handOver[0].seconds()), inMS(r.handOver[2].seconds()),
			rate(r.idle), rate(middle(r.contended[1].rates)), fmt.Sprintf("%.2f", middle(r.contended[1].fairness)),
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

func (t table) draw(all []*rival) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| lock | server | %s |\n|---|---|%s\n", strings.Join(t.columns, " | "), strings.Repeat("---:|", len(t.columns)))
	for _, r := range all {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.name, r.server, strings.Join(t.cells(r), " | "))
	}
	b.WriteString("\n" + t.taken(all[0]))
	for _, l := range t.ahead {
		b.WriteString(l.say(all))
	}
	return b.String()
}

// say names those whose figure is lower than the first one's, which is ours, by more than
// a twentieth.
func (l lead) say(all []*rival) string {
	var names []string
	ours := l.figure(all[0])
	for _, r := range all[1:] {
		if theirs := l.figure(r); theirs < ours-math.Abs(ours)/20 {
			names = append(names, fmt.Sprintf("%s on %s (%s)", shortened(r.name), shortened(r.server), l.format(theirs)))
		}
	}
	what := fmt.Sprintf(l.what, l.format(ours))
	if len(names) == 0 {
		return fmt.Sprintf("\nNobody is ahead of mongolock's %s by more than 5 %%.\n", what)
	}
	return fmt.Sprintf("\n**Ahead of mongolock's %s by more than 5 %%:** %s.\n", what, strings.Join(names, "; "))
}

func shortened(s string) string {
	if i := strings.IndexAny(s, ":,"); i > 0 && !strings.HasPrefix(s, "Redis,") {
		return s[:i]
	}
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
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &x)
	}
	return x
}

// everyPage is the page with every table, beside the users' page, which has the summary.
const everyPage = "internals/locks-measured.md"

// putPages writes the users' page and the one with every table.
func putPages(file string, tables map[string]string, all []*rival) error {
	about := map[string]string{"machine": tables["machine"], "summary": summary(all)}
	return errors.Join(putTables(file, about), putTables(filepath.Join(filepath.Dir(file), everyPage), tables))
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
