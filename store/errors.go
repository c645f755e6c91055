package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongolock/mongolock/internal/errtext"
)

// The verdicts of a store, and the marks that a fault can carry.
var (
	// ErrHeld matches every HeldError.
	ErrHeld = errors.New("mongolock: held")

	// ErrModeMismatch matches every MismatchError.
	ErrModeMismatch = errors.New("mongolock: key is in use in another mode")

	// ErrGone answers a call on an acquisition that no longer holds anything: it was released,
	// transferred or removed by hand, or it expired.
	ErrGone = errors.New("mongolock: no such holder")

	// ErrForeign answers every call on a key whose record is not of this library, or was
	// written by a newer version. Such a record is never changed.
	ErrForeign = errors.New("mongolock: not a lock of this library")

	// ErrTooLarge refuses a further holder because the record would come near the
	// store's size limit.
	ErrTooLarge = errors.New("mongolock: too many holders for one record")

	// ErrNotApplied is joined to a fault that certainly left no trace.
	ErrNotApplied = errors.New("mongolock: not applied")

	// ErrPlaceUnknown is joined to a fault of a claim that was not applied, if its place may be
	// in the line all the same.
	ErrPlaceUnknown = errors.New("mongolock: its place may be in line")

	// ErrDisconnected is joined to a fault after which no call of this store can
	// succeed any more: the connection under it was closed for good.
	ErrDisconnected = errors.New("mongolock: disconnected for good: close the client before you disconnect")
)

// IsVerdict reports whether err is a store's certain refusal (duty 8): a HeldError,
// MismatchError or BrokenError, or an error that matches ErrGone, ErrForeign or ErrTooLarge.
// The store was reached and refused because of the key's state: nothing was applied and nothing
// will be.
func IsVerdict(err error) bool {
	broken := errors.As(err, new(*BrokenError))
	return broken || errors.Is(err, ErrHeld) || errors.Is(err, ErrModeMismatch) ||
		errors.Is(err, ErrGone) || errors.Is(err, ErrForeign) || errors.Is(err, ErrTooLarge)
}

// IsCertain reports whether err says that nothing was applied and nothing will be:
// it is a verdict, or a fault that matches ErrNotApplied. After any other error the
// store may have done what was asked, or may do it yet.
func IsCertain(err error) bool { return IsVerdict(err) || errors.Is(err, ErrNotApplied) }

// HeldError refuses a claim because others hold the key, or come before it in line. It embeds the
// Status seen after the refusal and matches ErrHeld. That Status may have no holders: they may
// have left since, the key may be offered to others, or a waiter that gives up may not have seen
// any holder.
type HeldError struct {
	Status

	// Place is the claimant's place in line. It is empty if the claimant does not wait.
	Place Place

	// Here says that the client that asked holds the key itself. A store leaves it to the client.
	Here bool
}

// Ahead returns how many waiters come before the claimant, or all if it does not wait.
func (e *HeldError) Ahead() int {
	line := e.Waiting(e.Place)
	if i := slices.Index(line, e.Place); i >= 0 && e.Place != "" {
		return i
	}
	return len(line)
}

func (e *HeldError) Error() string {
	var first *Holder // that works, if one does
	live, confirming, released := 0, 0, 0
	for i, h := range e.Holders {
		if !e.Live(h) {
			continue
		}
		if live++; first == nil || first.Released && !h.Released {
			first = &e.Holders[i]
		}
		if h.Released {
			released++
		}
		if e.Confirming(h) {
			confirming++
		}
	}
	ahead, is := e.Ahead(), "held"
	switch {
	case live > 0 && released == live:
		is = "kept"
	case live == 0 && ahead > 0:
		is = "free"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "mongolock: %s is %s", errtext.Key(e.Key), is)
	if first != nil {
		b.WriteString(" by ")
		if e.Here && live == 1 {
			b.WriteString("this process, ")
		}
		b.WriteString(first.Owner)
		if first.Note != "" {
			fmt.Fprintf(&b, " (%s)", first.Note)
		}
		if first.Weight > 1 {
			fmt.Fprintf(&b, " with %d permits", first.Weight)
		}
	}
	if live > 1 {
		fmt.Fprintf(&b, " and %d more", live-1)
		if e.Here {
			b.WriteString(", this process among them")
		}
	}
	switch left := e.Left(); {
	case left > 0 && confirming == live:
		fmt.Fprintf(&b, ", which ran out; that will be confirmed within %v", left.Round(time.Millisecond))
	case is == "kept":
		fmt.Fprintf(&b, ", which released it, for another %v", left.Round(time.Millisecond))
	case left > 0:
		fmt.Fprintf(&b, " for another %v unless renewed", left.Round(time.Millisecond))
	}
	switch {
	case ahead == 1:
		b.WriteString("; 1 waiter comes first")
	case ahead > 1:
		fmt.Fprintf(&b, "; %d waiters come first", ahead)
	}
	return b.String()
}

// Is makes a HeldError match ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// MismatchError refuses a claim because the key's live holders share it in another mode: it is for
// readers, and they have permits, or the reverse. An exclusive claim or holder is never a mismatch.
// It matches ErrModeMismatch.
type MismatchError struct {
	Key   string
	Live  Mode
	Claim Claim
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("mongolock: %s is in use as %s, not as %s", errtext.Key(e.Key), e.Live, e.Claim.Mode)
}

// Is makes a MismatchError match ErrModeMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrModeMismatch }

// BrokenError refuses to renew or transfer a holder that an operator broke.
type BrokenError struct{ Reason string }

func (e *BrokenError) Error() string { return "mongolock: broken: " + e.Reason }
