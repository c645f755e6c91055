package history

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"
)

// Draw writes a history as an SVG: a lane for each client and key, what it
// believed above what the database showed, trouble behind them, and a red line at
// each violation.
func (h *History) Draw(out io.Writer, title string, found []Violation) error {
	d := drawing{h: h, from: h.first(), to: h.lastOf(), lanes: map[string]int{}}
	for _, l := range h.leases() {
		d.lane(l)
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
	width  = 1400
	left   = 130
	laneIs = 34
)

type drawing struct {
	h        *History
	from, to time.Duration
	lanes    map[string]int
	body     strings.Builder
}

func (h *History) first() time.Duration {
	if len(h.Events) == 0 {
		return 0
	}
	return h.Events[0].At
}

func (h *History) lastOf() time.Duration {
	var last time.Duration
	for _, e := range h.Events {
		last = max(last, e.At)
	}
	return last + time.Millisecond
}

func (d *drawing) x(at time.Duration) float64 {
	at = min(max(at, d.from), d.to)
	return left + float64(at-d.from)/float64(d.to-d.from)*(width-left-10)
}

func (d *drawing) height() int { return 40 + laneIs*len(d.lanes) }

func (d *drawing) lane(l *lease) int {
	name := fmt.Sprintf("client %d, %s", l.client, l.key)
	n, ok := d.lanes[name]
	if !ok {
		n = len(d.lanes)
		d.lanes[name] = n
		fmt.Fprintf(&d.body, `<text x="8" y="%d">%s</text>`+"\n", 40+laneIs*n+16, html.EscapeString(name))
	}
	return 40 + laneIs*n
}

func (d *drawing) bar(from, to time.Duration, y, high int, fill, tip string) {
	if from == never {
		return
	}
	x := d.x(from)
	fmt.Fprintf(&d.body, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`+"\n",
		x, y, max(d.x(to)-x, 0.8), high, fill, html.EscapeString(tip))
}

// lease draws what was believed in blue, what the database showed in grey, and
// what nobody was given in orange.
func (d *drawing) lease(l *lease) {
	y := d.lane(l)
	shown := "#bbb"
	if l.granted == never {
		shown = "#f90"
	}
	d.bar(l.applied, min(l.dropped, l.until), y+14, 8, shown, fmt.Sprintf("in the database: %.4s from %v to %v", l.id, l.applied, min(l.dropped, l.until)))
	d.bar(l.granted, l.ends(), y+3, 10, "#36c", fmt.Sprintf("believed: %.4s, token %d, from %v, told %v", l.id, l.token, l.granted, l.told))
}

func (d *drawing) troubles() {
	for _, e := range d.h.Events {
		if e.Kind != Trouble {
			continue
		}
		tip := fmt.Sprintf("%v to %v: %s", e.At, e.Until, e.Note)
		if e.Client < 0 {
			d.bar(e.At, e.Until, 30, laneIs*len(d.lanes)+8, "#f5d0d0", tip)
			continue
		}
		for name, n := range d.lanes {
			if strings.HasPrefix(name, fmt.Sprintf("client %d,", e.Client)) {
				d.bar(e.At, e.Until, 40+laneIs*n, laneIs-4, "#fbe8c8", tip)
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
