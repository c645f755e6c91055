package memstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A record is what stands under a key: holders, live or run out, or something that
// is not of this library. A key without a record is free, and so is one whose
// record was left, empty, for a writer who waits.
type record struct {
	mode    store.Mode
	limit   int
	holders []holder

	// The words of those who wait survive a change of holder, not the record.
	wantedUntil          time.Time
	exclusiveWantedUntil time.Time

	foreign bool
	content any // of a foreign record
}

type holder struct {
	id, owner, note string
	since, expireAt time.Time

	released bool // but kept until expireAt
	broken   bool // apart from reason, which may be empty
	reason   string
}

func (h *holder) live(now time.Time) bool { return h.expireAt.After(now) }

// live counts the holders that have not run out.
func (r *record) live(now time.Time) (n int) {
	for i := range r.holders {
		if r.holders[i].live(now) {
			n++
		}
	}
	return n
}

// index is where the holder of that ID is, -1 if there is none.
func (r *record) index(id string) int {
	return slices.IndexFunc(r.holders, func(h holder) bool { return h.id == id })
}

// refuse is why a claim is not granted: nil if it is.
func (r *record) refuse(now time.Time, c *store.Claim) error {
	live, shares := r.live(now), c.Mode != store.Exclusive
	switch {
	case live > 0 && shares && r.mode != store.Exclusive && (r.mode != c.Mode || r.limit != c.Limit):
		return &store.MismatchError{Key: c.Key, Live: r.mode, Limit: r.limit, Claim: *c}
	case shares && r.exclusiveWantedUntil.After(now), // who waits for the key alone comes first
		live > 0 && (!shares || r.mode == store.Exclusive),
		shares && live > 0 && c.Mode == store.Permits && live >= r.limit,
		r.index(c.ID) >= 0: // its own twin
		r.want(now, c)
		return &store.HeldError{Status: r.status(c.Key, now)}
	}
	return nil
}

// bury removes those who ran out: all there are, where the mode begins anew.
func (r *record) bury(now time.Time) {
	r.holders = slices.DeleteFunc(r.holders, func(h holder) bool { return !h.live(now) })
}

// add makes c a holder.
func (r *record) add(now time.Time, c *store.Claim) {
	r.mode, r.limit = c.Mode, c.Limit
	if c.Mode == store.Exclusive {
		r.exclusiveWantedUntil = time.Time{} // a writer was served; others leave theirs when there are readers again
	}
	r.holders = append(r.holders, holder{
		id: c.ID, owner: c.Owner, note: c.Note,
		since: now, expireAt: now.Add(c.TTL),
	})
}

// want leaves word if the claim asks for it; it never shortens another's.
func (r *record) want(now time.Time, c *store.Claim) {
	if c.Want <= 0 {
		return
	}
	r.wantedUntil = later(r.wantedUntil, now.Add(c.Want))
	if c.Mode == store.Exclusive && r.mode != store.Exclusive {
		r.exclusiveWantedUntil = later(r.exclusiveWantedUntil, now.Add(c.Reserve()))
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (r *record) wanted(now time.Time) bool {
	return r.wantedUntil.After(now) || r.exclusiveWantedUntil.After(now)
}

// silent reports whether nobody ever left word: then nobody need ask the time.
func (r *record) silent() bool { return r.wantedUntil.IsZero() && r.exclusiveWantedUntil.IsZero() }

// status is a copy; the caller owns it.
func (r *record) status(key string, now time.Time) store.Status {
	if r == nil || r.foreign {
		return store.Status{Key: key, Now: now}
	}
	s := store.Status{Key: key, Now: now, Wanted: r.wanted(now), ExclusiveWantedUntil: r.exclusiveWantedUntil}
	if len(r.holders) == 0 {
		return s
	}
	s.Mode, s.Limit = r.mode, r.limit
	s.Holders = make([]store.Holder, len(r.holders)) // by Since, as they came
	for i, h := range r.holders {
		s.Holders[i] = store.Holder{
			ID: h.id, Owner: h.owner, Note: h.note,
			Since: h.since, ExpireAt: h.expireAt, Broken: h.reason,
		}
	}
	if len(s.Holders) > 1 {
		slices.SortStableFunc(s.Holders, bySince)
	}
	return s
}

func bySince(a, b store.Holder) int {
	if d := a.Since.Compare(b.Since); d != 0 {
		return d
	}
	if a.ID < b.ID {
		return -1
	}
	return 1
}

func (r *record) foreignError(key string) error {
	return fmt.Errorf("%w: %q has %T", store.ErrForeign, key, r.content)
}
