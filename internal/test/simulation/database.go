package simulation

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A Database is the servers of a long history, for tests that bring clients of their own, in a bubble of virtual
// time. Its collection is sim.locks, which routers take for sharded.
type Database struct{ w *world }

// NewDatabase makes servers to which a seed does what it plans, again and again, for so long. Beyond that nothing goes
// wrong.
func NewDatabase(seed uint64, long, ttl time.Duration) *Database {
	w := newWorld(seed, Settings{})
	x, d := &w.plan, w.rng("database")
	if x.ttl, x.faultsEnd, x.partitions, x.suspensions, x.migrations, x.ahead = ttl, long, nil, nil, nil, 0; !x.noFaults {
		x.oneFault, x.failovers, x.clockSteps = false, nil, nil
		x.lost, x.unanswered, x.late, x.slow, x.stalled = d.n(60), d.n(60), d.n(60), d.n(60), d.n(30)
		for at := d.between(time.Second, 5*time.Minute); at < long; at += d.between(10*time.Second, 20*time.Minute) {
			f := failover{at: at, kind: oneOf(d, stepDown, restart, cutOff), election: d.between(50*time.Millisecond, 12*time.Second)}
			f.stepped, f.offset = x.apart && d.chance(500), x.offset(d)
			if f.kind == cutOff {
				f.isolated = d.between(f.election, f.election+9*time.Second)
			}
			x.failovers = append(x.failovers, f)
		}
	}
	if x.servers == routers { // otherwise clocks are more than a minute apart
		x.clocksApart = min(x.clocksApart, farApart/routerApart)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.shards {
		for _, m := range c.members {
			m.ahead = x.ahead
		}
	}
	w.schedule()
	return &Database{w}
}

// Collection returns the collection, by a driver of the client's own. Nothing happens to what a client with a negative
// number sends.
func (d *Database) Collection(client int) *mongo.Collection {
	driver, err := connect(&process{world: d.w, id: client}, d.w.plan.retries)
	if err != nil {
		panic(err)
	}
	return driver.Database(lockDB).Collection(lockColl)
}

// String says what goes wrong.
func (d *Database) String() string { return d.w.plan.String() }

// Apart is by how much a server's clock may differ from the true time.
func (d *Database) Apart() time.Duration {
	return max(farApart, routerApart*d.w.plan.clocksApart) + 5*time.Second // of drift
}

// A Write is one document of the collection before and after a write that lasted; nil: it was not there.
type Write struct {
	At            time.Duration
	Before, After bson.D
}

// Close ends the history, and returns its writes.
func (d *Database) Close() (all []Write) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.closed = true
	for _, e := range d.w.writes() {
		if e.NS == locksNS {
			all = append(all, Write{e.Tag.(*mark).at, e.Before, e.After})
		}
	}
	return all
}
