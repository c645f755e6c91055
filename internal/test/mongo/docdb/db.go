package docdb

import (
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A DB is the data of one server: collections, the log of their writes, and the sessions. It
// is not safe for concurrent use.
type DB struct {
	colls    map[string]*coll
	log      []Entry
	last     bson.Timestamp // of the newest write
	heard    bson.Timestamp // the latest cluster time that a client or another server has sent
	sessions map[string]*session
	cursors  map[int64]*cursor
	lastID   int64

	// Tag goes into the log with every write, so that a test can tell who sent it.
	Tag any
}

// New returns an empty database.
func New() *DB {
	return &DB{colls: map[string]*coll{}, sessions: map[string]*session{}, cursors: map[int64]*cursor{}}
}

// An Entry is one write in the log.
type Entry struct {
	At            bson.Timestamp
	NS            string
	Before, After bson.D // nil: the document was not there, or no longer is
	Tag           any

	session string
	number  int64
	stmt    int32
	image   any // answers a retry of the statement
	undo    func(*DB)
}

type coll struct {
	kind    string // "view" or "timeseries", which takes no writes here; empty: a plain one
	capped  bool
	size    int64
	bytes   int64
	docs    []bson.D
	gone    int // how many documents a capped collection has dropped
	indexes []bson.D
	places  map[string]int // of the documents, by those _ids that are strings; nil: to be made
}

// A session remembers its newest transaction number and what was done under it.
type session struct {
	active int64
	done   map[int32]Entry
	busy   bool // a command of the session is held up inside the server
}

// A cursor is a tailable cursor on a capped collection.
type cursor struct {
	ns     string
	coll   *coll // a collection of the same name may take its place
	filter bson.D
	next   int // how many documents come before it, dropped ones included
	wait   time.Duration
}

// Len returns how many writes the log has.
func (db *DB) Len() int { return len(db.log) }

// Log returns the writes from the nth on.
func (db *DB) Log(n int) []Entry { return db.log[n:] }

// Last returns the time of the newest write.
func (db *DB) Last() bson.Timestamp { return db.last }

// Hear advances the cluster time to that of a client or another server. All later writes
// come after it.
func (db *DB) Hear(t bson.Timestamp) {
	if t.After(db.heard) {
		db.heard = t
	}
}

// ClusterTime returns the latest cluster time that the server knows.
func (db *DB) ClusterTime() bson.Timestamp {
	if db.heard.After(db.last) {
		return db.heard
	}
	return db.last
}

// Fork returns a copy of the data after the first n writes, as a server has it that received
// no more. Cursors and all that is only in memory are not copied.
func (db *DB) Fork(n int) *DB {
	next := &DB{
		colls:   make(map[string]*coll, len(db.colls)),
		log:     slices.Clone(db.log),
		cursors: map[int64]*cursor{},
		lastID:  db.lastID + 1000,
		last:    db.last,
		heard:   db.heard, // a new primary's times come after all that it knows
	}
	for name, c := range db.colls {
		copied := *c
		copied.docs, copied.indexes, copied.places = slices.Clone(c.docs), slices.Clone(c.indexes), nil
		next.colls[name] = &copied
	}
	for len(next.log) > n {
		end := len(next.log) - 1
		next.log[end].undo(next)
		next.log = next.log[:end]
	}
	next.Forget()
	return next
}

// Forget drops what was only in memory, as a restart does. A transaction number is
// remembered if something was written under it.
func (db *DB) Forget() {
	db.sessions = map[string]*session{}
	db.cursors = map[int64]*cursor{}
	for _, e := range db.log {
		if e.session == "" {
			continue
		}
		db.remember(e)
	}
}

// remember notes what was done under a transaction number.
func (db *DB) remember(e Entry) {
	s := db.session(e.session)
	if e.number > s.active {
		s.active, s.done = e.number, map[int32]Entry{}
	}
	if e.number == s.active {
		s.done[e.stmt] = e
	}
}

func (db *DB) session(id string) *session {
	s := db.sessions[id]
	if s == nil {
		s = &session{active: -1, done: map[int32]Entry{}}
		db.sessions[id] = s
	}
	return s
}

// Docs returns the documents of a collection, for tests.
func (db *DB) Docs(ns string) []bson.D {
	if c := db.colls[ns]; c != nil {
		return slices.Clone(c.docs)
	}
	return nil
}

// Collections returns the names of all collections.
func (db *DB) Collections() []string { return slices.Sorted(maps.Keys(db.colls)) }

// tick returns a cluster time after all earlier ones.
func (db *DB) tick(now time.Time) bson.Timestamp {
	t := uint32(now.Unix())
	db.last = db.ClusterTime()
	if t <= db.last.T {
		db.last.I++
	} else {
		db.last = bson.Timestamp{T: t, I: 1}
	}
	return db.last
}

func (db *DB) stamps(now time.Time) stamps {
	return stamps{now: now, tick: func() bson.Timestamp { return db.tick(now) }}
}

// write replaces one document by another, and logs that.
func (db *DB) write(now time.Time, e Entry) {
	c := db.colls[e.NS]
	if c == nil {
		c = &coll{}
		db.colls[e.NS] = c
	}
	e.At, e.Tag = db.tick(now), db.Tag
	before, after, ns := e.Before, e.After, e.NS
	e.undo = func(db *DB) { db.put(ns, after, before) }
	db.put(ns, before, after)
	db.log = append(db.log, e)
	if e.session != "" {
		s := db.session(e.session)
		s.done[e.stmt] = e
	}
}

// put replaces before by after; either may be nil.
func (db *DB) put(ns string, before, after bson.D) {
	c := db.colls[ns]
	if c == nil {
		c = &coll{}
		db.colls[ns] = c
	}
	at := len(c.docs)
	if before != nil {
		id, _ := get(before, "_id")
		at = c.find(id)
	}
	switch {
	case after == nil:
		if at >= 0 && at < len(c.docs) {
			c.docs, c.places = slices.Delete(c.docs, at, at+1), nil
		}
	case before == nil:
		c.docs = append(c.docs, after)
		c.place(at)
		c.dropOldest(after)
	default:
		c.docs[at] = after
	}
}

// dropOldest keeps a capped collection within its size.
func (c *coll) dropOldest(added bson.D) {
	if !c.capped {
		return
	}
	raw, _ := bson.Marshal(added)
	c.bytes += int64(len(raw))
	for c.bytes > c.size && len(c.docs) > 1 {
		raw, _ := bson.Marshal(c.docs[0])
		c.bytes -= int64(len(raw))
		c.docs, c.places = c.docs[1:], nil
		c.gone++
	}
}

// alter logs a change of a collection itself, not of its documents.
func (db *DB) alter(now time.Time, ns string, undo func(*DB)) {
	db.log = append(db.log, Entry{At: db.tick(now), NS: ns, undo: undo})
}

// Sweep deletes the documents that the TTL indexes cover and that are old enough, as the
// server does once a minute.
func (db *DB) Sweep(now time.Time) (swept int) {
	for _, ns := range db.Collections() {
		c := db.colls[ns]
		for _, index := range c.indexes {
			after, has := get(index, "expireAfterSeconds")
			if !has {
				continue
			}
			seconds, _ := number(after)
			limit := now.Add(-time.Duration(seconds) * time.Second)
			partial, _ := get(index, "partialFilterExpression")
			filter, _ := partial.(bson.D)
			key, _ := get(index, "key")
			field := key.(bson.D)[0].Key
			for _, d := range slices.Clone(c.docs) {
				v, _ := get(d, field)
				end, isDate := v.(bson.DateTime)
				if is, _ := matches(d, filter); is && isDate && end <= date(limit) {
					db.write(now, Entry{NS: ns, Before: d})
					swept++
				}
			}
		}
	}
	return swept
}

// Stamped adds to a reply the times that every one of a replica set carries.
func Stamped(reply bson.D, operation, cluster bson.Timestamp) bson.D {
	return append(reply, bson.E{Key: "operationTime", Value: operation}, Signed(cluster))
}

// Signed is the field of a reply that has the cluster's time.
func Signed(cluster bson.Timestamp) bson.E {
	return bson.E{Key: "$clusterTime", Value: bson.D{
		{Key: "clusterTime", Value: cluster},
		{Key: "signature", Value: bson.D{{Key: "hash", Value: bson.Binary{Data: make([]byte, 20)}}, {Key: "keyId", Value: int64(0)}}},
	}}
}
