package server

import (
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A ClockBasis is the basis of a write or of a judgement: the server's clock, and the epoch whose
// clock it is. An epoch is one election of a primary: the time for which a document's dates are
// of one clock.
type ClockBasis struct {
	Reading
	Epoch bson.ObjectID
	Sure  bool // false: Epoch is a label that no election has

	// Recent is Earliest by the newest sample of all. It may be of another clock, and so never
	// ends a holder.
	Recent time.Time
}

const (
	// stepSeen is how far a server's time must lie outside of what the last sample allows
	// to be taken for a step of its clock, or for another machine's clock.
	stepSeen = 50 * time.Millisecond

	// shardsApart is stepSeen through a router, where each shard has a clock of its own.
	shardsApart = 5 * time.Second

	// stepMinded is for how long no date is trusted after a step within one election.
	stepMinded = 10 * time.Minute

	// epochAged is the age of an epoch from which on a renewal asks for it again.
	epochAged = time.Minute

	// clockAged is the age from which on a claim asks for the epoch again. Expiries are written
	// by the clock of the last hello, which drifts.
	clockAged = 5 * time.Minute

	// epochPause is how long claims do not ask about a doubt again after one has asked.
	epochPause = time.Second
)

// epochs holds the elections as hello tells them, each with the clock of the hello that told
// it: a date and its epoch must come from one answer.
type epochs struct {
	mu        sync.Mutex // protects the rest
	clock     *Clock
	id        bson.ObjectID
	own       bson.ObjectID // the label of writes whose election is not known
	known     bool
	elections bool
	doubt     bool   // after a fault, or a slow command, there may have been an election
	stepped   bool   // a time was outside of what the last sample allows
	asked     Moment // when the last hello was sent
	minded    Moment // no date is trusted before then
	next      Moment // when a claim asks again
}

func (e *epochs) sure(now Moment) bool {
	return e.known && !e.doubt && !e.stepped && now >= e.minded
}

// heard records what a hello told. It reports whether the answer is of the epoch that goes on,
// and whether the clock was stepped within it.
func (e *epochs) heard(a answer, jumped bool) (sure, stepped bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	if e.known && a.sent < e.asked {
		return a.known && a.epoch == e.id && e.sure(now), false
	}
	jumped = jumped || e.clock.Jumped(a.server, a.sent, stepSeen)
	stepped = e.known && a.known && e.id == a.epoch && (e.stepped || jumped)
	switch {
	case stepped:
		e.minded = now.Add(stepMinded)
	case e.id != a.epoch:
		e.minded = 0
	}
	e.clock.Observe(a.server, a.sent, true)
	e.id, e.known, e.elections, e.asked = a.epoch, a.known, a.elections, a.sent
	e.doubt, e.stepped = false, false
	return e.sure(now), stepped
}

// suspect records that there may have been an election since the last hello.
func (e *epochs) suspect(jumped bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubt = e.doubt || e.elections
	e.stepped = e.stepped || jumped
}

// distrust records that a time cannot be of the clock that is written by: this machine slept
// unnoticed, or another one answered. Without a new hello the same clock would be written by,
// and not believed, again and again, also where there are no elections.
func (e *epochs) distrust() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubt = true
}

// due reports whether a claim should ask for the epoch: there may have been an election since
// the last hello, or the hello is old, and no other claim has asked for a while. So a server in
// trouble is not asked before each claim.
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

// aged reports whether a renewal should ask for the epoch.
func (e *epochs) aged() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.doubt || e.stepped || e.elections && e.clock.Now().Sub(e.asked) > epochAged
}

// epochOf returns the epoch that a hello tells: an election, or one epoch for ever if the
// server is standalone. A router tells none, nor does a member that is not the primary.
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
