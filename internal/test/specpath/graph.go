package specpath

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mongolock/mongolock/store"
)

// A Graph is what the specification says of a store within some bounds.
type Graph struct {
	Name   string
	States []*State // the first is that of a free key
	Edges  int
	Calls  int // distinct pairs of a state and a call

	ttl int // in ticks
}

// A State is what the record of a key holds.
type State struct {
	Mode    string // "none", or of the holders: "exclusive", "shared", "permits 2"
	Line    []Place
	Holders []Holder
	Set     int // how many permits there are; 0: as many as claims name

	name  string
	calls []*call
}

// A Place is that of a waiter in line. A number that is not in line stands for the next one, too.
type Place struct {
	Number int
	Mode   string // of its claims
	Fresh  bool   // its waiter was seen lately: the place counts
}

// A Holder is one of the acquisitions.
type Holder struct {
	There            bool
	Left             int // in ticks
	Weight           int
	Broken, Released bool
}

// A call is what may be asked in a state.
type call struct {
	name     string
	args     []term
	outcomes []*outcome
	asked    bool // the walk has made it, or is about to
}

// An outcome is what may be answered to a call.
type outcome struct {
	says []term
	then *State
	seen bool
}

func (c *call) String() string { return strings.Trim(fmt.Sprint(c.name, " ", c.args), " ") }

// Open reads the graph of some bounds, which `make spec-tests` has left in the folder.
func Open(folder, bounds string) (*Graph, error) {
	f, err := os.Open(filepath.Join(folder, bounds+".graph"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return Read(bounds, f)
}

// Read reads the edges that StoreGraph.tla prints.
func Read(name string, from io.Reader) (*Graph, error) {
	g := &Graph{Name: name}
	states := map[string]*State{}
	calls := map[string]*call{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		edge, _, err := parse(lines.Text())
		if err != nil {
			return nil, err
		}
		parts, _ := edge.([]term)
		if len(parts) != 5 || parts[0] != "edge" {
			return nil, fmt.Errorf("specpath: no edge: %s", lines.Text())
		}
		from, then := g.state(states, parts[1]), g.state(states, parts[4])
		asked := parts[2].([]term)
		id := fmt.Sprint(from.name, asked)
		c := calls[id]
		if c == nil {
			c = &call{name: asked[0].(string), args: asked[1:]}
			calls[id], from.calls = c, append(from.calls, c)
			g.Calls++
		}
		says := parts[3].([]term)
		c.outcomes = append(c.outcomes, &outcome{says: says, then: then})
		if c.name == "acquire" && says[0] == "granted" {
			g.ttl = then.Holders[c.args[0].(int)-1].Left
		}
		g.Edges++
	}
	if g.Edges == 0 {
		return nil, errors.New("specpath: a graph without edges")
	}
	return g, lines.Err()
}

func (g *Graph) state(known map[string]*State, shown term) *State {
	name := fmt.Sprint(shown)
	if s := known[name]; s != nil {
		return s
	}
	of := shown.([]term)
	s := &State{name: name, Mode: of[0].(string)}
	for _, p := range of[1].([]term) {
		p := p.([]term)
		s.Line = append(s.Line, Place{p[0].(int), p[1].(string), p[2].(bool)})
	}
	for _, h := range of[2].([]term) {
		h := h.([]term)
		s.Holders = append(s.Holders, Holder{h[0].(bool), h[1].(int), h[2].(int), h[3].(bool), h[4].(bool)})
	}
	s.Set = of[3].(int)
	known[name] = s
	g.States = append(g.States, s)
	return s
}

// waits reports whether a waiter stands in line whose place counts.
func (s *State) waits() bool {
	return slices.ContainsFunc(s.Line, func(p Place) bool { return p.Fresh })
}

// stands reports whether a place is in line.
func (s *State) stands(number int) bool {
	return slices.ContainsFunc(s.Line, func(p Place) bool { return p.Number == number })
}

// weight is how many permits a claim in a mode of the specification takes.
func weight(name string) int {
	if name == bothOfTwo {
		return 2
	}
	return 1
}

const bothOfTwo = "both of 2"

// mode is a mode of the specification as a store has it.
func mode(name string) (m store.Mode, limit int) {
	switch name {
	case "exclusive":
		return store.Exclusive, 1
	case "shared":
		return store.Shared, 0
	case bothOfTwo:
		return store.Permits, 2
	}
	_, err := fmt.Sscanf(name, "permits %d", &limit)
	if err != nil {
		return "", 0
	}
	return store.Permits, limit
}

// next is the call to make in a state: one that was not made yet, or the first step of the
// shortest way to one.
func (g *Graph) next(from *State) *call {
	type way struct {
		at    *State
		first *call
	}
	met := map[*State]bool{from: true}
	for queue := []way{{at: from}}; len(queue) > 0; queue = queue[1:] {
		w := queue[0]
		if c := w.at.unasked(); c != nil {
			if w.first != nil {
				return w.first
			}
			return c
		}
		for _, c := range w.at.calls {
			for _, o := range c.outcomes {
				if met[o.then] || c.answered() && !o.seen {
					continue
				}
				met[o.then] = true
				first := w.first
				if first == nil {
					first = c
				}
				queue = append(queue, way{o.then, first})
			}
		}
	}
	return nil
}

// within are the states to which the store comes, by the outcomes that it has shown.
func (g *Graph) within() map[*State]bool {
	met := map[*State]bool{g.States[0]: true}
	for queue := g.States[:1]; len(queue) > 0; queue = queue[1:] {
		for _, c := range queue[0].calls {
			for _, o := range c.outcomes {
				if !met[o.then] && (o.seen || !c.answered()) {
					met[o.then] = true
					queue = append(queue[:len(queue):len(queue)], o.then)
				}
			}
		}
	}
	return met
}

// answered reports whether the store has shown which of the outcomes it gives.
func (c *call) answered() bool {
	return slices.ContainsFunc(c.outcomes, func(o *outcome) bool { return o.seen })
}

// unasked is a call that was not made yet: rather one that leaves the state as it is.
func (s *State) unasked() (some *call) {
	for _, c := range s.calls {
		if c.asked {
			continue
		}
		if len(c.outcomes) == 1 && c.outcomes[0].then == s {
			return c
		}
		some = c
	}
	return some
}

// tick is the call that lets time pass.
func (s *State) tick() *call {
	for _, c := range s.calls {
		if c.name == "tick" {
			return c
		}
	}
	return nil
}
