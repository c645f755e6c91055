package simulation

import "time"

// The kinds of servers.
const (
	replicaSet = "a replica set"
	single     = "one member that tells no electionId"
	standalone = "a standalone"
	routers    = "routers" // before two shards
)

// farApart is by how much the clocks of a set's members may differ. Less than a minute is
// promised to be harmless.
const farApart = 50 * time.Second

// choose chooses what kind the servers are, and how far their clocks are apart. It has random
// sources of its own, so that the rest of a seed's faults does not depend on it.
func (x *faultPlan) choose(w *world, s Settings) {
	d := w.rng("servers")
	x.servers = replicaSet
	switch kind := d.n(100); {
	case s.Servers != "":
		x.servers = s.Servers
	case kind < 4:
		x.servers = standalone
	case kind < 8:
		x.servers = single
	case kind < 20:
		x.servers = routers
	}
	if x.servers == routers && !x.noFaults {
		for range 1 + d.n(4) {
			x.migrations = append(x.migrations, migration{d.between(0, x.faultsEnd), oneOf(d, allKeys...), d.between(time.Millisecond, oneOf(d, 20*time.Millisecond, time.Second))})
		}
	}
	x.clocksApart, x.forward = x.clockSkew, s.Forward
	if s.Elections {
		x.manyElections(d)
	}
	if s.Rolling && !x.noFaults {
		x.isolate(w.rng("rolling"))
	}
	if x.asking = s.Asking; s.Asking {
		x.slow += 200
	}
	if x.noFaults || x.servers == single || x.servers == standalone || s.Together || !s.Elections && !d.chance(600) {
		return
	}
	x.apart, x.clocksApart, x.clockSkew = true, farApart, 0
	for i := range x.clockSteps {
		x.clockSteps[i].offset = x.offset(d)
	}
	if x.servers == routers {
		x.shardsApart(w.rng("shards apart"))
	}
	if x.oneFault {
		return
	}
	if len(x.failovers) == 0 {
		x.failovers = append(x.failovers, failover{at: d.between(time.Second, x.faultsEnd/2), kind: oneOf(d, stepDown, restart), election: d.between(50*time.Millisecond, 2*time.Second)})
	}
	for i := range x.failovers {
		f := &x.failovers[i]
		f.stepped, f.offset = d.chance(500), x.offset(d)
		if f.kind == cutOff { // long enough that a client goes on with the old primary
			f.isolated += d.between(0, 6*time.Second)
		}
	}
}

// shardsApart puts the second shard's clocks 50 minutes ahead of the first one's, or behind, in half of
// the histories. With the clocks of routers all are then less than an hour apart, which the TTL index
// needs. No chunk moves there: a migration is harmless like an election, if it is less than a minute.
func (x *faultPlan) shardsApart(d *rng) {
	if d.chance(500) {
		x.ahead, x.migrations = oneOf(d, 50*time.Minute, -50*time.Minute), nil
	}
}

// manyElections makes primaries fail again and again, short leases of one key, and slow
// commands: what happens around an election happens often.
func (x *faultPlan) manyElections(d *rng) {
	x.noFaults, x.oneFault, x.elections, x.migrations = false, false, true, nil
	x.servers, x.ttl = replicaSet, oneOf(d, time.Second, 2*time.Second)
	x.margin, x.faultsEnd = x.ttl/10, d.between(20*time.Second, 40*time.Second)
	x.lost, x.unanswered, x.late, x.slow, x.stalled = d.n(60), d.n(60), d.n(60), 50+d.n(150), d.n(30)
	x.failovers = nil
	for at := d.between(time.Second, 3*time.Second); at < x.faultsEnd; at += d.between(2*time.Second, 6*time.Second) {
		f := failover{at: at, kind: oneOf(d, stepDown, cutOff, cutOff), election: d.between(50*time.Millisecond, time.Second)}
		if f.kind == cutOff {
			f.isolated = d.between(f.election, f.election+2*time.Second)
		}
		x.failovers = append(x.failovers, f)
	}
}

// isolate cuts primaries off again and again, and half of the clients go on with each for a while.
func (x *faultPlan) isolate(d *rng) {
	for at := d.between(100*time.Millisecond, time.Second); at < x.faultsEnd; at += d.between(time.Second, 4*time.Second) {
		f := failover{at: at, kind: cutOff, election: d.between(50*time.Millisecond, time.Second)}
		f.isolated = d.between(f.election, f.election+3*time.Second)
		x.failovers = append(x.failovers, f)
	}
}

// schedule schedules what is planned for the servers.
func (w *world) schedule() {
	for _, c := range w.shards {
		c.schedule()
	}
	w.scheduleMigrations()
}

// offset returns a clock's offset from the true time.
func (x *faultPlan) offset(d *rng) time.Duration {
	if x.clocksApart == 0 {
		return 0
	}
	return d.between(0, x.clocksApart) - x.clocksApart/2
}

// primaryFor returns the primary that a client finds: an isolated one for half of them, but
// none from before an election that the client has seen.
func (c *cluster) primaryFor(client, seen int) *member {
	if c.w.isCutOff(client) {
		return nil
	}
	return c.primaryOf(client, seen)
}

// primaryOf is primaryFor for a client's router, which is on the servers' side of any cut.
func (c *cluster) primaryOf(client, seen int) *member {
	for _, m := range c.members {
		if m.isolated && m.primary && client%2 == 1 && m.term >= seen {
			return m
		}
	}
	return c.leader
}
