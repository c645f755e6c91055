package main

import (
	"errors"
	"fmt"
	"strconv"
)

// timeline draws bars over a time that runs from left to right:
//
//	axis 0 40 10 s              from, to, a tick each, unit
//	row A: the holder
//	bar A 0 29 green: text      in A's row, from, to, colour
//	mark A 10: text             an arrow at a moment of A's row
//	dies A 14: text             an end in A's row
//	moment 30: text             a line through all rows
func timeline(all []line) (string, error) {
	t := &timelineDrawing{at: make(map[string]float64), y: 52}
	for _, l := range all {
		if err := t.draw(l); err != nil {
			return "", err
		}
	}
	if t.tick == 0 {
		return "", errors.New("no axis")
	}
	t.c.line(timelineLeft, t.y, timelineLeft+timelineWidth, t.y, "line")
	for v := t.from; v <= t.to; v += t.tick {
		t.c.line(t.x(v), t.y, t.x(v), t.y+5, "line")
		t.c.text(t.x(v), t.y+20, "s m", n(v)+" "+t.unit)
	}
	var under canvas
	under.title, under.alt = t.c.title, t.c.alt
	under.text(20, 30, "h", t.c.title)
	for i, m := range t.moments {
		y := t.y + 42 + float64(i)*lineHeight
		under.line(m.x, 52, m.x, y-12, "line dash")
		class, x := "s", m.x+4
		if m.x > timelineLeft+timelineWidth/2 {
			class, x = "s e", m.x-4
		}
		under.text(x, y-4, class, m.text)
	}
	under.body.WriteString(t.c.body.String())
	return under.svg(timelineLeft+timelineWidth+40, t.y+36+float64(len(t.moments))*lineHeight), nil
}

const (
	timelineLeft  = 170
	timelineWidth = 610
)

type timelineDrawing struct {
	c              canvas
	from, to, tick float64
	unit           string
	at             map[string]float64 // where each row is
	y              float64
	moments        []moment
}

type moment struct {
	x    float64
	text string
}

func (t *timelineDrawing) x(v float64) float64 {
	return timelineLeft + (v-t.from)/(t.to-t.from)*timelineWidth
}

func (t *timelineDrawing) draw(l line) error {
	w := l.words
	switch {
	case l.head == "title":
		t.c.title = l.text
	case l.head == "alt":
		t.c.alt = l.text
	case len(w) == 5 && w[0] == "axis":
		v, err := numbers(l, w[1:4])
		if err != nil {
			return err
		}
		t.from, t.to, t.tick, t.unit = v[0], v[1], v[2], w[4]
	case len(w) == 2 && w[0] == "row":
		t.at[w[1]] = t.y
		t.c.lines(20, t.y+20, "b", wrap(l.text, timelineLeft-30))
		t.y += 66
	case len(w) == 5 && w[0] == "bar" && colours[w[4]]:
		return t.bar(l)
	case len(w) == 3 && (w[0] == "mark" || w[0] == "dies"):
		return t.mark(l)
	case len(w) == 2 && w[0] == "moment":
		v, err := numbers(l, w[1:])
		if err != nil {
			return err
		}
		t.moments = append(t.moments, moment{t.x(v[0]), l.text})
	default:
		return l.wrong()
	}
	return nil
}

func (t *timelineDrawing) bar(l line) error {
	v, err := numbers(l, l.words[2:4])
	if err != nil {
		return err
	}
	y, ok := t.at[l.words[1]]
	if !ok {
		return fmt.Errorf("line %d: no row %q", l.number, l.words[1])
	}
	from, to := t.x(v[0]), t.x(v[1])
	t.c.rect(from, y, to-from, 38, l.words[4]+"-box")
	text := wrap(l.text, to-from-8)
	t.c.lines((from+to)/2, y+23-float64(len(text)-1)*8.5, "s m", text)
	return nil
}

func (t *timelineDrawing) mark(l line) error {
	v, err := numbers(l, l.words[2:])
	if err != nil {
		return err
	}
	y, ok := t.at[l.words[1]]
	if !ok {
		return fmt.Errorf("line %d: no row %q", l.number, l.words[1])
	}
	x := t.x(v[0])
	if l.words[0] == "dies" {
		t.c.cross(x, y+19)
	} else {
		t.c.line(x, y+48, x, y+39, "arrow")
	}
	t.c.text(x, y+58, "s m", l.text)
	return nil
}

func numbers(l line, words []string) (all []float64, err error) {
	for _, w := range words {
		v, err := strconv.ParseFloat(w, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", l.number, err)
		}
		all = append(all, v)
	}
	return all, nil
}
