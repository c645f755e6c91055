// Package history records what the clients of a lock believed and what its database did,
// as events on one clock, and checks the record. The simulation and the chaos test both
// write histories, and both are judged by the same checks.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Kind says what happened.
type Kind string

// What a user of the library does and sees.
const (
	Called  Kind = "calls"    // asks for a key; Op joins the call with its answer
	Granted Kind = "has"      // got a lease
	Failed  Kind = "fails"    // got an error; Note says which
	Told    Kind = "is told"  // Done was closed
	LetGo   Kind = "lets go"  // calls Release, Detach or Close
	Freed   Kind = "released" // Release returned
	Looked  Kind = "looks"    // at this moment the lease was surely held: a look just after it said so
	Writes  Kind = "writes"   // begins a fenced write
	Wrote   Kind = "wrote"    // the fenced write was accepted
	Fenced  Kind = "fenced"   // the fenced write was refused for a newer token
)

// What the database did, as far as it was not rolled back.
const (
	Applied   Kind = "applied"   // shows a new holder
	Dropped   Kind = "dropped"   // no longer shows a holder
	Shortened Kind = "shortened" // ends a holder sooner than before
	Extended  Kind = "extended"  // ends a holder later than before
	Register  Kind = "register"  // a fenced register has a new token

	Stood Kind = "stands"      // has a new place in a line, at its end unless Behind says who comes after it
	Waits Kind = "still waits" // knows of a place that its waiter lives
	Left  Kind = "is left"     // has a place no more
)

// Trouble is a fault that was injected and lasted until Until.
const Trouble Kind = "trouble"

// An Event is one thing that happened.
type Event struct {
	At      time.Duration `json:"at"`
	Kind    Kind          `json:"kind"`
	Client  int           `json:"client"`
	Key     string        `json:"key,omitempty"`
	Op      int           `json:"op,omitempty"`
	ID      string        `json:"id,omitempty"`
	Token   int64         `json:"token,omitempty"`
	Began   time.Duration `json:"began,omitempty"`   // of what the database did: when the client began with the command
	Place   string        `json:"place,omitempty"`   // in a line; of a holder applied: its claim's, which it leaves thereby
	Behind  string        `json:"behind,omitempty"`  // of a new place: the one that comes after it
	Since   time.Duration `json:"since,omitempty"`   // of a new place: when it joined the line, as is said there; 0: clocks are too far apart to tell
	Owner   int           `json:"owner,omitempty"`   // of a place: its client
	Until   time.Duration `json:"until,omitempty"`   // of a call: when its caller gives up; of trouble: its end; of a holder: its expiry, on this clock; of a place: when it is stale, or 0 if clocks are too far apart to tell
	Written time.Duration `json:"written,omitempty"` // of a holder: its expiry by the clock of the server that wrote it, where that is another time
	Over    time.Duration `json:"over,omitempty"`    // of a holder: when others may know that it is over at the earliest, by its silence, where that is not its expiry
	Live    bool          `json:"live,omitempty"`    // of a holder dropped or shortened: its owner might still trust it
	Note    string        `json:"note,omitempty"`
	Mode                  // of a call, a grant, or a holder applied
}

func (e Event) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "client %d %s", e.Client, e.Kind)
	if e.Key != "" {
		fmt.Fprintf(&s, " %q", e.Key)
	}
	if e.Op != 0 {
		fmt.Fprintf(&s, " op %d", e.Op)
	}
	if e.ID != "" {
		fmt.Fprintf(&s, " %.4s", e.ID)
	}
	if mark, _, is := strings.Cut(e.Place, ":"); is { // the rest is drawn by chance
		fmt.Fprintf(&s, " place %s of client %d", mark, e.Owner)
	}
	if e.Token != 0 {
		fmt.Fprintf(&s, " token %d", e.Token)
	}
	if e.Until != 0 {
		fmt.Fprintf(&s, " until %v", e.Until)
	}
	if e.Live {
		s.WriteString(" alive")
	}
	if e.Note != "" {
		fmt.Fprintf(&s, " (%s)", e.Note)
	}
	return s.String()
}

// The Notes that the checks understand.
const (
	Held     = "held"               // of a failure: others hold the key, perhaps in another mode
	Sure     = "sure"               // of a failure: surely not held
	Unknown  = "unknown"            // of a failure: the outcome is unknown and being cleaned up
	GaveUp   = "gave up"            // of a failure: the caller's context ended
	Resumes  = "resume"             // of a call: with a ticket
	Resumed  = "resumed"            // of a grant: by a ticket, under the old token
	Released = "released"           // of letting go: by Release
	Detached = "detached"           // of letting go: the lease lives on in a ticket
	Closed   = "closed"             // of letting go: by Close
	Ours     = "ours"               // of a holder dropped: by its own client
	Broken   = "broken"             // of a holder dropped: an operator had marked it
	Swept    = "swept"              // of a holder dropped: by the TTL index
	Failover = "failover"           // of trouble: the primary changed, or forgot its sessions
	Late     = "refused before"     // of a holder applied: of a claim for one of several keys, whose other send was refused quickly
	Stopped  = "clock stands still" // of trouble: a client's monotonic clock
	Stepped  = "clock set back"     // of trouble: a server's clock, until it shows again what it did
	Killed   = "killed"             // of trouble: a client, which does nothing any more
)

// A History is a list of events, with what its checks may expect.
type History struct {
	Events []Event

	TTL       time.Duration
	Margin    time.Duration
	Tolerance time.Duration // how far clocks were stepped and timers were late: taken off the margin

	Apart time.Duration // how far the servers' clocks were apart

	NoFaults bool          // nothing was made to go wrong
	Deaths   bool          // nothing but that clients died
	End      time.Duration // when all calls must have been answered; 0: not judged
	NoDB     bool          // the database was not observed: only beliefs are known
	Numbered bool          // writes had transaction numbers

	DecideIn time.Duration // how long the search for an order of a key's grants may take; 0: the usual time

	GhostLimit     time.Duration // how long a ghost may stay if nothing hinders its clean-up; 0: not judged
	LateGhostLimit time.Duration // how much longer a late one may stay where writes have no numbers
	Still          bool          // a holder that runs out has to be seen unchanged for its TTL, as no election is known
}

// Sort puts the events in order of time. Events of one instant are in the order of their
// text, so that the order does not depend on which goroutine ran first.
func (h *History) Sort() {
	slices.SortStableFunc(h.Events, func(a, b Event) int {
		if d := cmp.Compare(a.At, b.At); d != 0 {
			return d
		}
		return strings.Compare(a.String(), b.String())
	})
}

// A Violation is a promise broken.
type Violation struct {
	Check string        `json:"check"`
	At    time.Duration `json:"at"`
	Text  string        `json:"text"`
}

func (v Violation) String() string {
	return fmt.Sprintf("%s, at %v: %s", v.Check, v.At, v.Text)
}
