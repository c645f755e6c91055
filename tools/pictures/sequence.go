package main

import (
	"fmt"
	"strings"
)

// An actor of a sequence, with a column of its own.
type actor struct {
	name, title string
	x           float64
	holds       string  // the colour of what it holds now
	since       float64 // where that began
	to          float64 // where its line ends
}

// A line is one statement of a sequence, "head: text".
type line struct {
	number     int
	head, text string
	words      []string // of the head
}

func (l line) wrong() error { return fmt.Errorf("line %d: no such statement: %q", l.number, l.head) }

// sequence draws who sends what to whom, from top to bottom:
//
//	actor A: the holder
//	A -> B: a message
//	A --> B: an answer
//	A holds green            A bar begins in A's column
//	A ends                   it ends
//	A dies: killed with -9   and so does the column
//	A note: a remark beside the column
//	time: the TTL goes by
func sequence(text string) (string, error) {
	s := &sequenceDrawing{y: 96}
	for i, statement := range strings.Split(text, "\n") {
		statement = strings.TrimSpace(statement)
		if i == 0 || statement == "" || statement[0] == '#' {
			if i == 0 && statement != "sequence" {
				return "", fmt.Errorf("the first line must be sequence, not %q", statement)
			}
			continue
		}
		head, rest, _ := strings.Cut(statement, ":")
		l := line{i + 1, head, strings.TrimSpace(rest), strings.Fields(head)}
		if err := s.draw(l); err != nil {
			return "", err
		}
	}
	s.y += 10
	for i := range s.actors {
		a := &s.actors[i]
		s.end(a)
		if a.to == 0 {
			a.to = s.y
		}
	}
	w := s.right() + 180
	var under canvas
	under.title, under.alt = s.c.title, s.c.alt
	// A message may cross the column of an actor between: its text stays readable there.
	under.css.WriteString(".halo{paint-order:stroke;stroke:var(--bg);stroke-width:5px;stroke-linejoin:round}")
	under.text(20, 30, "h", s.c.title)
	for _, a := range s.actors {
		under.rect(a.x-75, 48, 150, 30, "box")
		under.text(a.x, 68, "b m", a.title)
		under.line(a.x, 78, a.x, a.to, "line")
	}
	under.body.WriteString(s.bars.body.String() + s.c.body.String())
	return under.svg(w, s.y+16), nil
}

type sequenceDrawing struct {
	c, bars canvas
	actors  []actor
	y       float64
}

const columnWidth = 260

func (s *sequenceDrawing) right() float64 { return 110 + columnWidth*float64(len(s.actors)-1) }

func (s *sequenceDrawing) actor(l line, name string) (*actor, error) {
	for i := range s.actors {
		if s.actors[i].name == name {
			return &s.actors[i], nil
		}
	}
	return nil, fmt.Errorf("line %d: no actor %q", l.number, name)
}

func (s *sequenceDrawing) draw(l line) error {
	w := l.words
	switch {
	case l.head == "title":
		s.c.title = l.text
		return nil
	case l.head == "alt":
		s.c.alt = l.text
		return nil
	case l.head == "time":
		s.y += 14
		middle, w := s.right()/2+55, width(l.text)+10
		s.c.line(20, s.y, middle-w/2, s.y, "line dash")
		s.c.line(middle+w/2, s.y, s.right()+90, s.y, "line dash")
		s.c.rect(middle-w/2, s.y-11, w, 22, "bg")
		s.c.text(middle, s.y+4, "s m", l.text)
		s.y += 26
		return nil
	case len(w) == 2 && w[0] == "actor":
		s.actors = append(s.actors, actor{name: w[1], title: l.text, x: 110 + columnWidth*float64(len(s.actors))})
		return nil
	case len(w) == 3 && (w[1] == "->" || w[1] == "-->"):
		return s.message(l)
	case len(w) < 2:
		return l.wrong()
	}
	a, err := s.actor(l, w[0])
	if err != nil {
		return err
	}
	switch {
	case w[1] == "holds" && len(w) == 3 && colours[w[2]]:
		s.end(a)
		a.holds, a.since = w[2], s.y-10
	case w[1] == "ends":
		s.end(a)
	case w[1] == "dies":
		s.end(a)
		s.c.cross(a.x, s.y)
		s.c.text(a.x+14, s.y+4, "b red", l.text)
		a.to = s.y
		s.y += 30
	case w[1] == "note":
		s.y += s.c.lines(a.x+14, s.y+4, "s", wrap(l.text, 165)) + 12
	default:
		return l.wrong()
	}
	return nil
}

// end ends the bar in the actor's column.
func (s *sequenceDrawing) end(a *actor) {
	if a.holds == "" {
		return
	}
	s.bars.rect(a.x-5, a.since, 10, max(s.y-8-a.since, 6), a.holds)
	a.holds = ""
}

func (s *sequenceDrawing) message(l line) error {
	from, err := s.actor(l, l.words[0])
	if err != nil {
		return err
	}
	to, err := s.actor(l, l.words[2])
	if err != nil {
		return err
	}
	class := "arrow"
	if l.words[1] == "-->" {
		class = "arrow dash"
	}
	left, right := min(from.x, to.x), max(from.x, to.x)
	s.y += s.c.lines((left+right)/2, s.y+4, "m halo", wrap(l.text, right-left-34)) - 2
	way := 7.0
	if to.x < from.x {
		way = -way
	}
	s.c.line(from.x+way, s.y, to.x-way, s.y, class)
	s.y += 26
	return nil
}
