package simulation

import (
	"time"

	"github.com/mongolock/mongolock/internal/docdb"
	"github.com/mongolock/mongolock/internal/history"
)

// A cluster is a replica set of three members. Its primary may be isolated from the others
// and not know yet that they have elected another. What it writes then is rolled back.
type cluster struct {
	w       *world
	members [3]*member
	leader  *member // the primary of the majority; nil during an election
	term    int
}

// A member is one server.
type member struct {
	w        *world
	id       int
	db       *docdb.DB     // of a primary, also of one that was deposed and does not know
	has      []time.Time   // when each write of the primary's log reaches this member
	offset   time.Duration // of its clock
	up       bool
	primary  bool // so it believes
	isolated bool // from the other members
	term     int
	epoch    int // of its connections

	waiting map[*request]struct{} // for a majority, or for something to read
	queued  map[string][]func()   // behind a command of the session that is held up
	reading map[string][]*request // getMores, by collection
}

func newCluster(w *world) cluster {
	c := cluster{w: w, term: 1}
	d := w.rng("clocks")
	for i := range c.members {
		c.members[i] = &member{w: w, id: i, up: true, waiting: map[*request]struct{}{}, queued: map[string][]func(){}, reading: map[string][]*request{}}
		if w.plan.clockSkew > 0 {
			c.members[i].offset = d.between(0, w.plan.clockSkew) - w.plan.clockSkew/2
		}
	}
	first := c.members[0]
	first.db, first.primary, first.term = docdb.New(), true, 1
	c.leader = first
	return c
}

// now returns what a member's clock shows.
func (m *member) now() time.Time {
	t := m.w.since()
	return serverEpoch.Add(t + t/1e6*time.Duration(m.w.plan.clockDrift) + m.offset)
}

// schedule schedules the planned failovers and clock steps.
func (c *cluster) schedule() {
	for _, f := range c.w.plan.failovers {
		c.w.after(f.at, func() { c.failOver(f) })
	}
	for _, s := range c.w.plan.clockSteps {
		c.w.after(s.at, func() {
			c.w.fault("clock step")
			c.members[s.member].offset = s.offset
			c.w.logf("the clock of server %d is stepped to %v", s.member, s.offset)
		})
	}
	c.scheduleSweep()
}

// scheduleSweep is the TTL monitor.
func (c *cluster) scheduleSweep() {
	c.w.after(time.Minute+time.Microsecond, func() {
		if m := c.leader; m != nil {
			before := m.db.Len()
			m.db.Tag = &mark{at: c.w.since(), member: m.id, clock: m.now(), sweep: true}
			if n := m.db.Sweep(m.now()); n > 0 {
				c.w.logf("server %d sweeps %d", m.id, n)
			}
			c.replicate(m, before)
		}
		c.scheduleSweep()
	})
}

// replicate decides when the writes of a primary reach the other members.
func (c *cluster) replicate(m *member, from int) {
	now := time.Now()
	for n := from; n < m.db.Len(); n++ {
		d := c.w.rng("replicate " + string(rune('a'+m.term)) + " " + itoa(n))
		for _, o := range c.members {
			if o == m {
				continue
			}
			lag := d.between(100*time.Microsecond, 5*time.Millisecond)
			if !c.w.plan.noFaults && d.chance(30) {
				lag = d.between(time.Millisecond, time.Second)
			}
			at := now.Add(lag)
			if len(o.has) > 0 && at.Before(o.has[len(o.has)-1]) {
				at = o.has[len(o.has)-1]
			}
			if c.leader == m {
				o.has = append(o.has, at)
			}
		}
	}
}

