package simulation

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

func itoa(n int) string { return strconv.Itoa(n) }

// A mark goes into the log with a write: which client sent it, when it was written, and what
// the server's clock showed.
type mark struct {
	at     time.Duration
	began  time.Duration // when its sender began with it
	client int
	actor  string
	member int
	clock  time.Time
	name   string
	op     int
	sweep  bool
	write  string // see numbered
}

// A wireFailure is an error of a command that comes from the state of the server.
type wireFailure struct {
	code    int32
	message string
	labels  []string
}

var (
	errNotPrimary  = wireFailure{10107, "not primary", []string{"RetryableWriteError"}}
	errSteppedDown = wireFailure{11602, "operation was interrupted", []string{"RetryableWriteError"}}
	errUnreachable = wireFailure{6, "network error", []string{"RetryableWriteError"}}
	errNoPrimary   = wireFailure{133, "no primary", []string{"RetryableWriteError"}}
	errTimeLimit   = wireFailure{50, "operation exceeded time limit", nil}
)

func (f wireFailure) reply() bson.D {
	labels := bson.A{}
	for _, l := range f.labels {
		labels = append(labels, l)
	}
	return docdb.Failure(f.code, f.message, bson.E{Key: "errorLabels", Value: labels})
}

// arrive hands a command to its server. With w.mu held, as everywhere in this file.
func (w *world) arrive(r *request) {
	m := r.member
	if m.router {
		w.route(r)
		return
	}
	if r.delivery.any && w.cluster.leader != nil {
		m = w.cluster.leader // as through a proxy that finds the primary itself
		r.member, r.epoch = m, m.epoch
	}
	if !m.up || r.epoch != m.epoch {
		w.logf("%s finds no server", r.name)
		r.fail(errReset)
		return
	}
	m.handle(r)
}

func (m *member) handle(r *request) {
	w, c := m.w, r.cmd
	if m.db != nil {
		m.db.Hear(c.ClusterTime)
	}
	switch {
	case m.elsewhere(r), r.routed && !m.primary:
		w.route(r)
		return
	case c.Name == "hello":
		reply := m.hello()
		m.recordHello(r, reply)
		w.respond(r, reply)
		return
	case !m.primary:
		w.respond(r, errNotPrimary.reply())
		return
	case m.db.Busy(c):
		m.queued[c.Session] = append(m.queued[c.Session], func() { m.handle(r) })
		return
	}
	before := m.db.Len()
	if c.Reads("majority") {
		reply, _ := m.settled().Do(c, m.now(), false)
		w.record(Step{Kind: Committed, Shard: m.c.shard, Term: m.term, Length: m.point})
		m.recordRan(r, before, reply)
		m.answered(r, reply, before)
		return
	}
	m.db.Tag = r.mark(m)
	reply, rest := m.db.Do(c, m.now(), r.delivery.stall > 0)
	if rest == nil {
		m.recordRan(r, before, reply)
		m.answered(r, reply, before)
		return
	}
	w.fault("insert stalled")
	w.logf("%s is held up", r.name)
	db, epoch := m.db, m.epoch
	stall, over := r.delivery.stall, false
	if limit := c.Limit(); limit > 0 && limit < stall && r.obeysLimit {
		stall, over = limit, true
	}
	w.after(stall, func() {
		if m.db != db || m.epoch != epoch || !m.primary {
			r.fail(errReset)
			return
		}
		before := m.db.Len()
		m.db.Tag = r.mark(m)
		switch {
		case over:
			m.db.Release(c)
			w.respond(r, errTimeLimit.reply())
		case m.elsewhere(r):
			m.db.Release(c)
			r.delivery.stall = 0
			w.route(r)
		default:
			reply := rest(m.now())
			m.recordRan(r, before, reply)
			m.answered(r, reply, before)
		}
		queued := m.queued[c.Session]
		delete(m.queued, c.Session)
		for _, next := range queued {
			next()
		}
	})
}

func (r *request) mark(m *member) *mark {
	return &mark{at: m.w.since(), began: r.began, client: r.client.id, actor: r.actor, member: m.id, clock: m.now(), name: r.name, op: r.op, write: r.numbered()}
}

// answered sends a reply: at once, once a majority has the write, or once there is something
// to read.
func (m *member) answered(r *request, reply bson.D, before int) {
	w := m.w
	if m.db.Len() > before {
		w.logf("%s writes %d", r.name, m.db.Len())
		m.c.replicate(m, before)
		defer m.wakeReaders(r.cmd.NS())
	}
	reply = m.stamped(reply)
	switch {
	case r.cmd.Majority(), r.cmd.Reads("linearizable"): // that read makes sure that its server is the primary still
		m.waitForMajority(r, reply, m.db.Len())
	case r.cmd.Name == "getMore" && docdb.Nothing(reply):
		m.waitForNews(r)
	default:
		w.respond(r, reply)
	}
}

