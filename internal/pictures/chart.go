package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// chart draws the hand-overs of the table in docs/comparison.md as bars.
func chart(page string) (string, error) {
	table, err := marked(page, "measured")
	if err != nil {
		return "", err
	}
	rows, err := figures(table)
	if err != nil {
		return "", err
	}
	most := 0.0
	for _, r := range rows {
		most = max(most, r.late)
	}
	c := canvas{title: "How long until a waiter in another process has the key"}
	c.text(20, 30, "h", c.title)
	c.text(20, 49, "s", "milliseconds from the call that gives the key back: median, and 90th percentile")
	y := 68.0
	for _, r := range rows {
		c.text(chartLeft-10, y+13, "b e", r.lock)
		c.text(chartLeft-10, y+28, "s e", r.server)
		colour := "soft"
		if r.lock == "mongolock" {
			colour = "blue"
		}
		for i, v := range []float64{r.median, r.late} {
			class := []string{colour, colour + "\" opacity=\"0.45"}[i]
			top := y + 2 + float64(i)*15
			c.add(`<rect x="%s" y="%s" width="%s" height="13" rx="2" class="%s"/>`, n(chartLeft), n(top), n(max(v/most*chartWidth, 1)), class)
			c.text(chartLeft+v/most*chartWidth+6, top+11, "s", fmt.Sprintf("%.1f", v))
		}
		c.alt += fmt.Sprintf("%s on %s: %.1f and %.1f. ", r.lock, r.server, r.median, r.late)
		y += 46
	}
	c.alt = strings.TrimSpace(c.alt)
	return c.svg(chartLeft+chartWidth+60, y+4), nil
}

const (
	chartLeft  = 310
	chartWidth = 440
)

// A figure is one row of the table: a lock, and its hand-overs in milliseconds.
type figure struct {
	lock, server string
	median, late float64
}

func figures(table string) (all []figure, err error) {
	for row := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(plain(row), "| "), " | ")
		if len(cells) < 5 || cells[0] == "lock" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		f := figure{lock: short(cells[0]), server: short(cells[1])}
		for i, to := range []*float64{&f.median, &f.late} {
			if *to, err = strconv.ParseFloat(strings.TrimSuffix(cells[3+i], " ms"), 64); err != nil {
				return nil, err
			}
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return nil, errors.New("the table has no figures")
	}
	return all, nil
}

// short leaves out what follows the first comma or colon, for which a chart has no room; but
// not how Redis was set up.
func short(s string) string {
	if i := strings.IndexAny(s, ",:"); i > 0 && !strings.HasPrefix(s, "Redis,") {
		return s[:i]
	}
	return s
}
