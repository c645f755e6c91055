package simulation

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// A cluster is a replica set of three members. Its primary may be isolated from the others and
// not know yet that they have elected another. Its writes are then rolled back. A server alone
// is the first of the members; the others do nothing.
type cluster struct {
	w       *world
	members [3]*member
	leader  *member         // the primary of the majority; nil during an election
	failed  []time.Duration // when each primary failed
	term    int
	alone   bool
	shard   int
}

// A member is one server.
type member struct {
	w        *world
	c        *cluster // nil: a router
	router   bool
	heard    bson.Timestamp // by a router: the latest cluster time
	id       int
	db       *docdb.DB     // of a primary, also of one that was deposed and does not know
	has      []time.Time   // when each write of the primary's log reaches this member
	offset   time.Duration // of its clock
	ahead    time.Duration // and by how much all of its shard are
	drift    int64         // how many millionths its clock runs fast
	up       bool
	primary  bool // so it believes
	isolated bool // from the other members
	term     int
	epoch    int // of its connections
	point    int // how many writes of its log are known never to be rolled back

	waiting map[*request]struct{} // for a majority, or for something to read
	queued  map[string][]func()   // behind a command of the session that is held up
	reading map[string][]*request // getMores, by collection
}

func newCluster(w *world, shard int) *cluster {
	c := &cluster{w: w, shard: shard, term: 1, alone: w.plan.servers == standalone || w.plan.servers == single}
	d := w.rng(c.named("clocks"))
	for i := range c.members {
		m := &member{w: w, c: c, id: 3*shard + i, up: true, drift: w.plan.clockDrift, waiting: map[*request]struct{}{}, queued: map[string][]func(){}, reading: map[string][]*request{}}
		m.offset, m.ahead = w.plan.offset(d), time.Duration(shard)*w.plan.ahead
		if w.plan.apart {
			m.drift = int64(d.n(1001)) - 500
		}
		c.members[i] = m
	}
	first := c.members[0]
	first.db, first.primary, first.term = docdb.New(), true, 1
	c.leader = first
	return c
}

// now returns what a member's clock shows.
func (m *member) now() time.Time {
	t := m.w.since()
	return serverEpoch.Add(t + t/1e6*time.Duration(m.drift) + m.offset + m.ahead)
}

// schedule schedules the planned failovers and clock steps.
func (c *cluster) schedule() {
	for i, f := range c.w.plan.failovers {
		if i%len(c.w.shards) == c.shard {
			c.w.after(f.at, func() { c.failOver(f) })
		}
	}
	for i, s := range c.w.plan.clockSteps {
		if i%len(c.w.shards) == c.shard {
			c.w.after(s.at, func() { c.members[s.member].step(s.offset) })
		}
	}
	c.scheduleSweep()
}

// named names a random source of the cluster.
func (c *cluster) named(name string) string {
	if c.shard > 0 {
		name += " of shard " + itoa(c.shard)
	}
	return name
}

// step sets a member's clock. Where clocks are far apart, that of a primary goes only back:
// a step forward ends the leases of its election early, which is not promised against.
func (m *member) step(to time.Duration) {
	x := &m.w.plan
	if x.apart && m.primary && to > m.offset && !x.forward {
		to = max(2*m.offset-to, -x.clocksApart/2)
	}
	m.w.fault("clock step")
	m.w.moved = min(m.w.moved, m.w.since())
	m.w.noteLocked(history.Event{Kind: history.Trouble, Client: -1, Note: history.Stepped, Until: m.w.since() + max(m.offset-to, 0)})
	m.offset = to
	m.w.logf("the clock of server %d is stepped to %v", m.id, to)
}

// scheduleSweep is the TTL monitor.
func (c *cluster) scheduleSweep() {
	c.w.after(time.Minute+time.Microsecond+time.Duration(c.shard)*time.Nanosecond, func() {
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
	if c.alone {
		return
	}
	now := time.Now()
	for n := from; n < m.db.Len(); n++ {
		d := c.w.rng(c.named("replicate " + string(rune('a'+m.term)) + " " + itoa(n)))
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
	if n == 0 || c.alone {
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
	if c.alone {
		f.kind, f.isolated = restart, 0
	}
	c.w.fault("primary " + f.kind)
	c.failed = append(c.failed, c.w.since())
	c.w.moved = min(c.w.moved, c.w.since())
	c.w.noteLocked(history.Event{Kind: history.Trouble, Client: -1, Note: history.Failover, Until: f.at + f.election + f.isolated + time.Second})
	c.w.logf("server %d %s", m.id, f.kind)
	next, kept := c.successor(m)
	db := m.db.Fork(kept)
	switch f.kind {
	case stepDown:
		m.resign(errSteppedDown)
		if c.w.rng(c.named("again " + itoa(c.term))).chance(300) {
			next, db = m, m.db.Fork(m.db.Len()) // elected again: it only forgets its sessions
		}
	case restart:
		m.crash()
	case cutOff:
		m.isolated = true
		c.w.after(f.isolated, func() { c.rejoin(m) })
	}
	c.leader = nil
	from := m.term
	c.w.after(f.election, func() {
		if f.stepped {
			next.primary = false
			next.step(f.offset)
		}
		c.elect(next, db)
		c.w.record(Step{Kind: Elected, Shard: c.shard, Term: c.term, From: from, Length: db.Len()})
	})
}

// successor returns the member that has most of the primary's log, and how many writes.
func (c *cluster) successor(m *member) (*member, int) {
	if c.alone {
		return m, m.db.Len()
	}
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
