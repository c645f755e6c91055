package simulation

import (
	"cmp"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// A router is the mongos that a client talks to. It is a member without data, whose clock is
// that of no document. Behind it are two shards. Every key is a chunk of its own, which may
// move from one shard to the other; all else is on the first.

// A migration moves a key's document to the other shard.
type migration struct {
	at   time.Duration
	key  string
	long time.Duration // for how long nothing can read or write the key
}

const locksNS = lockDB + "." + lockColl

const chunkMoved = "chunk migrated" // the fault

// routerApart is how many times as far a router's clock may be off as those of members.
const routerApart = 10

func (w *world) newRouter(client int) *member {
	d := w.rng("router " + itoa(client))
	m := &member{w: w, router: true, id: 10 + client, up: true, drift: w.plan.clockDrift}
	if m.offset = w.plan.offset(d); w.plan.apart { // nothing is assumed of a router's clock
		m.offset *= routerApart
	}
	return m
}

// shardOf returns which shard has a document.
func (w *world) shardOf(ns, id string) int {
	if ns != locksNS {
		return 0
	}
	at, has := w.owner[id]
	if !has {
		at = w.rng("shard of " + id).n(2)
		w.owner[id] = at
		if w.recording.Home == nil {
			w.recording.Home = map[string]int{}
		}
		w.recording.Home[id] = at
	}
	return at
}

// route hands a command to the shard of its document, or to both. With w.mu held, as
// everywhere in this file.
func (w *world) route(r *request) {
	r.routed = true
	router := w.routers[r.client.id]
	if c := router.heard; c.After(r.cmd.ClusterTime) {
		r.cmd.ClusterTime = c
	}
	switch r.cmd.Name {
	case "hello":
		w.respond(r, router.hello())
		return
	case "collStats":
		w.respond(r, bson.D{{Key: "ns", Value: r.cmd.NS()}, {Key: "sharded", Value: r.cmd.NS() == locksNS}, {Key: "ok", Value: 1.0}})
		return
	}
	if r.cmd.DB == "config" {
		w.respond(r, config(r.cmd))
		return
	}
	ids, named := r.cmd.IDs()
	if r.cmd.NS() == locksNS && !named && !r.cmd.Many() {
		w.respond(r, docdb.ErrNoShardKey)
		return
	}
	both := r.cmd.NS() == locksNS && !named
	for _, id := range ids {
		both = both || w.shardOf(r.cmd.NS(), id) != w.shardOf(r.cmd.NS(), ids[0])
	}
	if both {
		w.gather(r)
		return
	}
	shard := 0
	if named {
		shard = w.shardOf(r.cmd.NS(), ids[0])
	}
	w.toShard(r, shard, ids)
}

// config returns what the cluster says of its sharded collections.
func config(c docdb.Command) bson.D {
	docs := bson.A{}
	if c.Coll() == "collections" {
		docs = append(docs, bson.D{{Key: "_id", Value: locksNS}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}}, {Key: "unique", Value: false}})
	}
	return bson.D{{Key: "cursor", Value: bson.D{{Key: "firstBatch", Value: docs}, {Key: "id", Value: int64(0)}, {Key: "ns", Value: c.NS()}}}, {Key: "ok", Value: 1.0}}
}

// patience is how long a router looks for a shard's primary.
const patience = 15 * time.Second

// toShard sends a command on, once its document is not on the move and there is a primary.
func (w *world) toShard(r *request, shard int, ids []string) {
	r.tries++
	d := w.rng("hop " + r.name + " " + itoa(shard) + " " + itoa(r.tries))
	for _, id := range ids {
		if until := w.moving[id]; until > 0 && r.cmd.NS() == locksNS {
			w.after(until-w.since()+d.between(time.Microsecond, time.Millisecond), func() { w.route(r) })
			return
		}
	}
	m := w.shards[shard].primaryOf(r.client.id, 0)
	if m == nil {
		if w.since() > r.sent+patience {
			w.respond(r, errNoPrimary.reply())
			return
		}
		w.after(lookAgain(d), func() { w.route(r) })
		return
	}
	w.after(d.between(20*time.Microsecond, time.Millisecond), func() {
		r.member, r.epoch = m, m.epoch
		if !m.up {
			r.fail(errReset)
			return
		}
		m.handle(r)
	})
}

// elsewhere reports whether the document of a command is no longer the member's, or about to
// leave. The router then asks again where it is.
func (m *member) elsewhere(r *request) bool {
	if !r.routed || r.cmd.NS() != locksNS {
		return false
	}
	ids, _ := r.cmd.IDs()
	return slices.ContainsFunc(ids, func(id string) bool {
		return m.w.moving[id] > 0 || m.w.shards[m.w.shardOf(locksNS, id)] != m.c
	})
}

