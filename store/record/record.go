// Package record has the rules of a key, for stores that can change the record of a key as a whole: in
// memory, in a file, or as one row or value of a database that can compare and swap it.
//
//	var k record.Key                   // a free key without waiters
//	grant, err := k.Claim(now, &claim) // then the store keeps k, or removes it if k.Empty()
//
// A [Key] is a value. Its methods read no clock, take no lock, and do no I/O: the store makes each
// of them one step, tells the time, draws the tokens, and reports what went wrong in doing so. Package
// store numbers the duties of a store; the comments here say which of them a rule carries out.
// docs/internals/stores.md says which of them are left to the store, and shows one.
package record

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A Key is the record of one key: its holders, live or expired, and its waiters. The zero Key is that
// of a free key. A Key can be kept as JSON.
type Key struct {
	Mode    store.Mode     `json:"mode"` // of the holders
	Holders []Holder       `json:"holders"`
	Line    []store.Waiter `json:"line,omitempty"`
	Freed   time.Time      `json:"freed,omitzero"` // when a holder last left
	Used    time.Duration  `json:"used,omitempty"` // how long that one had the key, as it said
}

// A Holder is one acquisition of a key, live or expired.
type Holder struct {
	ID       string    `json:"id"`
	Owner    string    `json:"owner"`
	Note     string    `json:"note"`
	Since    time.Time `json:"since"`
	ExpireAt time.Time `json:"expireAt"`
	Yields   string    `json:"yields,omitempty"`
	Weight   int       `json:"weight,omitempty"`   // how many permits it has; 0 stands for 1
	Released bool      `json:"released,omitempty"` // its lease was released; the key stays taken until ExpireAt
	Broken   bool      `json:"broken,omitempty"`   // a field of its own, because Reason may be empty
	Reason   string    `json:"reason,omitempty"`

	// Moved is by how much the store has put off ExpireAt, beyond what was asked for, since the last
	// grant or renewal. Only a store whose clock may be replaced needs it (filestore).
	Moved time.Duration `json:"moved,omitempty"`
}

// Check refuses a mode that no key can have. A store asks it before a call does anything.
func Check(m store.Mode) error {
	switch m {
	case store.Exclusive, store.Shared, store.Permits:
		return nil
	}
	return fmt.Errorf("mode %q: %w (%w)", m, errors.ErrUnsupported, store.ErrNotApplied)
}

// Verify returns why a key that was read cannot be judged, or nil. Such a record is foreign (duty 10).
func (k *Key) Verify() error {
	if len(k.Holders) > 0 && Check(k.Mode) != nil {
		return fmt.Errorf("holders in mode %q", k.Mode)
	}
	if slices.ContainsFunc(k.Holders, func(h Holder) bool { return h.ID == "" || h.ExpireAt.IsZero() }) {
		return errors.New("a holder without ID or time")
	}
	if slices.ContainsFunc(k.Line, func(w store.Waiter) bool { return w.Place == "" || w.Seen.IsZero() }) {
		return errors.New("a waiter without place or time")
	}
	return nil
}

// Empty reports whether nothing is left of a key. A store then removes its record (duty 13); a record
// without holders stays for its line (duty 15).
func (k Key) Empty() bool { return len(k.Holders) == 0 && len(k.Line) == 0 }

// Claim grants the key to a claim, or refuses it. The refused claim joins the line, if it has a
// Place; its error is a *store.HeldError with that Place, or a *store.MismatchError. The store gives
// the Grant a Token. It shortens Left if its clock may run slower than the claimant's.
//
// Duty 13: sharers come together, each judged by its own Limit; a writer waits for all, and all wait for
// a writer; sharers of another mode are a mismatch, and do not wait. Duty 15: a key is granted only in
// turn.
func (k *Key) Claim(now time.Time, c *store.Claim) (store.Grant, error) {
	s := k.seen(c.Key, now)
	taken, beside := s.Taken(), c.Mode != store.Exclusive && s.Mode != store.Exclusive
	switch {
	case taken > 0 && beside && s.Mode != c.Mode:
		k.leave(c.Place)
		return store.Grant{}, &store.MismatchError{Key: c.Key, Live: s.Mode, Claim: *c}
	case k.holder(c.ID) != nil: // duty 4: a copy of the claim came before. It does not wait for itself
		return store.Grant{}, &store.HeldError{Status: k.Status(c.Key, now)}
	case taken > 0 && (!beside || c.Mode == store.Permits && taken+max(1, c.Weight) > c.Limit), !s.Turn(c):
		s.Line = k.join(s, c)
		refusal := &store.HeldError{Status: s}
		if k.place(c.Place) >= 0 {
			refusal.Place = c.Place
		}
		return store.Grant{}, refusal // duty 6: the Status seen after it
	}
	k.pass(s, c)
	k.bury(now)
	return k.add(now, c), nil
}

