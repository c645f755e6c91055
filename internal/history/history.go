// Package history is what the clients of a lock believed and what its database
// did, as a list of events on one clock, and the judgement of it. The simulation
// and the chaos test write histories; the checks are the same for both.
package history

import (
	"fmt"
	"strings"
	"time"
)

// A Kind says what happened.
type Kind string

// What a user of the library sees.
const (
	Called  Kind = "calls"    // asks for a key; Op joins it with its answer
	Granted Kind = "has"      // got a lease
	Failed  Kind = "fails"    // got an error; Note says which
	Told    Kind = "is told"  // Done was closed
	LetGo   Kind = "lets go"  // calls Release, Detach or Close
	Freed   Kind = "released" // Release answered
	Looked  Kind = "looks"    // At this moment its lease was surely held: a look just after said so
	Writes  Kind = "writes"   // begins a fenced write
	Wrote   Kind = "wrote"    // it was taken
	Fenced  Kind = "fenced"   // it was refused for a newer token
)

// What the database did, as far as it was not rolled back.
const (
	Applied   Kind = "applied"   // shows a new holder
	Dropped   Kind = "dropped"   // shows it no more
	Shortened Kind = "shortened" // ends it sooner than it showed before
	Extended  Kind = "extended"  // ends it later
	Overtook  Kind = "overtook"  // shows a new holder past a writer's word
	Register  Kind = "register"  // a fenced register has a new token
)

// Trouble is something that was made to go wrong, until Until.
const Trouble Kind = "trouble"

// An Event is one thing that happened.
type Event struct {
	At     time.Duration `json:"at"`
	Kind   Kind          `json:"kind"`
	Client int           `json:"client"`
	Key    string        `json:"key,omitempty"`
	Op     int           `json:"op,omitempty"`
	ID     string        `json:"id,omitempty"`
	Token  int64         `json:"token,omitempty"`
	Until  time.Duration `json:"until,omitempty"` // of a call: when its caller leaves; of trouble: its end; of a holder: its expiry, on this clock
	Live   bool          `json:"live,omitempty"`  // of a holder dropped or shortened: it had not run out, by the server's clock
	Note   string        `json:"note,omitempty"`
	Shared bool          `json:"shared,omitempty"` // of a call or a grant: not exclusive
	Limit  int           `json:"limit,omitempty"`  // the same for permits
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

// The Notes that mean something.
const (
	Held     = "held"     // of a failure: others have it, maybe in another mode
	Sure     = "sure"     // of a failure: surely not held
	Unknown  = "unknown"  // of a failure: being cleaned up
	Gaveup   = "gave up"  // of a failure: the caller's context or patience ended
	Resumed  = "resumed"  // of a grant: by a ticket, under the old token
	Released = "released" // of letting go
	Detached = "detached" // of letting go: the lease lives on in a ticket
	Closed   = "closed"   // of letting go
	Ours     = "ours"     // of a holder dropped: by its own client
	Swept    = "swept"    // of a holder dropped: by the TTL index
	Failover = "failover" // of trouble: the primary changed or forgot
	Stopped  = "clock stands still"
)

// A History is all of it, with what its checks may expect.
type History struct {
	Events  []Event       `json:"events"`
	TTL     time.Duration `json:"ttl"`
	Margin  time.Duration `json:"margin"`
	Blur    time.Duration `json:"blur"`    // how far clocks were stepped and timers were late: taken off the margin
	Calm    bool          `json:"calm"`    // nothing was made to go wrong
	Storm   time.Duration `json:"storm"`   // when the last trouble began
	Quick   time.Duration `json:"quick"`   // within how long a ghost must go if nothing hinders; 0: not judged
	Patient time.Duration `json:"patient"` // the same for one that came late where writes have no numbers
	Gap     time.Duration `json:"gap"`     // how long a key may be free while somebody waits, in calm; 0: not judged
	End     time.Duration `json:"end"`     // when all calls must have been answered
	NoDB    bool          `json:"noDB"`    // nobody watched the database
	Numbers bool          `json:"numbers"` // writes had transaction numbers
}

// A Violation is a promise broken.
type Violation struct {
	Check string
	At    time.Duration
	Text  string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s, at %v: %s", v.Check, v.At, v.Text)
}

// A lease is what became of one acquisition.
type lease struct {
	id, key string
	client  int
	token   int64
	resumed bool
	shared  bool
	limit   int
	note    string

	applied, granted, told, letGo, dropped, until time.Duration // never if it did not happen
	looked                                        time.Duration // the last look that said it is held
}

const never = time.Duration(1<<63 - 1)

// leases are the acquisitions of a history, in order of appearance.
func (h *History) leases() []*lease {
	byID := map[string]*lease{}
	var all []*lease
	of := func(e Event) *lease {
		l := byID[e.ID]
		if l == nil {
			l = &lease{id: e.ID, key: e.Key, client: e.Client, applied: never, granted: never, told: never, letGo: never, dropped: never}
			byID[e.ID] = l
			all = append(all, l)
		}
		return l
	}
	for _, e := range h.Events {
		if e.ID == "" {
			continue
		}
		switch e.Kind {
		case Granted:
			l := of(e)
			l.granted, l.token, l.resumed, l.client = e.At, e.Token, e.Note == Resumed, e.Client
			l.shared, l.limit = e.Shared, e.Limit
		case Told:
			of(e).told = min(of(e).told, e.At)
		case Looked: // where nobody saw Done close: it was surely not over before
			of(e).looked = e.At
		case LetGo:
			l := of(e)
			l.letGo = min(l.letGo, e.At)
			l.note = e.Note
		case Applied:
			l := of(e)
			l.applied = min(l.applied, e.At)
			l.until = e.Until
		case Extended, Shortened:
			of(e).until = e.Until
		case Dropped:
			of(e).dropped = min(of(e).dropped, e.At)
		}
	}
	if h.NoDB {
		for _, l := range all {
			l.told = max(l.looked, l.granted) // what it believed longest, for all we know
		}
	}
	return all
}

// ends is when a holder believed that it was over.
func (l *lease) ends() time.Duration { return min(l.told, l.letGo) }

// starts is when nobody else may believe it holds the key any more: the database
// says so before the holder knows.
func (l *lease) starts() time.Duration { return min(l.applied, l.granted) }
