package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"time"
)

func tableOf(answers []*answer) string {
	var b strings.Builder
	b.WriteString("| lock | server | a free key, acquired and released: median | handed to another process that waits: median | the same: 90th percentile |\n|---|---|---|---|---|\n")
	for _, a := range answers {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", a.name, a.server,
			ms(quantile(a.pair, 0.5)), ms(quantile(a.handOver, 0.5)), ms(quantile(a.handOver, 0.9)))
	}
	fmt.Fprintf(&b, "\n%d pairs and %d hand-overs each, in %d rounds, on %d cores, %s/%s, %s, everything on one machine.\n",
		rounds*pairs, rounds*handOvers, rounds, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	return b.String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }

// putTable puts the table between the markers of that name in a page.
func putTable(file, name, table string) error {
	tableBegins, tableEnds := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->\n"
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begins := bytes.Cut(page, []byte(tableBegins))
	_, after, ends := bytes.Cut(rest, []byte(tableEnds))
	if !begins || !ends {
		return fmt.Errorf("%s: the markers of the table are missing", file)
	}
	page = fmt.Appendf(nil, "%s%s%s%s%s", before, tableBegins, table, tableEnds, after)
	return os.WriteFile(file, page, 0o600)
}

func jitter(d time.Duration) time.Duration { return rand.N(d) }