// gather sends the statements of a command to their shards, or all of it to both.
func (w *world) gather(r *request) {
	_, named := r.cmd.IDs()
	var replies []bson.D
	parts := make([]*request, len(w.shards))
	for shard := range parts {
		part := *r
		part.name += " on shard " + itoa(shard)
		part.done = func(reply bson.D) {
			if replies = append(replies, reply); len(replies) == len(parts) {
				w.respond(r, docdb.Merged(r.cmd, replies))
			}
		}
		parts[shard] = &part
	}
	if !named {
		w.toBoth(r, parts)
		return
	}
	for shard, part := range parts {
		part.cmd = r.cmd.Part(func(id string) bool { return w.shardOf(locksNS, id) == shard })
		ids, _ := part.cmd.IDs()
		w.toShard(part, shard, ids)
	}
}

// toBoth sends a command to both shards, once there is a primary of each and nothing is on the
// move. Each runs it at an instant of its own. If a chunk has moved in between, the shards notice, and
// the router begins again.
func (w *world) toBoth(r *request, parts []*request) {
	r.tries++
	d := w.rng("hop " + r.name + " " + itoa(r.tries))
	hop := func(then func()) { w.after(d.between(20*time.Microsecond, time.Millisecond), then) }
	first, moved := d.n(len(parts)), 0
	run := func(shard int) bool {
		part, m := parts[shard], w.shards[shard].primaryOf(r.client.id, 0)
		if m == nil || !m.up || len(w.moving) > 0 || w.faults[chunkMoved] != moved {
			return false
		}
		part.member, part.epoch = m, m.epoch
		m.handle(part)
		return true
	}
	hop(func() {
		moved = w.faults[chunkMoved]
		switch {
		case run(first):
			hop(func() {
				if !run(1 - first) {
					w.gather(r)
				}
			})
		case w.since() > r.sent+patience:
			w.respond(r, errNoPrimary.reply())
		default:
			w.after(lookAgain(d), func() { w.toBoth(r, parts) })
		}
	})
}

// scheduleMigrations schedules the planned migrations.
func (w *world) scheduleMigrations() {
	for _, x := range w.plan.migrations {
		w.after(x.at, func() {
			if w.moving[x.key] > 0 {
				return
			}
			w.fault(chunkMoved)
			w.moving[x.key] = w.since() + x.long
			w.logf("%s moves from shard %d", x.key, w.shardOf(locksNS, x.key))
			w.noteLocked(history.Event{Kind: history.Trouble, Client: -1, Note: history.Failover, Until: x.at + x.long + time.Second})
			w.after(x.long, func() { w.move(x.key) })
		})
	}
}

// move commits a migration: both shards have all of it on a majority.
func (w *world) move(key string) {
	shard := w.shardOf(locksNS, key)
	from, to := w.shards[shard].leader, w.shards[1-shard].leader
	if from == nil || to == nil || from.isolated || to.isolated {
		const again = 50*time.Millisecond + 7*time.Microsecond
		w.moving[key] = w.since() + again
		w.after(again, func() { w.move(key) })
		return
	}
	from.db.Tag, to.db.Tag = nil, nil
	from.db.Move(to.db, locksNS, key, from.now(), to.now())
	from.c.settle(from)
	to.c.settle(to)
	w.owner[key] = 1 - shard
	w.record(Step{Kind: Moved, Shard: 1 - shard, Term: to.term, Key: key})
	delete(w.moving, key)
	w.logf("%s is on shard %d", key, 1-shard)
}

// settle gives the other members all that the primary has.
func (c *cluster) settle(m *member) {
	now := time.Now()
	for _, o := range c.members {
		if o == m {
			continue
		}
		for i, at := range o.has {
			if at.After(now) {
				o.has[i] = now
			}
		}
		for len(o.has) < m.db.Len() {
			o.has = append(o.has, now)
		}
	}
}

// writes returns what the primaries of all shards have logged, in order of time; nothing if a
// shard has none.
func (w *world) writes() (all []docdb.Entry) {
	for _, c := range w.shards {
		if c.leader == nil {
			return nil
		}
		for _, e := range c.leader.db.Log(0) {
			if _, ours := e.Tag.(*mark); ours {
				all = append(all, e)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b docdb.Entry) int { return cmp.Compare(a.Tag.(*mark).at, b.Tag.(*mark).at) })
	return all
}
