package simulation

import (
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/test/history"
)

// A Message is a command on its way to a server, and what became of it. A time that is 0
// never came.
type Message struct {
	Name     string        `json:"name"` // as the log has it
	Client   int           `json:"client"`
	Command  string        `json:"command"`
	On       string        `json:"on,omitempty"`   // the collection
	Keys     []string      `json:"keys,omitempty"` // that it names
	Server   int           `json:"server"`
	Sent     time.Duration `json:"sent"`
	Way      string        `json:"way"` // what chance decided, as the log has it
	Arrived  time.Duration `json:"arrived,omitempty"`
	Wrote    time.Duration `json:"wrote,omitempty"` // when the server wrote because of it
	Answered time.Duration `json:"answered,omitempty"`
	Answer   string        `json:"answer,omitempty"`
	Broken   time.Duration `json:"broken,omitempty"` // when its sender saw the connection break
}

// A Change is the state that a server has from a moment on.
type Change struct {
	At      time.Duration `json:"at"`
	Server  int           `json:"server"`
	Primary bool          `json:"primary,omitempty"` // so it believes
	Down    bool          `json:"down,omitempty"`
	CutOff  bool          `json:"cutOff,omitempty"` // from the other servers
	Clock   time.Duration `json:"clock,omitempty"`  // how far it is ahead
}

// A told keeps what a run's history says nothing of. It is protected by the world's mutex.
type told struct {
	messages []*Message
	changes  []Change
}

func (w *world) tellSent(r *request) {
	keys, _ := r.cmd.IDs()
	if k := key(r.cmd); keys == nil && (slices.Contains(allKeys, k) || slices.Contains(hoard, k)) { // a notice about it
		keys = []string{k}
	}
	r.told = &Message{
		Name: r.name, Client: r.client.id, Command: r.cmd.Name, On: r.cmd.Coll(), Keys: keys, Server: r.member.id,
		Sent: r.sent, Way: r.delivery.String(),
	}
	w.told.messages = append(w.told.messages, r.told)
}

// tell notes the state of the members. With w.mu held.
func (c *cluster) tell() {
	for _, m := range c.members {
		if c.alone && m != c.members[0] {
			return
		}
		c.w.told.changes = append(c.w.told.changes, Change{c.w.since(), m.id, m.primary, !m.up, m.isolated, m.offset})
	}
}

// A Line is one line of a told run. One of its fields is set.
type Line struct {
	Run       *Start             `json:"run,omitempty"` // the first line
	Event     *history.Event     `json:"event,omitempty"`
	Message   *Message           `json:"message,omitempty"`
	Change    *Change            `json:"change,omitempty"`
	Violation *history.Violation `json:"violation,omitempty"` // after all others: what the judge found
}

// A Start is what a run began with, and what its judge may expect.
type Start struct {
	Seed      uint64           `json:"seed"`
	Processes int              `json:"processes"`
	Servers   string           `json:"servers"`
	Long      time.Duration    `json:"long"`
	Judged    *history.History `json:"judged"` // without its events
	Faults    map[string]int   `json:"faults"` // how often each was injected
}

// Tell writes the run as lines of JSON: the history that its judge reads, event by event, the
// commands and the servers' states behind it, and what the judge found.
func (o *Outcome) Tell(out io.Writer) error {
	judged := *o.History
	judged.Events = nil
	to := json.NewEncoder(out)
	err := to.Encode(Line{Run: &Start{o.Seed, o.Processes, o.Kind, o.Long, &judged, o.Faults}})
	tell := func(l Line) {
		if err == nil {
			err = to.Encode(l)
		}
	}
	for _, e := range o.History.Events {
		tell(Line{Event: &e})
	}
	for _, m := range o.Messages {
		tell(Line{Message: m})
	}
	for _, c := range o.Changes {
		tell(Line{Change: &c})
	}
	for _, v := range o.Check() {
		tell(Line{Violation: &v})
	}
	return err
}
