package store

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Place names one waiter in the line of a key. It has the waiter's mode, the address at which
// its process hears notices, and a random part, so that no place is ever used twice. It contains
// neither a dot nor a dollar sign, and has at most 64 bytes.
type Place string

// NewPlace makes a place for a claim of that mode, limit and weight. A process that hears no notices
// has no address: it polls. An address has neither a colon nor a dot nor a dollar sign, and at most
// 32 bytes.
func NewPlace(m Mode, limit, weight int, address string) Place {
	mark := "x"
	switch m {
	case Shared:
		mark = "s"
	case Permits:
		mark = "p" + strconv.Itoa(limit)
		if weight > 1 {
			mark += "w" + strconv.Itoa(weight)
		}
	}
	return Place(mark + ":" + address + ":" + rand.Text()[:10])
}

// Weight returns how many permits the claim takes that waits, 1 if the place says nothing.
func (p Place) Weight() int {
	mark, _, _ := strings.Cut(string(p), ":")
	if _, weight, says := strings.Cut(mark, "w"); says {
		if n, err := strconv.ParseInt(weight, 10, 32); err == nil && n > 0 { // their sum is no more than an int
			return int(n)
		}
	}
	return 1
}

// Mode returns the mode of the claim that waits, and its limit. The mode is empty for a place
// that is none of this library's. Such a place is never offered a key.
func (p Place) Mode() (m Mode, limit int) {
	mark, rest, _ := strings.Cut(string(p), ":")
	if !strings.Contains(rest, ":") {
		return "", 0
	}
	switch {
	case mark == "x":
		return Exclusive, 1
	case mark == "s":
		return Shared, 0
	case strings.HasPrefix(mark, "p"):
		permits, _, _ := strings.Cut(mark[1:], "w")
		if limit, err := strconv.Atoi(permits); err == nil && limit > 0 {
			return Permits, limit
		}
	}
	return "", 0
}

// Address returns the address to which notices for this place are sent. It is empty if the
// waiter's process hears none.
func (p Place) Address() string {
	_, rest, _ := strings.Cut(string(p), ":")
	address, _, _ := strings.Cut(rest, ":")
	return address
}

// The bounds of a line.
const (
	// LineMost is how many places a line has. Further waiters have none: they try now and then.
	LineMost = 64

	// PlaceFor is how long a place counts after its waiter was last seen.
	PlaceFor = 90 * time.Second

	// ReserveFor is the same for a writer, or a claim of several permits, that waits while others
	// share the key. If that waiter has died, it keeps out new sharers that would not have to wait.
	ReserveFor = 30 * time.Second
)

// A Waiter is a place in a line, with what people are shown of it.
type Waiter struct {
	Place Place     `json:"place"`
	Owner string    `json:"owner"`
	Since time.Time `json:"since"`          // when it joined the line
	Seen  time.Time `json:"seen"`           // when it last said that it still waits
	Slow  bool      `json:"slow,omitempty"` // its process was passed lately, although it lives
}

// Format shows the waiter under every verb of package fmt.
func (w Waiter) Format(f fmt.State, _ rune) {
	mode, _ := w.Place.Mode()
	if n := w.Place.Weight(); n > 1 {
		mode += Mode(fmt.Sprintf(" of weight %d", n))
	}
	_, _ = fmt.Fprintf(f, "{%s, owner %q, since %s}", mode, w.Owner, w.Since.Format(time.RFC3339Nano))
}

// LogValue shows the waiter in a log.
func (w Waiter) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(w)) }

// Stale reports whether a place no longer counts, because its waiter was not seen for PlaceFor. For a
// writer, or a waiter that wants several permits, it is ReserveFor while others share the key. A place that was seen further
// ahead than shards' clocks are apart counts no more either: no waiter keeps it.
func (s Status) Stale(w Waiter) bool {
	most := PlaceFor
	if mode, _ := w.Place.Mode(); (mode == Exclusive || w.Place.Weight() > 1) && s.Mode != Exclusive && !s.Free() {
		most = ReserveFor
	}
	return !w.Seen.Add(most).After(s.Now) || w.Seen.After(s.Now.Add(time.Hour+PlaceFor))
}

