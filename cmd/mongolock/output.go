package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// A printer writes what a command found: rows as a table on a terminal, as lines with tabs
// elsewhere, or one JSON object for each row.
type printer struct {
	w      io.Writer
	asJSON bool
	tty    bool
	colour bool
	width  int

	heading []string
	some    bool     // at least one row has come
	none    func()   // says at the end that no row has come
	rows    [][]cell // those of the part of a table that is not written yet
	widths  []int    // of the columns so far
}

// partRows is how many rows of a table are laid out at a time: a list of a million keys is not
// kept in memory. A part's columns are as wide as those before it, or wider.
const partRows = 1000

// A cell is one field of a row.
type cell struct {
	text string
	tone tone
}

type tone string

const (
	plain  tone = ""
	green  tone = "\x1b[32m"
	yellow tone = "\x1b[33m"
	red    tone = "\x1b[31m"
	dim    tone = "\x1b[2m"
	bold   tone = "\x1b[1m"
	reset       = "\x1b[0m"
)

func (a *app) printer(heading ...string) *printer {
	p := &printer{w: a.stdout, asJSON: a.Output == "json", heading: heading}
	if f, ok := a.stdout.(*os.File); ok && !p.asJSON && term.IsTerminal(int(f.Fd())) {
		p.tty = os.Getenv("TERM") != "dumb"
		p.width, _, _ = term.GetSize(int(f.Fd()))
		p.colour = p.tty && os.Getenv("NO_COLOR") == ""
	}
	return p
}

// row takes one row: the cells to show, and the object to encode.
func (p *printer) row(object any, cells ...cell) error {
	p.some = true
	switch {
	case p.asJSON:
		return p.encode(object)
	case p.tty:
		if p.rows = append(p.rows, cells); len(p.rows) == partRows {
			return p.flush()
		}
		return nil
	}
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = c.text
	}
	_, err := fmt.Fprintln(p.w, strings.Join(texts, "\t"))
	return err
}

func (p *printer) encode(object any) error {
	e := json.NewEncoder(p.w)
	e.SetEscapeHTML(false)
	return e.Encode(object)
}

// flush writes the table, or the rest of it.
func (p *printer) flush() error {
	if !p.some && p.none != nil {
		p.none()
	}
	if len(p.rows) == 0 {
		return nil
	}
	_, err := io.WriteString(p.w, strings.Join(p.table(), "\n")+"\n")
	p.rows, p.heading = p.rows[:0], nil
	return err
}

// table lays the rows out under their heading.
func (p *printer) table() []string {
	var all [][]cell
	if len(p.heading) > 0 {
		head := make([]cell, len(p.heading))
		for i, h := range p.heading {
			head[i] = cell{strings.ToUpper(h), dim}
		}
		all = append(all, head)
	}
	all = append(all, p.rows...)
	for _, row := range all {
		for i, c := range row {
			if i == len(p.widths) {
				p.widths = append(p.widths, 0)
			}
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(c.text))
		}
	}
	widths := p.widths
	lines := make([]string, 0, len(all))
	for _, row := range all {
		var b strings.Builder
		room := p.width
		for i, c := range row {
			text := c.text
			if p.width > 0 && utf8.RuneCountInString(text) > room {
				text = string([]rune(text)[:max(0, room-1)]) + "…"
			}
			length := utf8.RuneCountInString(text)
			if p.colour && c.tone != plain && text != "" {
				text = string(c.tone) + text + reset
			}
			b.WriteString(text)
			if i == len(row)-1 || p.width > 0 && room-widths[i]-2 <= 1 {
				break
			}
			b.WriteString(strings.Repeat(" ", widths[i]-length+2))
			room -= widths[i] + 2
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// shown returns a text of others in a form that is safe to show: characters that could steer a
// terminal are quoted, and so are those that would break a line.
func shown(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(text) {
		return strconv.Quote(text)
	}
	return text
}

// span formats a duration for people.
func span(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%s%dd%dh", sign, int(d/(24*time.Hour)), int(d%(24*time.Hour)/time.Hour))
	case d >= time.Minute:
		return sign + strings.TrimSuffix(d.Round(time.Second).String(), "m0s") + minutes(d)
	case d >= 10*time.Second:
		return sign + d.Round(time.Second).String()
	case d >= time.Second:
		return sign + d.Round(100*time.Millisecond).String()
	}
	return sign + d.Round(100*time.Microsecond).String()
}

// minutes restores the unit that span took off with the zero seconds.
func minutes(d time.Duration) string {
	if strings.HasSuffix(d.Round(time.Second).String(), "m0s") {
		return "m"
	}
	return ""
}