// committed returns when the nth write of the leader can no longer be rolled back. For an
// isolated leader that never comes.
func (c *cluster) committed(m *member, n int) (time.Time, bool) {
	if n == 0 {
		return time.Now(), true
	}
	if c.leader != m || m.isolated {
		return time.Time{}, false
	}
	var first time.Time
	for _, o := range c.members {
		if o == m || o.isolated || len(o.has) < n {
			continue
		}
		if at := o.has[n-1]; first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first, !first.IsZero()
}

// failOver makes the primary fail and another member take over.
func (c *cluster) failOver(f failover) {
	m := c.leader
	if m == nil || f.at > c.w.plan.faultsEnd {
		return
	}
	for _, o := range c.members {
		if o.isolated {
			return // one failover at a time: two of three members must be left
		}
	}
	c.w.fault("primary " + f.kind)
	c.w.noteLocked(history.Event{Kind: history.Trouble, Client: -1, Note: history.Failover, Until: f.at + f.election + f.isolated + time.Second})
	c.w.logf("server %d %s", m.id, f.kind)
	next, kept := c.successor(m)
	db := m.db.Fork(kept)
	switch f.kind {
	case stepDown:
		m.resign(errSteppedDown)
		if c.w.rng("again " + itoa(c.term)).chance(300) {
			next, db = m, m.db.Fork(m.db.Len()) // elected again: it only forgets its sessions
		}
	case restart:
		m.crash()
	case cutOff:
		m.isolated = true
		c.w.after(f.isolated, func() { c.rejoin(m) })
	}
	c.leader = nil
	c.w.after(f.election, func() { c.elect(next, db) })
}

// successor returns the member that has most of the primary's log, and how many writes.
func (c *cluster) successor(m *member) (*member, int) {
	var best *member
	most := -1
	for _, o := range c.members {
		if o == m || o.isolated {
			continue
		}
		n := 0
		for n < len(o.has) && !o.has[n].After(time.Now()) {
			n++
		}
		if n > most {
			best, most = o, n
		}
	}
	return best, most
}

// elect makes a member primary.
func (c *cluster) elect(m *member, db *docdb.DB) {
	c.term++
	m.up = true
	lost := 0
	for _, o := range c.members {
		if o.db != nil {
			lost = max(lost, o.db.Len()-db.Len())
		}
		if o != m && !o.isolated {
			o.db, o.up = nil, true
		}
	}
	m.db, m.primary, m.term = db, true, c.term
	c.leader = m
	now := time.Now()
	for _, o := range c.members {
		o.has = make([]time.Time, db.Len())
		for i := range o.has {
			o.has[i] = now // all that are not isolated follow at once
		}
	}
	if lost > 0 {
		c.w.faults["write rolled back"] += lost
	}
	c.w.logf("server %d is primary of term %d; %d writes are rolled back", m.id, c.term, lost)
}

// rejoin connects an isolated member to the others again. A deposed primary learns of it.
func (c *cluster) rejoin(m *member) {
	c.w.logf("server %d learns of term %d", m.id, c.term)
	m.isolated = false
	if c.leader != m {
		m.resign(errSteppedDown)
		m.db = nil
	}
}

// resign makes a primary a secondary. Commands that wait for a majority fail.
func (m *member) resign(f wireFailure) {
	m.primary = false
	m.interrupt(func(r *request) { m.w.respond(r, f.reply()) })
}

// crash breaks all connections of a member.
func (m *member) crash() {
	m.primary, m.up = false, false
	m.epoch++
	m.interrupt(func(r *request) { r.fail(errReset) })
}

func (m *member) interrupt(tell func(*request)) {
	waiting := m.waiting
	m.waiting, m.reading, m.queued = map[*request]struct{}{}, map[string][]*request{}, map[string][]func(){}
	for _, r := range inOrder(waiting) {
		tell(r)
	}
}

// primaryFor returns the primary that a client finds: an isolated one for half of them.
func (c *cluster) primaryFor(client int) *member {
	if c.w.isCutOff(client) {
		return nil
	}
	for _, m := range c.members {
		if m.isolated && m.primary && client%2 == 1 {
			return m
		}
	}
	return c.leader
}
