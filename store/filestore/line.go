package filestore

import (
	"slices"
	"time"

	"github.com/mongolock/mongolock/store"
)

// place returns the index of a place in line, or -1.
func (r *record) place(p store.Place) int {
	return slices.IndexFunc(r.Line, func(w store.Waiter) bool { return w.Place == p })
}

// places returns who waits.
func (r *record) places() (all []store.Place) {
	for _, w := range r.Line {
		all = append(all, w.Place)
	}
	return all
}

// join puts a claim in the line, or keeps its place there. It returns the place,
// which is empty if the claim has none or the line is full. A full line first loses the places
// that are stale.
func (r *record) join(now time.Time, c store.Claim) store.Place {
	if c.Place == "" {
		return ""
	}
	if i := r.place(c.Place); i >= 0 {
		r.Line[i].Seen = now
		return c.Place
	}
	if len(r.Line) >= store.LineMost {
		r.Line = slices.DeleteFunc(r.Line, r.status(now).Stale)
	}
	if len(r.Line) >= store.LineMost {
		return ""
	}
	r.Line = slices.Insert(r.Line, c.Joins(r.Line), c.Stands(now))
	return c.Place
}

// leave takes a place out of the line.
func (r *record) leave(p store.Place) change {
	i := r.place(p)
	if i < 0 {
		return leave
	}
	r.Line = slices.Delete(r.Line, i, i+1)
	return r.tidy()
}

// advance takes a claim that is granted out of the line, and with it those before it that did not
// count (Status.Turn): the places that it passes, and stale ones.
func (r *record) advance(now time.Time, c store.Claim) {
	s, before := r.status(now), true
	r.Line = slices.DeleteFunc(r.Line, func(w store.Waiter) bool {
		if w.Place == c.Place {
			before = false
			return true
		}
		return before && (s.Passes(&c, w) || s.Stale(w))
	})
}
