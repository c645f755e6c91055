package simulation

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// A Recording is all that became of the commands of a run, in order: what package trace makes
// behaviours of.
type Recording struct {
	Steps    []Step
	Servers  string // their kind
	TTL      time.Duration
	Margin   time.Duration
	Late     time.Duration // how late timers were
	Skew     time.Duration // by how much clocks are stepped
	Set      bool          // of such a run: the servers are a replica set
	Numbered bool          // writes had transaction numbers
	Routers  bool
	Home     map[string]int // behind routers: on which shard a key is at first
}

// A StepKind says what a Step is.
type StepKind int

// The kinds of steps.
const (
	Sent      StepKind = iota // a client sent a command
	Ran                       // a primary executed it
	Answered                  // the reply came to the client
	Committed                 // a majority has the first Length writes of the log of Term
	Elected                   // the primary of Term has the first Length writes of the log of From
	Noted                     // a user's event
	Killed                    // a client
	Moved                     // the document of a key is on Shard now, whose primary is that of Term; a majority has it
)

// A Step is one thing that happened.
type Step struct {
	At      time.Duration
	Kind    StepKind
	Command *Command
	Shard   int           // of the primary
	Term    int           // of the primary
	Key     string        // that moved
	From    int           // of an election: the term whose log was kept in part
	Length  int           // of the primary's log, before the writes
	Writes  []docdb.Entry // what the command wrote, in any collection
	Clock   time.Time     // the primary's; of a command that was sent, the latest by which a client may go: see world.shown
	Took    time.Duration // of an answer: by its client's clock, which may have stood still meanwhile
	Reply   bson.D
	Event   history.Event
}

// A Command is one that a client sent. A retry of the driver is a Command of its own.
type Command struct {
	docdb.Command
	Client int
	Actor  string        // the user that it is sent for, if there is one
	Op     int           // the user's call that it belongs to
	Began  time.Duration // when its sender began with it, or with an earlier send of the same
}

// record adds a step. With w.mu held.
func (w *world) record(s Step) {
	if !w.closed {
		s.At = w.since()
		w.recording.Steps = append(w.recording.Steps, s)
	}
}

// recordSent notes a command of a client.
func (w *world) recordSent(r *request) {
	r.recorded = &Command{Command: r.cmd, Client: r.client.id, Actor: r.actor, Op: r.op, Began: r.began}
	w.record(Step{Kind: Sent, Command: r.recorded, Clock: w.shown()})
}

// recordAnswered notes a reply that came.
func (w *world) recordAnswered(r *request, reply bson.D) {
	now := w.since()
	took := now - r.began - (w.asleep(r.client.id, now) - w.asleep(r.client.id, r.began))
	w.record(Step{Kind: Answered, Command: r.recorded, Reply: reply, Took: took})
}

// shown is the latest time that any member's clock has shown, and what that one would show by
// now were it not set back: a client that read it then reckons on from there.
func (w *world) shown() time.Time {
	now := w.since()
	latest := w.latest.Add(now - w.latestAt)
	for _, m := range w.cluster.members {
		if shows := m.now(); shows.After(latest) {
			latest = shows
		}
	}
	w.latest, w.latestAt = latest, now
	return latest
}

// recordRan notes what a primary made of a command, whose log had before writes.
func (m *member) recordRan(r *request, before int, reply bson.D) {
	m.w.shown()
	m.w.record(Step{Kind: Ran, Command: r.recorded, Shard: m.shard(), Term: m.term, Length: before, Writes: m.db.Log(before), Clock: m.now(), Reply: reply})
}

// recordHello notes what a member told of itself.
func (m *member) recordHello(r *request, reply bson.D) {
	m.w.shown()
	m.w.record(Step{Kind: Ran, Command: r.recorded, Shard: m.shard(), Term: m.term, Clock: m.now(), Reply: reply})
}

// shard is the number of the member's shard; 0 of a router.
func (m *member) shard() int {
	if m.c == nil {
		return 0
	}
	return m.c.shard
}

// describe says what the run was.
func (w *world) describe(late time.Duration) *Recording {
	r := &w.recording
	h := &w.history
	r.Skew = w.plan.clockSkew
	r.TTL, r.Margin, r.Late, r.Numbered, r.Servers, r.Routers = h.TTL, h.Margin, late, h.Numbered, w.plan.servers, w.plan.servers == routers
	return r
}

// told notes what the user of a path lock sees: it was granted or refreshed, until then, or a refresh failed.
func (r *pathRun) told(kind history.Kind, client int, token string, until time.Duration) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.record(kind, client, token, until)
}

// record is told for what such a user does. With w.mu held.
func (r *pathRun) record(kind history.Kind, client int, token string, until time.Duration) {
	r.w.record(Step{Kind: Noted, Event: history.Event{Kind: kind, Client: client, ID: token, Until: until}})
}

// recording says what a run with path locks was.
func (r *pathRun) recording() *Recording {
	w := r.w
	for _, c := range w.plan.partitions {
		w.recording.Steps = append(w.recording.Steps, Step{
			At: c.from, Kind: Noted, Event: history.Event{Kind: history.Trouble, Client: c.client, Until: c.to, Note: "cut off"},
		})
	}
	w.recording.Skew, w.recording.Set = w.plan.clockSkew, w.plan.servers != standalone
	return &w.recording
}
