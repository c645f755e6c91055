package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// film draws the recorded demo as a moving picture: a lane for each worker, in which its
// turns appear at the speed at which they happened. It shows all of it at the end, and at
// once to people who want no motion.
func film(cast string) (string, error) {
	all, err := readCast(cast)
	if err != nil {
		return "", err
	}
	f := filmDrawing{}
	for _, p := range all {
		f.heed(p)
	}
	switch {
	case len(f.lanes) == 0 || len(f.captions) == 0:
		return "", errors.New("the recording shows no demo")
	case !strings.HasSuffix(f.verdict, ": correct"):
		return "", errors.New("the recorded demo did not end well")
	}
	return f.draw(), nil
}

// A stay is a time in which a worker waits for the lock or has it.
type stay struct {
	lane     int
	from, to float64
	what     string // "waits", "has", "dead"
}

type caption struct {
	at   float64
	text string
}

type filmDrawing struct {
	lanes      []string
	columns    []int
	began, end float64
	open       map[int]stay
	stays      []stay
	kills      []stay
	captions   []caption
	verdict    string
	killed     string
}

var filmRow = regexp.MustCompile(`^ *\d+\.\d\d s( .*)$`)

// heed takes in one line of the demo: the heading of its table, or a row of it.
func (f *filmDrawing) heed(p printed) {
	switch {
	case strings.HasPrefix(p.text, "   time ") && f.lanes == nil:
		f.lanes, f.open = strings.Fields(p.text)[1:], make(map[int]stay)
		for _, lane := range f.lanes {
			f.columns = append(f.columns, strings.Index(p.text, lane))
		}
		return
	case !filmRow.MatchString(p.text):
		f.verdict = p.text
		return
	case f.began == 0:
		f.began = p.at
	}
	f.end = p.at - f.began
	for i, column := range f.columns {
		if len(p.text) > column && p.text[column] != ' ' && strings.TrimSpace(p.text[len(" 0.00 s"):column]) == "" {
			f.event(i, f.end, strings.TrimSpace(p.text[column:]))
		}
	}
}

func (f *filmDrawing) event(lane int, at float64, does string) {
	f.close(lane, at)
	name := f.lanes[lane]
	switch {
	case does == "waits":
		f.open[lane] = stay{lane: lane, from: at, what: "waits"}
	case does == "HAS THE LOCK":
		text := name + " has the lock; the others wait"
		if f.killed != "" {
			text = fmt.Sprintf("%s's lease has run out: %s has the lock", f.killed, name)
			f.close(slices.Index(f.lanes, f.killed), at)
			f.killed = ""
		}
		f.open[lane] = stay{lane: lane, from: at, what: "has"}
		f.captions = append(f.captions, caption{at, text})
	case strings.HasPrefix(does, "KILLED"):
		dead := stay{lane: lane, from: at, what: "dead"}
		f.kills, f.open[lane], f.killed = append(f.kills, dead), dead, name
		f.captions = append(f.captions, caption{at, name + " is killed with -9. Its lease still runs: nobody may go in"})
	}
}

func (f *filmDrawing) close(lane int, at float64) {
	if s, ok := f.open[lane]; ok {
		s.to = at
		f.stays = append(f.stays, s)
		delete(f.open, lane)
	}
}

const (
	filmLeft  = 100
	filmWidth = 700
	filmTop   = 84
	laneTall  = 50
	filmStill = 3.0 // seconds for which the end is shown
)

func (f *filmDrawing) x(at float64) float64 { return filmLeft + at/f.end*filmWidth }

func (f *filmDrawing) draw() string {
	c := canvas{
		title: "Three processes, one lock, and one of them is killed",
		alt:   "A recording of make demo. " + f.verdict + ".",
	}
	for i := range f.lanes {
		f.close(i, f.end)
	}
	bottom := filmTop + laneTall*float64(len(f.lanes))
	for i, lane := range f.lanes {
		c.line(filmLeft, filmTop+laneTall*float64(i)+21, filmLeft+filmWidth, filmTop+laneTall*float64(i)+21, "line")
		c.text(20, filmTop+laneTall*float64(i)+26, "b", lane)
	}
	for _, s := range f.stays {
		y := filmTop + laneTall*float64(s.lane)
		from, w := f.x(s.from), max(f.x(s.to)-f.x(s.from), 2)
		switch s.what {
		case "waits":
			c.add(`<rect x="%s" y="%s" width="%s" height="6" rx="3" class="soft"/>`, n(from), n(y+18), n(w))
		case "has":
			c.rect(from, y+4, w, 34, []string{"blue", "violet", "green", "amber"}[s.lane%4])
		case "dead":
			c.add(`<rect x="%s" y="%s" width="%s" height="34" rx="5" class="red-box" stroke-dasharray="5 4"/>`, n(from), n(y+4), n(w))
			c.text(from+w/2+4, y+26, "s m", "dead: its lease runs out")
		}
	}
	for _, k := range f.kills {
		c.cross(f.x(k.from), filmTop+laneTall*float64(k.lane)+21)
	}
	// What is still to come is covered; the cover moves away to the right.
	length := f.end + filmStill
	c.add(`<g class="cover"><rect x="%s" y="%s" width="%s" height="%s" class="bg"/><path d="M%s %sV%s" stroke="var(--fg)" stroke-width="1.5"/></g>`,
		n(filmLeft), n(filmTop-6), n(filmWidth+10), n(bottom-filmTop+8), n(filmLeft), n(filmTop-6), n(bottom+2))
	fmt.Fprintf(&c.css, ".cover{animation:go %ss linear infinite}@keyframes go{0%%{transform:translateX(0)}%s%%{transform:translateX(%spx)}100%%{transform:translateX(%spx)}}\n",
		n(length), n(f.end/length*100), n(filmWidth), n(filmWidth+40))
	for s := 0.0; s <= f.end; s++ {
		c.text(f.x(s), bottom+16, "s m", n(s)+" s")
	}
	c.text(20, 30, "h", c.title)
	f.drawCaptions(&c, length)
	c.css.WriteString("@media (prefers-reduced-motion:reduce){.cover,.cap{animation:none}.cover{display:none}.last{opacity:1}}\n")
	return c.svg(filmLeft+filmWidth+30, bottom+30)
}

// drawCaptions says below the title what happens now.
func (f *filmDrawing) drawCaptions(c *canvas, length float64) {
	all := slices.Concat(f.captions, []caption{{f.end, f.verdict}})
	c.css.WriteString(".cap{opacity:0}")
	for i, caption := range all {
		from, to := caption.at/length*100, 100.0
		if i+1 < len(all) {
			to = all[i+1].at / length * 100
		}
		if i == 0 {
			from = 0
		}
		last := map[bool]string{true: " last"}[i == len(all)-1]
		fmt.Fprintf(&c.css, ".c%d{animation:c%d %ss step-end infinite}@keyframes c%d{0%%{opacity:%d}%.2f%%{opacity:1}%.2f%%{opacity:0}100%%{opacity:0}}",
			i, i, n(length), i, map[bool]int{true: 1, false: 0}[i == 0], max(from, 0.01), min(to, 99.99))
		c.text(20, 56, fmt.Sprintf("cap c%d%s", i, last), caption.text)
	}
	c.css.WriteString("\n")
}
