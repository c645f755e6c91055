package trace

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/simulation"
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

// placeOf stands for an attempt, or a lock, in a term until it has its place.
func placeOf(p int) string {
	if p == 0 {
		return "0"
	}
	return fmt.Sprintf("@%d@", p)
}

// place gives attempts, or locks, the places that earlier ones have left, since TLC's time grows with
// their number: what nothing speaks of any more, and of which no document is left that could come
// back, is forgotten. The step that forgets it asks that nothing of it was left undone, if its
// client was free to clean it up.
func (b *course) place(what string, lives []life, free func(p int) bool) {
	ending := make([][]int, len(b.out.Steps))
	for p := 1; p < len(lives); p++ {
		ending[lives[p].to] = append(ending[lives[p].to], p)
	}
	var left []int
	places := make([]int, len(lives))
	named := func(term string) string {
		return attempts.ReplaceAllStringFunc(term, func(m string) string {
			p, _ := strconv.Atoi(m[1 : len(m)-1])
			if places[p] == 0 {
				if len(left) == 0 {
					b.out.IDs++
					left = append(left, b.out.IDs)
				}
				places[p], left = left[0], left[1:]
			}
			return strconv.Itoa(places[p])
		})
	}
	steps := make([]Step, 0, len(b.out.Steps)+len(lives))
	for i, s := range b.out.Steps {
		if s.command > 0 { // which is named at its first step
			b.out.Commands[s.command-1] = named(b.out.Commands[s.command-1])
		}
		s.Term = named(s.Term)
		steps = append(steps, s)
		for _, p := range ending[i] {
			steps = append(steps, Step{
				Term: fmt.Sprintf(`<<%d, "forget", %d, %s>>`, units(s.at), places[p], boolean(free(p))),
				Text: fmt.Sprintf("at %v nothing more comes of %s %d", s.at, what, p), at: s.at,
			})
			left = append(left, places[p])
		}
	}
	b.out.Steps = steps
	b.over()
}

// speaksOf are the attempts, or locks, that a step and its command speak of.
func (b *course) speaksOf(s Step) []int {
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

// free reports whether nothing kept the client of an attempt from cleaning it up.
func (b *builder) free(p int) bool {
	for id, n := range b.ids {
		if c := b.claims[id]; n == p && c != nil {
			return !hindered(b.run, c.of.Client, c.of.Began, c.of.Began+2*b.run.TTL+time.Second)
		}
	}
	return false
}
