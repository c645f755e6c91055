package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// A printer writes what a command found: rows as a table on a terminal, as lines with tabs
// elsewhere, or one JSON object for each row.
type printer struct {
	w       io.Writer
	asJSON  bool
	table   *tabwriter.Writer // on a terminal
	heading []string          // of the table, until it is written
	rows    int
	none    func() // says at the end that no row has come
}

// partRows is how many rows of a table are laid out at a time: a list of a million keys is not
// kept in memory.
const partRows = 1000

func (a *app) printer(heading ...string) *printer {
	p := &printer{w: a.stdout, asJSON: a.asJSON()}
	if f, ok := a.stdout.(*os.File); ok && !p.asJSON && term.IsTerminal(int(f.Fd())) {
		p.onTerminal(heading)
	}
	return p
}

func (p *printer) onTerminal(heading []string) {
	p.table, p.heading = tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0), heading
}

// row takes one row: the fields to show, and the object to encode. Texts of others go into fields as they are.
func (p *printer) row(object any, fields ...string) error {
	p.rows++
	if p.asJSON {
		return encode(p.w, object)
	}
	to := p.w
	if p.table != nil {
		to = p.table
		if len(p.heading) > 0 {
			_, _ = fmt.Fprintln(to, strings.ToUpper(strings.Join(p.heading, "\t"))) // flush returns its error
			p.heading = nil
		}
	}
	texts := make([]string, len(fields))
	for i, text := range fields {
		texts[i] = shown(text)
	}
	_, err := fmt.Fprintln(to, strings.Join(texts, "\t"))
	if err == nil && p.table != nil && p.rows%partRows == 0 {
		err = p.table.Flush()
	}
	return err
}

// all takes rows that are not shown as JSON.
func (p *printer) all(rows ...[]string) error {
	for _, row := range rows {
		if err := p.row(nil, row...); err != nil {
			return err
		}
	}
	return nil
}

// flush writes the rest of the table.
func (p *printer) flush() error {
	if p.rows == 0 && p.none != nil {
		p.none()
	}
	if p.table == nil {
		return nil
	}
	return p.table.Flush()
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

// textMost is how many characters of one text are shown: more than any key, note or owner has.
const textMost = 2000

func cut(text string) string {
	if len(text) > textMost {
		return string([]rune(text)[:min(textMost, utf8.RuneCountInString(text))]) + "…"
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

// encode writes an object as a line of JSON, which has no dates after lastDate.
func encode(w io.Writer, object any) error {
	v := reflect.New(reflect.TypeOf(object)).Elem()
	v.Set(reflect.ValueOf(object))
	tame(v)
	e := json.NewEncoder(printable{w})
	e.SetEscapeHTML(false)
	return e.Encode(v.Interface())
}

var lastDate = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// tame changes such dates in a value.
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

// moment formats a date for people; one that is not set is empty.
func moment(t time.Time) string {
	if t.IsZero() || t.UnixMilli() == 0 {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// span formats a duration for people.
func span(d time.Duration) string {
	switch {
	case d < 0 && d != math.MinInt64:
		return "-" + span(-d)
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Minute:
		text := d.Round(time.Second).String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		return text
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}
