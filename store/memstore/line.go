package memstore

import (
	"slices"
	"time"

	"github.com/mongolock/mongolock/store"
)

// place returns the index of a place in line, or -1.
func (r *record) place(p store.Place) int {
	return slices.IndexFunc(r.line, func(w store.Waiter) bool { return w.Place == p })
}

// places returns who waits. The slice belongs to the caller.
func (r *record) places() []store.Place {
	if len(r.line) == 0 {
		return nil
	}
	all := make([]store.Place, len(r.line))
	for i, w := range r.line {
		all[i] = w.Place
	}
	return all
}

// join puts a claim in the line, or keeps its place there. It returns the place,
// which is empty if the claim has none or the line is full. A full line first loses the places
// that are stale.
func (r *record) join(now time.Time, c *store.Claim) store.Place {
	if c.Place == "" {
		return ""
	}
	if i := r.place(c.Place); i >= 0 {
		r.line[i].Seen = now
		return c.Place
	}
	if len(r.line) >= store.LineMost {
		r.line = slices.DeleteFunc(r.line, r.seen(c.Key, now).Stale)
	}
	if len(r.line) >= store.LineMost {
		return ""
	}
	r.line = slices.Insert(r.line, c.Joins(r.line), c.Stands(now))
	return c.Place
}

// leave takes a place out of the line.
func (r *record) leave(p store.Place) {
	if i := r.place(p); i >= 0 {
		r.line = slices.Delete(r.line, i, i+1)
	}
}

// advance takes a claim that is granted out of the line, and with it those before it that did not
// count (Status.Turn): the places that it passes, and stale ones.
func (r *record) advance(now time.Time, c *store.Claim) {
	if len(r.line) == 0 {
		return
	}
	s, before := r.seen(c.Key, now), true
	r.line = slices.DeleteFunc(r.line, func(w store.Waiter) bool {
		if w.Place == c.Place {
			before = false
			return true
		}
		return before && (s.Passes(c, w) || s.Stale(w))
	})
}
