package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
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
	p := &printer{w: a.stdout, asJSON: a.asJSON(), heading: heading}
	if f, ok := a.stdout.(*os.File); ok && !p.asJSON && term.IsTerminal(int(f.Fd())) {
		p.tty = os.Getenv("TERM") != "dumb"
		p.width, _, _ = term.GetSize(int(f.Fd()))
		p.colour = p.tty && os.Getenv("NO_COLOR") == ""
	}
	return p
}

// row takes one row: the cells to show, and the object to encode. Texts of others go into cells as they are.
func (p *printer) row(object any, cells ...cell) error {
	p.some = true
	if p.asJSON {
		return encode(p.w, object)
	}
	cells = shownRow(cells)
	if p.tty {
		if p.rows = append(p.rows, cells); len(p.rows) == partRows {
			return p.flush()
		}
		return nil
	}
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = p.coloured(c.text, c.tone)
	}
	_, err := fmt.Fprintln(p.w, strings.Join(texts, "\t"))
	return err
}

func shownRow(cells []cell) []cell {
	cells = slices.Clone(cells)
	for i, c := range cells {
		cells[i].text = shown(c.text)
	}
	return cells
}

// all takes rows that are not shown as JSON.
func (p *printer) all(rows ...[]cell) error {
	for _, row := range rows {
		if err := p.row(nil, row...); err != nil {
			return err
		}
	}
	return nil
}

func (p *printer) coloured(text string, t tone) string {
	if !p.colour || t == plain || text == "" {
		return text
	}
	return string(t) + text + reset
}

// text prints a text: as it is, or under a name in an object.
func (a *app) text(name, text string) error {
	if a.asJSON() {
		return encode(a.stdout, map[string]string{name: strings.TrimSuffix(text, "\n")})
	}
	_, err := io.WriteString(a.stdout, text)
	return err
}

// print prints a sentence that may have texts of others in it.
func (a *app) print(format string, args ...any) error {
	return a.text("text", clean(fmt.Sprintf(format, args...))+"\n")
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
			if p.width > 0 {
				text = fit(text, room)
			}
			length := utf8.RuneCountInString(text)
			b.WriteString(p.coloured(text, c.tone))
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

// fit shortens a text to a number of characters.
func fit(text string, room int) string {
	if utf8.RuneCountInString(text) > room {
		return string([]rune(text)[:max(0, room-1)]) + "…"
	}
	return text
}

// textMost is how many characters of one text are shown: more than any key, note or owner has.
const textMost = 2000

func cut(text string) string {
	if len(text) > textMost {
		return fit(text, textMost)
	}
	return text
}

func odd(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// shown returns a text of others in a form that is safe to show: one that could steer a terminal, or break a
// line, is quoted.
func shown(text string) string {
	if text = cut(text); odd(text) {
		return strconv.Quote(text)
	}
	return text
}

// clean is shown for a sentence that has texts of others in it: it replaces only what is not printable.
func clean(text string) string {
	if text = cut(text); odd(text) {
		text = strconv.Quote(text)
		text = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(text[1 : len(text)-1])
	}
	return text
}

// A printable passes on JSON, or the lines of a log, with each character escaped that could steer a terminal.
type printable struct{ w io.Writer }

func (p printable) Write(text []byte) (int, error) {
	var b []byte
	for _, r := range string(text) {
		switch {
		case unicode.IsPrint(r) || r == '\n':
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			one, two := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, one, two)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	if _, err := p.w.Write(b); err != nil {
		return 0, err
	}
	return len(text), nil
}

// encode writes an object as a line of JSON. It writes the dates that JSON cannot have as the last one that it can.
func encode(w io.Writer, object any) error {
	v := reflect.New(reflect.TypeOf(object)).Elem()
	v.Set(reflect.ValueOf(object))
	tame(v)
	e := json.NewEncoder(printable{w})
	e.SetEscapeHTML(false)
	return e.Encode(v.Interface())
}

var lastDate = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// tame changes the dates in a value.
func tame(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[time.Time]() {
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() || f.Anonymous {
					tame(v.Field(i))
				}
			}
			return
		}
		switch date := v.Interface().(time.Time); {
		case date.After(lastDate):
			v.Set(reflect.ValueOf(lastDate))
		case date.UnixMilli() == 0 || date.Year() < 0: // as good as none
			v.SetZero()
		}
	case reflect.Slice:
		for i := range v.Len() {
			tame(v.Index(i))
		}
	}
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
		text := d.Round(time.Second).String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		return sign + text
	case d >= 10*time.Second:
		return sign + d.Round(time.Second).String()
	case d >= time.Second:
		return sign + d.Round(100*time.Millisecond).String()
	}
	return sign + d.Round(100*time.Microsecond).String()
}
