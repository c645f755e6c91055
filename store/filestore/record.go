package filestore

import (
	"slices"
	"strings"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A record is the content of a key's file, in JSON.
type record struct {
	Mongolock int          `json:"mongolock"` // the version of this shape; marks the file as ours
	Key       string       `json:"key"`
	At        time.Time    `json:"at"`   // when it was written
	Boot      string       `json:"boot"` // the start of the host from which the record's time counts
	Zero      time.Time    `json:"zero"` // the date of that start, as the record counts; see timepiece
	Mode      store.Mode   `json:"mode"`
	Holders   []fileHolder `json:"holders"`

	Line  []store.Waiter `json:"line,omitempty"`
	Freed time.Time      `json:"freed,omitzero"` // when a holder last left
	Used  time.Duration  `json:"used,omitempty"` // how long it had the key
}

type fileHolder struct {
	ID       string    `json:"id"`
	Owner    string    `json:"owner"`
	Note     string    `json:"note"`
	Since    time.Time `json:"since"`
	ExpireAt time.Time `json:"expireAt"`
	Weight   int       `json:"weight,omitempty"`   // how many permits it has; 0 stands for 1
	Released bool      `json:"released,omitempty"` // the key stays taken until ExpireAt
	Broken   bool      `json:"broken,omitempty"`   // a field of its own, because Reason may be empty
	Reason   string    `json:"reason,omitempty"`

	Moved time.Duration `json:"moved,omitempty"` // how much later it ends since its last write, by record.move
}

func (h *fileHolder) live(now time.Time) bool { return h.ExpireAt.After(now) }

// live counts the holders that have not expired, and of permits how many they have.
func (r *record) live(now time.Time) (n int) {
	for i := range r.Holders {
		if r.Holders[i].live(now) {
			n += max(1, r.Holders[i].Weight)
		}
	}
	return n
}

// holder returns the holder of that ID, live or expired, or nil.
func (r *record) holder(id string) *fileHolder {
	i := slices.IndexFunc(r.Holders, func(h fileHolder) bool { return h.ID == id })
	if i < 0 {
		return nil
	}
	return &r.Holders[i]
}

// renewable returns the holder that a Ref names if the holder can be renewed or transferred.
func (r *record) renewable(ref store.Ref, now time.Time) (*fileHolder, error) {
	h := r.holder(ref.ID)
	switch {
	case h == nil || h.Released:
		return nil, store.ErrGone
	case h.Broken:
		return nil, &store.BrokenError{Reason: h.Reason}
	case !h.live(now):
		return nil, store.ErrGone
	}
	return h, nil
}

// refuse returns why a claim is not granted, or nil if it is. Unless the key is in use in
// another mode, the claim then waits.
func (r *record) refuse(now time.Time, c store.Claim) (change, error) {
	live, shares := r.live(now), c.Mode != store.Exclusive
	switch {
	case live > 0 && shares && r.Mode != store.Exclusive && r.Mode != c.Mode:
		return r.leave(c.Place), &store.MismatchError{Key: c.Key, Live: r.Mode, Claim: c}
	case r.holder(c.ID) != nil: // a copy of the claim came before: it does not wait for itself
		return leave, &store.HeldError{Status: r.status(now)}
	case live > 0 && (!shares || r.Mode == store.Exclusive || c.Mode == store.Permits && live+max(1, c.Weight) > c.Limit),
		len(r.Line) > 0 && !r.status(now).Turn(&c):
		what := leave
		place := r.join(now, c)
		if place != "" {
			what = write
		}
		return what, &store.HeldError{Status: r.status(now), Place: place}
	}
	return write, nil
}

// admit makes c a holder, removes the expired ones, and takes c out of the line.
func (r *record) admit(now time.Time, c store.Claim) {
	r.advance(now, c)
	before := len(r.Holders)
	if r.Holders = slices.DeleteFunc(r.Holders, func(h fileHolder) bool { return !h.live(now) }); len(r.Holders) < before {
		r.Freed = now
	}
	r.add(now, c)
}

func (r *record) add(now time.Time, c store.Claim) {
	r.Mode = c.Mode
	r.Holders = append(r.Holders, fileHolder{
		ID: c.ID, Owner: c.Owner, Note: c.Note, Since: now, ExpireAt: now.Add(c.TTL), Weight: c.Weight,
	})
}

// drop removes a holder, and the record if nothing is left in it.
func (r *record) drop(id string, now time.Time) change {
	r.Freed = now
	r.Holders = slices.DeleteFunc(r.Holders, func(h fileHolder) bool { return h.ID == id })
	return r.tidy()
}

// tidy keeps a record that has holders or a line.
func (r *record) tidy() change {
	if len(r.Holders) > 0 || len(r.Line) > 0 {
		return write
	}
	return remove
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// status returns the record as Look and List show it.
func (r *record) status(now time.Time) store.Status {
	s := store.Status{Key: r.Key, Now: now, Line: slices.Clone(r.Line), Freed: r.Freed, Used: r.Used}
	if len(r.Holders) == 0 {
		return s
	}
	s.Mode = r.Mode
	for _, h := range r.Holders {
		s.Holders = append(s.Holders, store.Holder{
			ID: h.ID, Owner: h.Owner, Note: h.Note, Since: h.Since, ExpireAt: h.ExpireAt, Broken: h.Reason, Released: h.Released, Weight: h.Weight,
		})
	}
	slices.SortStableFunc(s.Holders, func(a, b store.Holder) int {
		if d := a.Since.Compare(b.Since); d != 0 {
			return d
		}
		return strings.Compare(a.ID, b.ID)
	})
	return s
}