// Transfer puts a claim in the place of a live exclusive holder. The line stays as it is, but for the
// claim's own place.
func (k *Key) Transfer(now time.Time, from store.Ref, to *store.Claim) (store.Grant, error) {
	switch {
	case from.Mode != store.Exclusive || to.Mode != store.Exclusive:
		return store.Grant{}, fmt.Errorf("transfer: %w: only an exclusive holder has a place to give (%w)", errors.ErrUnsupported, store.ErrNotApplied)
	case from.Key != to.Key:
		return store.Grant{}, fmt.Errorf("%w: transfer of %q to another key, %q", store.ErrNotApplied, from.Key, to.Key)
	}
	if _, err := k.renewable(now, from.ID); err != nil {
		return store.Grant{}, err
	}
	k.Holders = k.Holders[:0]
	k.leave(to.Place)
	return k.add(now, to), nil
}

// Renew restarts the TTL of a holder. Duty 7: it never creates, moves or shortens one. The store shortens
// Left as for a Grant, and puts an error into the answer.
func (k *Key) Renew(now time.Time, r store.Renewal) (store.Renewed, error) {
	h, err := k.renewable(now, r.ID)
	if err != nil {
		return store.Renewed{}, err
	}
	if end := now.Add(r.TTL); end.After(h.ExpireAt) {
		h.ExpireAt = end
	}
	h.Moved = 0
	return store.Renewed{Left: r.TTL, Line: k.places()}, nil
}

// Release removes a holder, live or expired. With Keep the holder stays until Keep after its grant,
// as Released. Duty 14: an absent holder is ErrGone.
func (k *Key) Release(now time.Time, e store.ReleaseRequest) (store.ReleaseResult, error) {
	h := k.holder(e.ID)
	if h == nil {
		return store.ReleaseResult{}, store.ErrGone
	}
	if until := h.Since.Add(e.Keep); e.Keep > 0 && until.After(now) {
		h.Released, h.ExpireAt = true, until
	} else {
		k.Used = e.Used
		k.drop(now, e.ID)
	}
	s := k.seen(e.Key, now)
	return store.ReleaseResult{Line: s.Waiting(""), HoldersLeft: s.Taken()}, nil
}

// Break marks a holder as broken and, with atOnce, removes it.
func (k *Key) Break(now time.Time, id, reason string, atOnce bool) error {
	h := k.holder(id)
	if h == nil {
		return store.ErrGone
	}
	h.Broken, h.Reason = true, reason
	if atOnce {
		k.drop(now, id)
	}
	return nil
}

// Undo removes what a claim left, and the holder that it was to replace. It knows nothing of a
// claim that arrives later: a store where that can happen remembers the ID, and refuses it.
func (k *Key) Undo(now time.Time, claim store.Ref, from *store.Ref) {
	k.drop(now, claim.ID)
	if from != nil {
		k.drop(now, from.ID)
	}
}

// Leave takes a place out of the line, and returns the key as it is then.
func (k *Key) Leave(now time.Time, key string, p store.Place) store.Status {
	k.leave(p)
	return k.Status(key, now)
}

func (k *Key) leave(p store.Place) {
	if i := k.place(p); i >= 0 {
		k.Line = slices.Delete(k.Line, i, i+1)
	}
}

// Status returns what people and the engine are shown of a key. Duty 11: it shares nothing with k.
func (k Key) Status(key string, now time.Time) store.Status {
	s := k.seen(key, now)
	s.Line = slices.Clone(s.Line)
	return s
}