// stamped adds the times that every reply of a replica set carries.
func (m *member) stamped(reply bson.D) bson.D {
	if m.w.plan.servers == standalone {
		return reply
	}
	return docdb.Stamped(reply, m.db.Last(), m.db.ClusterTime())
}

func (m *member) waitForMajority(r *request, reply bson.D, n int) {
	w := m.w
	m.waiting[r] = struct{}{}
	end := func(reply bson.D) {
		if _, still := m.waiting[r]; still {
			delete(m.waiting, r)
			w.respond(r, reply)
		}
	}
	if at, ok := m.c.committed(m, n); ok {
		term := m.term
		w.after(max(time.Until(at), 1), func() {
			if at, ok := m.c.committed(m, n); ok && m.term == term && !at.After(time.Now()) {
				m.point = max(m.point, n)
				w.record(Step{Kind: Committed, Shard: m.c.shard, Term: m.term, Length: m.point})
				end(reply)
			}
		})
	}
	if limit := r.cmd.Limit(); limit > 0 {
		w.after(limit, func() {
			if !r.cmd.Writes() {
				end(errTimeLimit.reply())
				return
			}
			end(append(slices.Clone(reply), bson.E{Key: "writeConcernError", Value: bson.D{
				{Key: "code", Value: int32(50)}, {Key: "codeName", Value: "MaxTimeMSExpired"}, {Key: "errmsg", Value: "operation exceeded time limit"},
			}}))
		})
	}
}

func (m *member) waitForNews(r *request) {
	ns := r.cmd.DB + "." + r.cmd.Coll()
	m.waiting[r] = struct{}{}
	m.reading[ns] = append(m.reading[ns], r)
	m.w.after(m.db.Awaits(r.cmd), func() {
		if _, still := m.waiting[r]; still {
			delete(m.waiting, r)
			m.reading[ns] = slices.DeleteFunc(m.reading[ns], func(o *request) bool { return o == r })
			m.w.respond(r, m.stamped(m.reads(r, docdb.Over)))
		}
	})
}

func (m *member) wakeReaders(ns string) {
	readers := m.reading[ns]
	delete(m.reading, ns)
	for _, r := range readers {
		if _, still := m.waiting[r]; !still {
			continue
		}
		if reply := m.reads(r, docdb.Waits); docdb.Nothing(reply) { // it is for others
			m.reading[ns] = append(m.reading[ns], r)
		} else {
			delete(m.waiting, r)
			m.w.respond(r, m.stamped(reply))
		}
	}
}

// reads answers a getMore that waits, or whose time is over.
func (m *member) reads(r *request, wait docdb.Wait) bson.D {
	c := r.cmd
	c.Wait = wait
	reply, _ := m.db.Do(c, m.now(), false)
	return reply
}

func (m *member) hello() bson.D {
	servers := m.w.plan.servers
	reply := bson.D{
		{Key: "isWritablePrimary", Value: m.primary},
		{Key: "localTime", Value: bson.DateTime(m.now().UnixMilli())},
		{Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
		{Key: "maxWireVersion", Value: int32(21)},
		{Key: "ok", Value: 1.0},
	}
	if m.router {
		reply = append(reply, bson.E{Key: "msg", Value: "isdbgrid"})
	} else if servers != standalone {
		reply = append(reply, bson.E{Key: "setName", Value: "rs"}, bson.E{Key: "setVersion", Value: int32(1)})
	}
	if servers == replicaSet && m.primary {
		reply = append(reply, bson.E{Key: "electionId", Value: m.electionID()})
	}
	switch {
	case m.router:
		reply[0].Value = true
		return append(reply, docdb.Signed(m.heard))
	case m.db == nil:
		return reply
	}
	return m.stamped(reply)
}

// electionID is that of a primary, as a real one has it: it rises with each election.
func (m *member) electionID() bson.ObjectID {
	return bson.ObjectID{0: 0x7f, 1: 0xff, 2: 0xff, 3: 0xff, 10: byte(m.term >> 8), 11: byte(m.term)}
}

// inOrder returns requests in the order in which they were sent.
func inOrder(set map[*request]struct{}) []*request {
	return slices.SortedFunc(maps.Keys(set), func(a, b *request) int { return cmp.Or(cmp.Compare(a.sent, b.sent), strings.Compare(a.name, b.name)) })
}
