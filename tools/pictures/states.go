package main

import "fmt"

// states draws what something can be, and what makes it so:
//
//	box held 1 0 green: held|renewed every TTL/3       at column 1 of row 0
//	held -> free: Release
func states(all []line) (string, error) {
	s := &statesDrawing{boxes: make(map[string]box)}
	var arrows []line
	for _, l := range all {
		switch w := l.words; {
		case l.head == "title":
			s.c.title = l.text
		case l.head == "alt":
			s.c.alt = l.text
		case len(w) == 5 && w[0] == "box" && colours[w[4]]:
			v, err := numbers(l, w[2:4])
			if err != nil {
				return "", err
			}
			b := box{x: 24 + v[0]*stateColumn, y: 54 + v[1]*stateRow, text: wrap(l.text, stateWidth-14), colour: w[4]}
			s.boxes[w[1]] = b
			s.w, s.h = max(s.w, b.x+stateWidth), max(s.h, b.y+stateHeight)
		case len(w) == 3 && w[1] == "->":
			arrows = append(arrows, l)
		default:
			return "", l.wrong()
		}
	}
	s.c.text(24, 30, "h", s.c.title)
	for _, l := range arrows {
		if err := s.arrow(l); err != nil {
			return "", err
		}
	}
	for _, l := range all {
		if l.words[0] == "box" {
			b := s.boxes[l.words[1]]
			s.c.rect(b.x, b.y, stateWidth, stateHeight, b.colour+"-box")
			top := b.y + stateHeight/2 + 5 - float64(len(b.text)-1)*lineHeight/2
			for i, text := range b.text {
				class := "s m"
				if i == 0 {
					class = "b m"
				}
				s.c.text(b.x+stateWidth/2, top+float64(i)*lineHeight, class, text)
			}
		}
	}
	return s.c.svg(s.w+24, s.h+20), nil
}

const (
	stateWidth  = 180
	stateHeight = 64
	stateColumn = 330
	stateRow    = 130
)

type box struct {
	x, y   float64
	text   []string
	colour string
}

type statesDrawing struct {
	c     canvas
	boxes map[string]box
	w, h  float64
}

func (s *statesDrawing) arrow(l line) error {
	from, ok := s.boxes[l.words[0]]
	to, also := s.boxes[l.words[2]]
	if !ok || !also {
		return fmt.Errorf("line %d: no such box", l.number)
	}
	switch {
	case from.y == to.y && from.x < to.x: // to the right, above the middle, so that one back has room
		y := from.y + stateHeight/2 - 10
		s.c.line(from.x+stateWidth, y, to.x-2, y, "arrow")
		text := wrap(l.text, to.x-from.x-stateWidth-6)
		s.c.lines((from.x+stateWidth+to.x)/2, y-6-float64(len(text)-1)*lineHeight, "s m", text)
	case from.y == to.y: // back
		y := from.y + stateHeight/2 + 12
		s.c.line(from.x, y, to.x+stateWidth+2, y, "arrow")
		s.c.lines((from.x+to.x+stateWidth)/2, y+16, "s m", wrap(l.text, from.x-to.x-stateWidth-6))
	case from.x == to.x: // down or up
		x, up := from.x+stateWidth/2, to.y < from.y
		top, bottom := from.y+stateHeight, to.y-2
		if up {
			top, bottom = from.y, to.y+stateHeight+2
		}
		s.c.line(x, top, x, bottom, "arrow")
		s.c.lines(x+8, (top+bottom)/2-4, "s", wrap(l.text, 150))
	default: // aslant
		x1, x2 := from.x+stateWidth, to.x
		if from.x > to.x {
			x1, x2 = from.x, to.x+stateWidth
		}
		y1, y2 := from.y+stateHeight-8, to.y+8
		if to.y < from.y {
			y1, y2 = from.y+8, to.y+stateHeight-8
		}
		s.c.line(x1, y1, x2, y2, "arrow")
		text := wrap(l.text, 130)
		s.c.lines((x1+x2)/2+10, (y1+y2)/2-float64(len(text)-1)*lineHeight/2, "s", text)
	}
	return nil
}
