package history

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Keep draws a history into a file that a test keeps if it is run with -artifacts.
func (h *History) Keep(t testing.TB, name, title string, found []Violation) {
	t.Helper()
	keeps, can := t.(interface{ ArtifactDir() string }) // since Go 1.26
	dir := t.TempDir
	if can {
		dir = keeps.ArtifactDir
	}
	path := filepath.Join(dir(), name+".svg")
	var svg bytes.Buffer
	err := h.Draw(&svg, title, found)
	if err == nil {
		err = os.WriteFile(path, svg.Bytes(), 0o600)
	}
	if err != nil {
		t.Errorf("draw %s: %v", title, err)
		return
	}
	t.Logf("drawn in %s (kept with -artifacts)", path)
}

// Draw writes a history as an SVG: one row for each client and key. A row has what the
// client believed above what the database showed, and trouble behind both. A red line
// marks each violation.
func (h *History) Draw(out io.Writer, title string, found []Violation) error {
	d := drawing{h: h, rows: map[string]int{}}
	d.from, d.to = h.span()
	for _, l := range h.leases() {
		d.row(l)
	}
	d.troubles()
	for _, l := range h.leases() {
		d.lease(l)
	}
	for _, v := range found {
		fmt.Fprintf(&d.body, `<line x1="%.1f" x2="%.1f" y1="30" y2="%d" stroke="#d00" stroke-width="1.5"><title>%s</title></line>`+"\n",
			d.x(v.At), d.x(v.At), d.height(), html.EscapeString(v.String()))
	}
	if len(found) > 0 {
		title += ": " + found[0].String()
	}
	_, err := fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="8" y="18" font-size="13">%s</text>
%s%s</svg>
`, width, d.height()+24, html.EscapeString(title), d.axis(), d.body.String())
	return err
}

const (
	width     = 1400
	left      = 130
	rowHeight = 34
)

type drawing struct {
	h        *History
	from, to time.Duration
	rows     map[string]int // by name: how many stand above it
	body     strings.Builder
}

// span returns when the first event happened, and a moment after the last.
func (h *History) span() (from, to time.Duration) {
	for i, e := range h.Events {
		if i == 0 {
			from = e.At
		}
		to = max(to, e.At)
	}
	return from, to + time.Millisecond
}

func (d *drawing) x(at time.Duration) float64 {
	at = min(max(at, d.from), d.to)
	return left + float64(at-d.from)/float64(d.to-d.from)*(width-left-10)
}

func (d *drawing) height() int { return 40 + rowHeight*len(d.rows) }

// row returns how far down the row of a lease begins. A new row is labelled.
func (d *drawing) row(l *lease) int {
	name := fmt.Sprintf("client %d, %s", l.client, l.key)
	n, ok := d.rows[name]
	if !ok {
		n = len(d.rows)
		d.rows[name] = n
		fmt.Fprintf(&d.body, `<text x="8" y="%d">%s</text>`+"\n", 40+rowHeight*n+16, html.EscapeString(name))
	}
	return 40 + rowHeight*n
}

func (d *drawing) bar(from, to time.Duration, y, height int, fill, tip string) {
	if from == never {
		return
	}
	x := d.x(from)
	fmt.Fprintf(&d.body, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`+"\n",
		x, y, max(d.x(to)-x, 0.8), height, fill, html.EscapeString(tip))
}

// lease draws what the client believed in blue, and what the database showed in grey, or
// in orange if no caller was given it.
func (d *drawing) lease(l *lease) {
	y := d.row(l)
	shown := "#bbb"
	if l.granted == never {
		shown = "#f90"
	}
	d.bar(l.applied, l.leaves(), y+14, 8, shown, fmt.Sprintf("in the database: %.4s from %v to %v", l.id, l.applied, l.leaves()))
	d.bar(l.granted, l.ends(), y+3, 10, "#36c", fmt.Sprintf("believed: %.4s, token %d, from %v, told %v", l.id, l.token, l.granted, l.told))
}

func (d *drawing) troubles() {
	for _, e := range d.h.Events {
		if e.Kind != Trouble {
			continue
		}
		tip := fmt.Sprintf("%v to %v: %s", e.At, e.Until, e.Note)
		if e.Client < 0 {
			d.bar(e.At, e.Until, 30, rowHeight*len(d.rows)+8, "#f5d0d0", tip)
			continue
		}
		for name, n := range d.rows {
			if strings.HasPrefix(name, fmt.Sprintf("client %d,", e.Client)) {
				d.bar(e.At, e.Until, 40+rowHeight*n, rowHeight-4, "#fbe8c8", tip)
			}
		}
	}
}

func (d *drawing) axis() string {
	var s strings.Builder
	steps := []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
	i, _ := slices.BinarySearchFunc(steps, (d.to-d.from)/25, cmp.Compare)
	step := steps[min(i, len(steps)-1)]
	for at := d.from.Truncate(step) + step; at < d.to; at += step {
		fmt.Fprintf(&s, `<line x1="%.1f" x2="%.1f" y1="30" y2="%d" stroke="#eee"/><text x="%.1f" y="%d" fill="#888" text-anchor="middle">%v</text>`+"\n",
			d.x(at), d.x(at), d.height(), d.x(at), d.height()+16, at)
	}
	return s.String()
}
