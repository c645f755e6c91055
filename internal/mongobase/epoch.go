package mongobase

import (
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongoclock"
)

// A Bearing is what a write goes by, or a judgement: the server's clock, and the epoch whose
// clock it is. An epoch is one election of a primary: the time for which a document's dates
// are of one clock.
type Bearing struct {
	mongoclock.Reading
	Epoch bson.ObjectID
	Sure  bool // false: Epoch is a label that no election has

	// Recent is Earliest by the newest sample of all. It may be of another clock, and so
	// takes nothing from anybody.
	Recent time.Time
}

const (
	// stepSeen is how far a server's time must lie outside of what the last sample allows
	// to be taken for a step of its clock, or for another machine's clock.
	stepSeen = 50 * time.Millisecond

	// shardsApart is the same through a router, where each shard has a clock of its own.
	shardsApart = 5 * time.Second

	// stepMinded is for how long after a step within one election no date is trusted.
	stepMinded = 10 * time.Minute

	// epochAged is the age from which on a renewal asks for the epoch again.
	epochAged = time.Minute

	// clockAged is the age from which on a claim does so. Expiries are written by the clock of
	// the last hello, which drifts.
	clockAged = 5 * time.Minute

	// epochPause is how long a claim leaves a doubt alone that another one has asked about.
	epochPause = time.Second
)

// epochs are the elections as hello tells them, each with the clock of the hello that told
// it: a date and its epoch must come from one answer.
type epochs struct {
	mu        sync.Mutex // protects the rest
	clock     *mongoclock.Clock
	id        bson.ObjectID
	own       bson.ObjectID // the label of writes whose election is not known
	known     bool
	elections bool
	doubt     bool              // a fault, or a slow command: there may have been an election
	stepped   bool              // a time was outside of what the last sample allows
	asked     mongoclock.Moment // the last hello's sending
	minded    mongoclock.Moment // until then no date is trusted
	next      mongoclock.Moment // a claim asks again from then on
}

// bearing is the epoch for a write, or to judge by. Where none is known for certain the
// clock is that of the newest sample.
func (e *epochs) bearing(newest *mongoclock.Clock) Bearing {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, _ := newest.Read()
	if e.sure(e.clock.Now()) {
		r, _ := e.clock.Read()
		return Bearing{r, e.id, true, last.Earliest}
	}
	if e.own.IsZero() {
		e.own = bson.NewObjectID()
	}
	return Bearing{last, e.own, false, last.Earliest}
}

func (e *epochs) sure(now mongoclock.Moment) bool { return !e.unclear() && now >= e.minded }

func (e *epochs) unclear() bool { return !e.known || e.doubt || e.stepped }

// heard notes what a hello told that was sent then. It reports whether the answer is the
// epoch that goes on, and whether the clock was stepped within it.
func (e *epochs) heard(a answer, jumped bool) (sure, stepped bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	if e.known && a.sent < e.asked {
		return a.known && a.epoch == e.id && e.sure(now), false
	}
	jumped = jumped || e.clock.Surprised(a.server, a.sent, stepSeen)
	stepped = e.known && a.known && e.id == a.epoch && (e.stepped || jumped)
	switch {
	case stepped:
		e.minded = now.Add(stepMinded)
	case e.id != a.epoch:
		e.minded = 0
	}
	e.clock.Observe(a.server, a.sent)
	e.id, e.known, e.elections, e.asked = a.epoch, a.known, a.elections, a.sent
	e.doubt, e.stepped = false, false
	return e.sure(now), stepped
}

// suspect notes that there may have been an election since the last hello.
func (e *epochs) suspect(jumped bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubt = e.doubt || e.elections
	e.stepped = e.stepped || jumped
}

// disbelieve notes that a time cannot be of the clock that is written by: this machine slept
// unnoticed, or another one answered. Without a hello the same clock would be written by, and
// not believed, again and again, also where there are no elections.
func (e *epochs) disbelieve() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubt = true
}

// due reports whether a claim is to ask for the epoch: there may have been an election since
// the last hello, or it is long ago; and no other claim has asked for a while. A server in
// trouble is not asked before each.
func (e *epochs) due() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	if !e.doubt && !e.stepped && now.Sub(e.asked) < clockAged || now < e.next {
		return false
	}
	e.next = now.Add(epochPause)
	return true
}

// aged reports whether a renewal is to ask for the epoch.
func (e *epochs) aged() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.doubt || e.stepped || e.elections && e.clock.Now().Sub(e.asked) > epochAged
}

// epochOf is the epoch that a hello tells: an election, or one epoch for ever if the server
// is by itself. A router does not tell, nor does a member that is not the primary.
func epochOf(hello bson.Raw) (id bson.ObjectID, elections, known bool) {
	if id, ok := hello.Lookup("electionId").ObjectIDOK(); ok {
		return id, true, true
	}
	for _, several := range []string{"setName", "msg", "serviceId"} {
		if _, err := hello.LookupErr(several); err == nil {
			return id, true, false
		}
	}
	return id, false, true
}
