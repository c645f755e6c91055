package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// chart draws the tables of docs/comparison.md as bars: the hand-overs, and beside them the
// requests of those that wait.
func chart(page string) (string, error) {
	table, err := marked(page, "measured")
	if err != nil {
		return "", err
	}
	idle, err := marked(page, "idle")
	if err != nil {
		return "", err
	}
	rows, err := figures(table, idle)
	if err != nil {
		return "", err
	}
	most, mostAsked := 0.0, 0.0
	for _, r := range rows {
		most, mostAsked = max(most, r.late), max(mostAsked, r.asked)
	}
	c := canvas{title: "How soon a waiter has the key, and what waiting costs"}
	c.text(20, 30, "h", c.title)
	c.text(chartLeft, 53, "s", "milliseconds from the release:")
	c.text(chartLeft, 68, "s", "median, and 90th percentile")
	c.text(idleLeft, 53, "s", "requests a second")
	c.text(idleLeft, 68, "s", "while one holds, one waits")
	y := 82.0
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
		c.add(`<rect x="%s" y="%s" width="%s" height="13" rx="2" class="%s"/>`, n(idleLeft), n(y+2), n(max(r.asked/mostAsked*idleWidth, 1)), colour)
		c.text(idleLeft+r.asked/mostAsked*idleWidth+6, y+13, "s", fmt.Sprintf("%.2f", r.asked))
		c.alt += fmt.Sprintf("%s on %s: %.1f and %.1f ms, %.2f requests a second. ", r.lock, r.server, r.median, r.late, r.asked)
		y += 46
	}
	c.alt = strings.TrimSpace(c.alt)
	return c.svg(idleLeft+idleWidth+50, y+4), nil
}

const (
	chartLeft  = 260
	chartWidth = 250
	idleLeft   = chartLeft + chartWidth + 70
	idleWidth  = 150
)

// A figure is one row of each table: a lock, its hand-overs in milliseconds, and what it
// asks its server in a second of waiting.
type figure struct {
	lock, server        string
	median, late, asked float64
}

func figures(table, idle string) (all []figure, err error) {
	asked := make(map[string]float64)
	for row := range strings.SplitSeq(idle, "\n") {
		cells := strings.Split(strings.Trim(plain(row), "| "), " | ")
		if len(cells) != 3 || cells[0] == "lock" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		if asked[cells[0]+"|"+cells[1]], err = strconv.ParseFloat(cells[2], 64); err != nil {
			return nil, err
		}
	}
	for row := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(plain(row), "| "), " | ")
		if len(cells) < 5 || cells[0] == "lock" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		f := figure{lock: short(cells[0]), server: serverName(short(cells[1]))}
		for i, to := range []*float64{&f.median, &f.late} {
			if *to, err = strconv.ParseFloat(strings.TrimSuffix(cells[3+i], " ms"), 64); err != nil {
				return nil, err
			}
		}
		var known bool
		if f.asked, known = asked[cells[0]+"|"+cells[1]]; !known {
			return nil, fmt.Errorf("nothing says what %s on %s asks while it waits", f.lock, f.server)
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

// serverNames are the names of the servers that devmongo's kinds stand for.
var serverNames = map[string]string{"secantus": "SecantusDB", "ferretdb": "FerretDB", "mongod": "MongoDB", "uri": "MongoDB"}

func serverName(s string) string { return cmp.Or(serverNames[s], s) }