// seen is Status, but shares the line with k. Its methods judge by now alone, who is live, stale or
// passed, and whose turn it is (duty 2).
func (k *Key) seen(key string, now time.Time) store.Status {
	s := store.Status{Key: key, Now: now, Line: k.Line, Freed: k.Freed, Used: k.Used}
	if len(k.Holders) == 0 {
		return s
	}
	s.Mode = k.Mode
	s.Holders = make([]store.Holder, len(k.Holders))
	for i, h := range k.Holders {
		s.Holders[i] = store.Holder{
			ID: h.ID, Owner: h.Owner, Note: h.Note, Since: h.Since, ExpireAt: h.ExpireAt,
			Broken: h.Reason, Released: h.Released, Yields: h.Yields, Weight: h.Weight,
		}
	}
	slices.SortStableFunc(s.Holders, func(a, b store.Holder) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return s
}

// holder returns the holder with that ID, live or expired, or nil. Duty 3: nothing else is named.
func (k *Key) holder(id string) *Holder {
	for i := range k.Holders {
		if k.Holders[i].ID == id {
			return &k.Holders[i]
		}
	}
	return nil
}

// renewable returns a holder that can be renewed or transferred, and refuses others. That a holder
// was broken is said even if it has expired; a released one is gone in any case.
func (k *Key) renewable(now time.Time, id string) (*Holder, error) {
	h := k.holder(id)
	switch {
	case h == nil || h.Released:
		return nil, store.ErrGone
	case h.Broken:
		return nil, &store.BrokenError{Reason: h.Reason}
	case !h.ExpireAt.After(now):
		return nil, store.ErrGone
	}
	return h, nil
}

// add makes a claim a holder. Duty 1: holder and end appear together.
func (k *Key) add(now time.Time, c *store.Claim) store.Grant {
	k.Mode = c.Mode
	k.Holders = append(k.Holders, Holder{
		ID: c.ID, Owner: c.Owner, Note: c.Note, Since: now, ExpireAt: now.Add(c.TTL), Yields: c.Yields, Weight: c.Weight,
	})
	return store.Grant{Left: c.TTL, Since: now, Line: k.places()}
}

// drop removes a holder, if it is there.
func (k *Key) drop(now time.Time, id string) {
	k.remove(now, func(h Holder) bool { return h.ID == id })
}

// bury removes the holders that have expired. If none is live, the next one may have another mode.
func (k *Key) bury(now time.Time) {
	k.remove(now, func(h Holder) bool { return !h.ExpireAt.After(now) })
}

// remove removes holders. Duty 15: a record that stays says when one last left it.
func (k *Key) remove(now time.Time, is func(Holder) bool) {
	before := len(k.Holders)
	if k.Holders = slices.DeleteFunc(k.Holders, is); len(k.Holders) < before {
		k.Freed = now
	}
}

// place returns the index of a place in line, or -1.
func (k *Key) place(p store.Place) int {
	return slices.IndexFunc(k.Line, func(w store.Waiter) bool { return w.Place == p })
}

// places returns who waits. The slice belongs to the caller.
func (k *Key) places() []store.Place {
	if len(k.Line) == 0 {
		return nil
	}
	all := make([]store.Place, len(k.Line))
	for i, w := range k.Line {
		all[i] = w.Place
	}
	return all
}

// join puts a claim that has a place in the line, or keeps its place there, and returns a copy of
// the line. A full line first loses the places that are stale; if it is still full the claim does not
// join. Duty 15: the claim comes last, or, if it was passed, before those that came later.
func (k *Key) join(s store.Status, c *store.Claim) []store.Waiter {
	i := k.place(c.Place)
	if i < 0 && len(k.Line) >= store.LineMost && c.Place != "" {
		k.Line = slices.DeleteFunc(k.Line, s.Stale)
	}
	switch {
	case i >= 0:
		k.Line[i].Seen = s.Now
	case c.Place != "" && len(k.Line) < store.LineMost:
		k.Line = slices.Insert(k.Line, c.Joins(k.Line), c.Stands(s.Now))
	}
	return slices.Clone(k.Line)
}

// pass takes a claim that is granted out of the line, and with it those before it that did not
// count when its turn was judged: the places that it passes, and stale ones.
func (k *Key) pass(s store.Status, c *store.Claim) {
	before := true
	k.Line = slices.DeleteFunc(k.Line, func(w store.Waiter) bool {
		own := w.Place == c.Place
		before = before && !own
		return own || before && (s.Passes(c, w) || s.Stale(w))
	})
}
