package simulation

import (
	"time"

	"github.com/mongolock/mongolock/internal/docdb"
	"github.com/mongolock/mongolock/internal/history"
)

// A cluster is a replica set of three. One is the primary; it may be cut off from
// the others and not know yet that they have elected another. What it is told
// then is rolled back.
type cluster struct {
	w       *world
	members [3]*member
	leader  *member // whom the majority follows; nil during an election
	term    int
}

// A member is one server.
type member struct {
	w       *world
	id      int
	db      *docdb.DB     // of a primary, or of one that takes itself for one
	has     []time.Time   // when each write of the primary's log reaches this one
	offset  time.Duration // of its clock
	up      bool
	primary bool // so it believes
	alone   bool // cut off from the other members
	term    int
	epoch   int // of its connections

	waiting map[*request]struct{} // for a majority, or for something to read
	queued  map[string][]func()   // behind a held up command of the session
	reading map[string][]*request // getMores, by collection
}

func newCluster(w *world) cluster {
	c := cluster{w: w, term: 1}
	d := w.dice("clocks")
	for i := range c.members {
		c.members[i] = &member{w: w, id: i, up: true, waiting: map[*request]struct{}{}, queued: map[string][]func(){}, reading: map[string][]*request{}}
		if w.weather.spread > 0 {
			c.members[i].offset = d.between(0, w.weather.spread) - w.weather.spread/2
		}
	}
	first := c.members[0]
	first.db, first.primary, first.term = docdb.New(), true, 1
	c.leader = first
	return c
}

// now is what a member's clock shows.
func (m *member) now() time.Time {
	t := m.w.since()
	return serverEpoch.Add(t + t/1e6*time.Duration(m.w.weather.rate) + m.offset)
}

// begin plans what the weather has in store.
func (c *cluster) begin() {
	for _, s := range c.w.weather.strokes {
		c.w.after(s.at, func() { c.strike(s) })
	}
	for _, s := range c.w.weather.steps {
		c.w.after(s.at, func() {
			c.w.fault("clock step")
			c.members[s.member].offset = s.offset
			c.w.logf("the clock of server %d is stepped to %v", s.member, s.offset)
		})
	}
	c.sweepSoon()
}

// sweepSoon is the TTL monitor.
func (c *cluster) sweepSoon() {
	c.w.after(time.Minute+time.Microsecond, func() {
		if m := c.leader; m != nil {
			before := m.db.Len()
			m.db.Tag = &mark{at: c.w.since(), member: m.id, clock: m.now(), sweep: true}
			if n := m.db.Sweep(m.now()); n > 0 {
				c.w.logf("server %d sweeps %d", m.id, n)
			}
			c.replicate(m, before)
		}
		c.sweepSoon()
	})
}

// replicate decides when what a primary wrote reaches the others.
func (c *cluster) replicate(m *member, from int) {
	now := time.Now()
	for n := from; n < m.db.Len(); n++ {
		d := c.w.dice("replicate " + string(rune('a'+m.term)) + " " + itoa(n))
		for _, o := range c.members {
			if o == m {
				continue
			}
			lag := d.between(100*time.Microsecond, 5*time.Millisecond)
			if !c.w.weather.calm && d.chance(30) {
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

// committed is when a write of the leader's cannot be lost any more. For one that
// is cut off that never comes.
func (c *cluster) committed(m *member, n int) (time.Time, bool) {
	if n == 0 {
		return time.Now(), true
	}
	if c.leader != m || m.alone {
		return time.Time{}, false
	}
	var first time.Time
	for _, o := range c.members {
		if o == m || o.alone || len(o.has) < n {
			continue
		}
		if at := o.has[n-1]; first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first, !first.IsZero()
}

// strike hits the primary.
func (c *cluster) strike(s stroke) {
	m := c.leader
	if m == nil || s.at > c.w.weather.storm {
		return
	}
	for _, o := range c.members {
		if o.alone {
			return // one trouble at a time: two of three must be left
		}
	}
	c.w.fault("primary " + s.kind)
	c.w.noteLocked(history.Event{Kind: history.Trouble, Client: -1, Note: history.Failover, Until: s.at + s.down + s.last + time.Second})
	c.w.logf("server %d %s", m.id, s.kind)
	heir, kept := c.heir(m)
	next := m.db.Fork(kept)
	switch s.kind {
	case stepDown:
		m.resign(errSteppedDown)
		if c.w.dice("again " + itoa(c.term)).chance(300) {
			heir, next = m, m.db.Fork(m.db.Len()) // elected again: nothing is lost but its memory
		}
	case restart:
		m.crash()
	case cutOff:
		m.alone = true
		c.w.after(s.last, func() { c.heal(m) })
	}
	c.leader = nil
	c.w.after(s.down, func() { c.elect(heir, next) })
}

// heir is who has most of the primary's log, and how much.
func (c *cluster) heir(m *member) (*member, int) {
	var best *member
	most := -1
	for _, o := range c.members {
		if o == m || o.alone {
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
		if o != m && !o.alone {
			o.db, o.up = nil, true
		}
	}
	m.db, m.primary, m.term = db, true, c.term
	c.leader = m
	now := time.Now()
	for _, o := range c.members {
		o.has = make([]time.Time, db.Len())
		for i := range o.has {
			o.has[i] = now // the others follow, those that are not cut off
		}
	}
	if lost > 0 {
		c.w.faults["write rolled back"] += lost
	}
	c.w.logf("server %d is primary of term %d, %d writes are rolled back", m.id, c.term, lost)
}

// heal ends the solitude of one that still takes itself for the primary.
func (c *cluster) heal(m *member) {
	c.w.logf("server %d learns of term %d", m.id, c.term)
	m.alone = false
	if c.leader != m {
		m.resign(errSteppedDown)
		m.db = nil
	}
}

// resign ends a primary's time in office: what waits for a majority is told so.
func (m *member) resign(f wireFailure) {
	m.primary = false
	m.interrupt(func(r *request) { m.w.respond(r, f.reply()) })
}

// crash ends all connections.
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

// primaryFor is the server that a client finds when it looks for a primary.
func (c *cluster) primaryFor(client int) *member {
	if c.w.isCut(client) {
		return nil
	}
	for _, m := range c.members {
		if m.alone && m.primary && client%2 == 1 { // on its side
			return m
		}
	}
	return c.leader
}
