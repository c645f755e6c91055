package memstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A record is the data of a key: holders, live or expired, and those who wait; or content that
// is not of this library. A record without holders stays only for its line.
type record struct {
	mode    store.Mode
	holders []holder
	line    []store.Waiter
	freed   time.Time     // when a holder last left
	used    time.Duration // how long it had the key

	foreign bool
	content any // of a foreign record
}

type holder struct {
	id, owner, note string
	since, expireAt time.Time

	yields   string
	weight   int  // 0 stands for 1
	released bool // the key stays taken until expireAt
	broken   bool // a field of its own, because reason may be empty
	reason   string
}

func (h *holder) live(now time.Time) bool { return h.expireAt.After(now) }

// live counts the holders that have not expired, and of permits how many they have.
func (r *record) live(now time.Time) (n int) {
	for i := range r.holders {
		if r.holders[i].live(now) {
			n += max(1, r.holders[i].weight)
		}
	}
	return n
}

// index returns the index of the holder with that ID, or -1.
func (r *record) index(id string) int {
	return slices.IndexFunc(r.holders, func(h holder) bool { return h.id == id })
}

// refuse returns why a claim is not granted, or nil if it is. Unless the key is in use in
// another mode, the claim then waits.
func (r *record) refuse(now time.Time, c *store.Claim) error {
	live, shares := r.live(now), c.Mode != store.Exclusive
	switch {
	case live > 0 && shares && r.mode != store.Exclusive && r.mode != c.Mode:
		r.leave(c.Place)
		return &store.MismatchError{Key: c.Key, Live: r.mode, Claim: *c}
	case r.index(c.ID) >= 0: // a copy of the claim came before: it does not wait for itself
		return &store.HeldError{Status: r.status(c.Key, now)}
	case live > 0 && (!shares || r.mode == store.Exclusive || c.Mode == store.Permits && live+max(1, c.Weight) > c.Limit),
		len(r.line) > 0 && !r.seen(c.Key, now).Turn(c):
		place := r.join(now, c)
		return &store.HeldError{Status: r.status(c.Key, now), Place: place}
	}
	return nil
}

// bury removes the expired holders. If none is live it removes all of them, and the next holder
// may have another mode.
func (r *record) bury(now time.Time) {
	before := len(r.holders)
	if r.holders = slices.DeleteFunc(r.holders, func(h holder) bool { return !h.live(now) }); len(r.holders) < before {
		r.freed = now
	}
}

// add makes c a holder.
func (r *record) add(now time.Time, c *store.Claim) {
	r.mode = c.Mode
	r.holders = append(r.holders, holder{
		id: c.ID, owner: c.Owner, note: c.Note,
		since: now, expireAt: now.Add(c.TTL), yields: c.Yields, weight: c.Weight,
	})
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// status returns a copy, which belongs to the caller.
func (r *record) status(key string, now time.Time) store.Status {
	s := r.seen(key, now)
	s.Line = slices.Clone(s.Line)
	return s
}

// seen is status, but shares the line with the record.
func (r *record) seen(key string, now time.Time) store.Status {
	if r == nil || r.foreign {
		return store.Status{Key: key, Now: now}
	}
	s := store.Status{Key: key, Now: now, Line: r.line, Freed: r.freed, Used: r.used}
	if len(r.holders) == 0 {
		return s
	}
	s.Mode = r.mode
	s.Holders = make([]store.Holder, len(r.holders)) // in the order in which they came
	for i, h := range r.holders {
		s.Holders[i] = store.Holder{
			ID: h.id, Owner: h.owner, Note: h.note,
			Since: h.since, ExpireAt: h.expireAt, Broken: h.reason, Released: h.released, Yields: h.yields, Weight: h.weight,
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

// foreignError is nil unless the record is foreign.
func (r *record) foreignError(key string) error {
	if r == nil || !r.foreign {
		return nil
	}
	return fmt.Errorf("%w: %q has %T", store.ErrForeign, key, r.content)
}
