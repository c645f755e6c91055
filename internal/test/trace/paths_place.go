package trace

import "time"

// lives are the locks' lives: until a majority has that the document is gone, if there ever was one.
func (b *pathBuilder) lives() []life {
	lives := make([]life, len(b.adds)+1)
	about := make([]int, len(b.out.Commands)+1)
	there, going := map[int]bool{}, map[int]bool{} // documents, and those of which no majority knows yet that they are gone
	for i, s := range b.out.Steps {
		all := b.speaksOf(s)
		for _, p := range all {
			lives[p].to = i
		}
		if s.command > 0 && len(all) > 0 {
			about[s.command] = all[0]
		}
		switch p := about[max(s.command, 0)]; {
		case s.wrote && s.gone:
			going[p] = true
		case s.wrote:
			there[p] = true
			delete(going, p)
		case s.elected: // what was going may be there again
			clear(going)
		case s.settled:
			for p := range going {
				delete(there, p)
				lives[p].to = max(lives[p].to, i)
			}
			clear(going)
		}
	}
	for p := range there {
		lives[p].to = len(b.out.Steps) - 1
	}
	return lives
}

// longEnough is how long a clean-up may take at most, whatever is lost.
const longEnough = 30 * time.Second

// free reports whether a lock that was not granted has to be cleaned up: nothing kept its client from that.
func (b *pathBuilder) free(p int) bool {
	a := b.adds[p-1]
	return a.lasts >= longEnough && !hindered(b.run, a.of.Client, a.of.Began, a.of.Began+longEnough)
}