// Waiting returns the places that count, in their order: without those that are stale, but own.
// own, which may be empty, counts always.
func (s Status) Waiting(own Place) (line []Place) {
	for _, w := range s.Line {
		if w.Place == own || !s.Stale(w) {
			line = append(line, w.Place)
		}
	}
	return line
}

// calculated is how much may lie between two answers of when a holder ran out, where that is no date that
// the record has.
const calculated = 5 * time.Millisecond

// Passes reports whether a claim passes a place that comes before its own.
func (s Status) Passes(c *Claim, w Waiter) bool {
	if c.Unseen.IsZero() || c.Place == "" || w.Seen.After(c.Unseen) || s.OfferedSince().After(c.Unseen.Add(calculated)) {
		return false
	}
	mode, limit := w.Place.Mode()
	return s.Free() || mode != Exclusive && mode == s.Mode && (mode == Shared || s.Taken()+w.Place.Weight() <= limit)
}

// OfferedSince returns since when the key is free, or partly free, for those in line: when a holder
// last left, or ran out. It is zero if that is not known.
func (s Status) OfferedSince() time.Time {
	since := s.Freed
	for _, h := range s.Holders {
		if end := h.end(); !s.Live(h) && end.After(since) {
			since = end
		}
	}
	return since
}

// OfferedFor returns for how long the key has been offered, or 0 if that is not known.
func (s Status) OfferedFor() time.Duration {
	since := s.OfferedSince()
	if since.IsZero() {
		return 0
	}
	return max(0, s.Now.Sub(since))
}

// Joins returns at which index of a line a claim joins it: at the end, or, if it was passed, before
// those that came later.
func (c *Claim) Joins(line []Waiter) int {
	if i := slices.IndexFunc(line, func(w Waiter) bool { return w.Since.After(c.Since) }); i >= 0 && !c.Since.IsZero() {
		return i
	}
	return len(line)
}

// Stands returns what the store keeps of a claim that joins a line.
func (c *Claim) Stands(now time.Time) Waiter {
	w := Waiter{Place: c.Place, Owner: c.Owner, Since: now, Seen: now, Slow: c.Slow}
	if !c.Since.IsZero() {
		w.Since, w.Slow = c.Since, true
	}
	return w
}

// Offered returns how many of the first places in line may have the key now, in whatever order they
// claim it. That is one writer, or the readers up to the first writer, or the permits up to the first
// that does not fit. With it and those before it, no more may be taken than any of them allows by its
// own limit. line is what Waiting returned.
func (s Status) Offered(line []Place) (n int) { return s.OfferedBeside(line, s.Taken()) }

// OfferedBeside is Offered for a key of which so many permits are taken, or that has so many live
// holders, in the mode of the status.
func (s Status) OfferedBeside(line []Place, taken int) (n int) {
	if len(line) == 0 || taken > 0 && s.Mode == Exclusive {
		return 0
	}
	mode, most := line[0].Mode()
	if mode == "" || taken > 0 && mode != s.Mode {
		return 0
	}
	if mode == Exclusive {
		return 1
	}
	for _, p := range line {
		m, limit := p.Mode()
		taken, most = taken+p.Weight(), min(most, limit)
		if m != mode || mode == Permits && taken > most {
			break
		}
		n++
	}
	return n
}

// Turn reports whether the line lets a claim have the key. A claim whose place is not in line
// comes after all waiters. Turn takes no notice of holders that refuse the claim.
func (s Status) Turn(c *Claim) bool {
	var line []Place
	for _, w := range s.Line {
		if w.Place == c.Place || !s.Stale(w) && !s.Passes(c, w) {
			line = append(line, w.Place)
		}
	}
	i := slices.Index(line, c.Place)
	if i <= 0 || c.Place == "" {
		return len(line) == 0 || i == 0
	}
	return i < s.Offered(line)
}
