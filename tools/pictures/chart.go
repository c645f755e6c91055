package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A panel is a column of a chart: for each lock a group of bars on one scale.
type panel struct {
	title, below string
	bars         []bar
	unit         string // of the numbers in the picture's text
}

// A bar is one number of a cell in one of the tables of docs/internals/locks-measured.md.
type bar struct {
	table        string
	column, part int // of those after lock and server; and of a cell with several numbers
}

// charts are the plots of those tables, by the path of the picture.
var charts = map[string]struct {
	title  string // with the last panel's first bar of mongolock, and that of redislock
	panels []panel
}{
	"docs/pictures/comparison.svg": {"64 waiters of mongolock send %s requests a second, those of redislock %s", []panel{
		{"milliseconds from the release:", "median, and 95 of 100", []bar{{"waiters", 0, 0}, {"waiters", 0, 1}}, "ms"},
		{"requests a second", "with one holder and 64 waiters", []bar{{"idle", 0, 0}}, "requests a second"},
	}},
}

const (
	chartLeft  = 260
	chartRoom  = 560 // for all panels
	chartValue = 48  // for the number beside a bar
	chartTop   = 82.0
	chartBar   = 15.0
)

// chart draws one of them from the page.
func chart(page, path string) (string, error) {
	of := charts[path]
	tables := make(map[string][]figures)
	for _, p := range of.panels {
		for _, b := range p.bars {
			rows, err := tableOf(page, b.table)
			if err != nil {
				return "", err
			}
			tables[b.table] = rows
		}
	}
	rows := tables[of.panels[0].bars[0].table]
	bars := 2
	for _, p := range of.panels {
		bars = max(bars, len(p.bars))
	}
	rowTop := func(i int) float64 { return chartTop + float64(i)*(chartBar*float64(bars)+16) }
	last := of.panels[len(of.panels)-1].bars[0]
	said := make(map[string]string)
	for _, r := range rows {
		var err error
		if said[r.lock], err = valueOf(tables[last.table], r, last); err != nil {
			return "", err
		}
	}
	c := canvas{title: fmt.Sprintf(of.title, said["mongolock"], said["redislock"])}
	c.text(20, 30, "h", c.title)
	for i, r := range rows {
		y := rowTop(i)
		c.text(chartLeft-10, y+13, "b e", r.lock)
		c.text(chartLeft-10, y+28, "s e", r.server)
	}
	wide := float64(chartRoom) / float64(len(of.panels))
	for i, p := range of.panels {
		if err := c.panel(p, rows, tables, rowTop, chartLeft+float64(i)*wide, wide-chartValue-10); err != nil {
			return "", err
		}
	}
	c.alt = strings.TrimSpace(c.alt)
	return c.svg(chartLeft+chartRoom+10, rowTop(len(rows))+4), nil
}

func (c *canvas) panel(p panel, rows []figures, tables map[string][]figures, rowTop func(int) float64, left, wide float64) error {
	c.text(left, 53, "s", p.title)
	c.text(left, 68, "s", p.below)
	values, texts := make([][]float64, len(rows)), make([][]string, len(rows))
	most := 0.0
	for i, r := range rows {
		for _, b := range p.bars {
			text, err := valueOf(tables[b.table], r, b)
			if err != nil {
				return err
			}
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return err
			}
			values[i], texts[i] = append(values[i], v), append(texts[i], text)
			most = max(most, v)
		}
	}
	if most == 0 {
		return fmt.Errorf("%s: all figures are 0", p.title)
	}
	c.alt += p.title + ": "
	for i, r := range rows {
		colour := "soft"
		if r.lock == "mongolock" {
			colour = "blue"
		}
		for k, v := range values[i] {
			class := []string{colour, colour + "\" opacity=\"0.55", colour + "\" opacity=\"0.35"}[k]
			top := rowTop(i) + 2 + float64(k)*chartBar
			c.add(`<rect x="%s" y="%s" width="%s" height="%s" rx="2" class="%s"/>`, n(left), n(top), n(max(v/most*wide, 1)), n(chartBar-2), class)
			c.text(left+v/most*wide+6, top+chartBar-4, "s", texts[i][k])
		}
		c.alt += fmt.Sprintf("%s on %s %s %s. ", r.lock, r.server, strings.Join(texts[i], " and "), p.unit)
	}
	return nil
}

// figures is one row of a table: a lock on a server, and what its cells say.
type figures struct {
	name         string // in full: it is the same in every table
	lock, server string // short
	cells        []string
}

func tableOf(page, name string) (all []figures, err error) {
	text, err := marked(page, name)
	if err != nil {
		return nil, err
	}
	for row := range strings.SplitSeq(text, "\n") {
		cells := strings.Split(strings.Trim(plain(row), "| "), " | ")
		if len(cells) < 3 || cells[0] == "lock" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		all = append(all, figures{cells[0] + " on " + cells[1], short(cells[0]), serverName(short(cells[1])), cells[2:]})
	}
	if len(all) == 0 {
		return nil, errors.New("the table " + name + " has no figures")
	}
	return all, nil
}

// marked returns what stands between the two marks of a page.
func marked(page, mark string) (string, error) {
	_, rest, ok := strings.Cut(page, "<!-- "+mark+": begin -->")
	between, _, also := strings.Cut(rest, "<!-- "+mark+": end -->")
	if !ok || !also {
		return "", errors.New("the page has no marks of " + mark)
	}
	return between, nil
}

var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// plain takes Markdown's signs out of a text.
func plain(s string) string {
	return strings.NewReplacer("**", "", "`", "").Replace(markdownLink.ReplaceAllString(s, "$1"))
}

var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// valueOf returns the number that a table has of the lock that r is about.
func valueOf(table []figures, r figures, b bar) (string, error) {
	for _, f := range table {
		if f.name != r.name {
			continue
		}
		if b.column >= len(f.cells) {
			return "", fmt.Errorf("%s: the table %s has no column %d", r.name, b.table, b.column)
		}
		numbers := number.FindAllString(f.cells[b.column], -1)
		if b.part >= len(numbers) {
			return "", fmt.Errorf("%s: the table %s has no figure in %q", r.name, b.table, f.cells[b.column])
		}
		return numbers[b.part], nil
	}
	return "", fmt.Errorf("the table %s does not have %s", b.table, r.name)
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
