package trace

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/mongolock/mongolock/internal/history"
	"github.com/mongolock/mongolock/internal/simulation"
)

var attempts = regexp.MustCompile(`@(\d+)@`)

// mentioned are the attempts that a term speaks of.
func mentioned(term string) (all []int) {
	for _, m := range attempts.FindAllStringSubmatch(term, -1) {
		n, _ := strconv.Atoi(m[1])
		all = append(all, n)
	}
	return all
}

// A life is from which step to which one an attempt is spoken of, or may be in a document.
type life struct{ from, to int }

// place gives attempts the places that earlier ones have left, since TLC's time grows with
// their number: an attempt that nothing speaks of any more, and of which no document is left
// that could come back, is forgotten. The step that forgets it asks that nothing of it was
// left undone.
func (b *builder) place() {
	lives := b.lives()
	free, of := []int{}, make([]string, len(lives))
	steps := make([]Step, 0, len(b.out.Steps)+len(lives))
	ending := map[int][]int{}
	for p := 1; p < len(lives); p++ {
		ending[lives[p].to] = append(ending[lives[p].to], p)
	}
	places := map[int]int{}
	enter := func(ids []int) {
		for _, p := range ids {
			if places[p] > 0 {
				continue
			}
			if len(free) == 0 {
				b.out.IDs++
				free = append(free, b.out.IDs)
			}
			places[p], free = free[0], free[1:]
			of[p] = strconv.Itoa(places[p])
		}
	}
	named := func(term string) string {
		return attempts.ReplaceAllStringFunc(term, func(m string) string { n, _ := strconv.Atoi(m[1 : len(m)-1]); return of[n] })
	}
	for i, s := range b.out.Steps {
		enter(b.speaksOf(s))
		s.Term = named(s.Term)
		steps = append(steps, s)
		for _, p := range ending[i] {
			steps = append(steps, b.forgets(p, of[p], s.at))
			free = append(free, places[p])
		}
	}
	for i, c := range b.out.Commands {
		b.out.Commands[i] = named(c)
	}
	at := steps[len(steps)-1].at
	steps = append(steps, Step{Term: fmt.Sprintf(`<<%d, "over">>`, units(at)), Text: "at the end", at: at})
	b.out.Steps = steps
}

func (b *builder) speaksOf(s Step) []int {
	ids := mentioned(s.Term)
	if s.command > 0 {
		ids = append(ids, mentioned(b.out.Commands[s.command-1])...)
	}
	return ids
}

// lives are the attempts' lives. One that was there during a failover lasts to the end: what
// was rolled back, or is on a deposed primary, may show it again.
func (b *builder) lives() []life {
	lives := make([]life, len(b.ids)+1)
	last := len(b.out.Steps) - 1
	in, waiting := map[int]bool{}, map[int]bool{}
	for i, s := range b.out.Steps {
		for _, p := range b.speaksOf(s) {
			if lives[p] == (life{}) {
				lives[p].from = i
			}
			lives[p].to = i
		}
		if s.wrote {
			now := map[int]bool{}
			for _, p := range mentioned(s.Term) {
				now[p] = true
			}
			for p := range in {
				waiting[p] = waiting[p] || !now[p]
			}
			in = now
		}
		if s.settled {
			for p := range waiting {
				lives[p].to = max(lives[p].to, i)
			}
			clear(waiting)
		}
	}
	for p := range in {
		lives[p].to = last
	}
	for p := range waiting {
		lives[p].to = last
	}
	for p := 1; p < len(lives); p++ {
		if b.failover(b.out.Steps[lives[p].from].at, b.out.Steps[lives[p].to].at) {
			lives[p].to = last
		}
	}
	return lives
}

// failover reports whether there was one between two times, or what it left behind.
func (b *builder) failover(from, to time.Duration) bool {
	return slices.ContainsFunc(b.run.Steps, func(s simulation.Step) bool {
		return s.Kind == simulation.Elected && s.At >= from && s.At <= to+b.run.TTL ||
			s.Kind == simulation.Noted && s.Event.Kind == history.Trouble && s.Event.Note == history.Failover && s.At <= to && s.Event.Until >= from
	})
}

// forgets is the step after which an attempt is spoken of no more.
func (b *builder) forgets(p int, place string, at time.Duration) Step {
	hindered := true
	for id, n := range b.ids {
		if c := b.claims[id]; n == p && c != nil {
			hindered = b.hindered(c.of.Client, c.of.Began)
		}
	}
	return Step{
		Term: fmt.Sprintf(`<<%d, "forget", %s, %s>>`, units(at), place, boolean(!hindered)),
		Text: fmt.Sprintf("at %v nothing more comes of attempt %d", at, p), at: at,
	}
}
