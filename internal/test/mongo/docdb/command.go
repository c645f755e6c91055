package docdb

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Command is a command of a client, with its document sequences as arrays.
type Command struct {
	Name    string
	DB      string
	Body    bson.D
	Session string // empty: none
	Number  int64  // the transaction number; 0: none

	ClusterTime bson.Timestamp // the latest that its client knows; zero: none
	Wait        Wait           // of a getMore

	statements []int32 // their numbers, if the command is a part of another
}

// A Wait is how far a getMore is that awaits something to read. Whoever runs the database runs the
// command when it comes, again whenever something was written meanwhile, and when its time is over.
type Wait int

// The parts of a wait. A server looks at the collection again when the time is over: a getMore that
// waits does not notice that the collection was dropped.
const (
	Comes Wait = iota
	Waits
	Over
)

// Parse reads a command.
func Parse(raw bson.Raw) (Command, error) {
	body, err := decode(raw)
	if err != nil || len(body) == 0 {
		return Command{}, errors.Join(errors.New("docdb: not a command"), err)
	}
	c := Command{Name: body[0].Key, Body: body}
	if db, ok := get(body, "$db"); ok {
		c.DB, _ = db.(string)
	}
	if id, ok := get(body, "lsid.id"); ok {
		if b, ok := id.(bson.Binary); ok {
			c.Session = fmt.Sprintf("%x", b.Data)
		}
	}
	if t, ok := get(body, "$clusterTime.clusterTime"); ok {
		c.ClusterTime, _ = t.(bson.Timestamp)
	}
	if n, ok := get(body, "txnNumber"); ok {
		c.Number, _ = n.(int64)
	}
	return c, nil
}

// Coll returns the collection that the command is about.
func (c Command) Coll() string {
	name, _ := c.Body[0].Value.(string)
	if c.Name == "getMore" {
		v, _ := get(c.Body, "collection")
		name, _ = v.(string)
	}
	return name
}

// NS returns the namespace of the command.
func (c Command) NS() string { return c.DB + "." + c.Coll() }

// Writes reports whether only a primary may run the command.
func (c Command) Writes() bool {
	switch c.Name {
	case "findAndModify", "insert", "update", "delete", "create", "drop", "createIndexes":
		return true
	}
	return false
}

// Limit returns the command's maxTimeMS; 0: none.
func (c Command) Limit() time.Duration {
	v, _ := get(c.Body, "maxTimeMS")
	n, _ := number(v)
	return time.Duration(n) * time.Millisecond
}

// Majority reports whether the command waits until its write cannot be rolled back.
func (c Command) Majority() bool {
	w, _ := get(c.Body, "writeConcern.w")
	return w == "majority"
}

// Reads reports whether the command is a find under that read concern.
func (c Command) Reads(level string) bool {
	concern, _ := get(c.Body, "readConcern.level")
	return c.Name == "find" && concern == level
}

// Awaits returns how long a getMore may wait for something to read.
func (db *DB) Awaits(c Command) time.Duration {
	if c.Name != "getMore" {
		return 0
	}
	id, _ := c.Body[0].Value.(int64)
	cur := db.cursors[id]
	if cur == nil {
		return 0
	}
	if limit := c.Limit(); limit > 0 {
		return limit
	}
	return cur.wait
}

// Modifies returns the name of the document that a findAndModify would change as it stands, and whether it finds none, and
// makes none.
func (db *DB) Modifies(c Command) (document string, misses bool) {
	if c.Name != "findAndModify" {
		return "", false
	}
	d, err := db.first(c.NS(), field[bson.D](c.Body, "query"), nil)
	if d == nil || err != nil {
		return "", !field[bool](c.Body, "upsert")
	}
	return fmt.Sprint(c.NS(), " ", mustGet(d, "_id")), false
}

// Busy reports whether an earlier command of the session is held up. A server runs one
// command of a session at a time.
func (db *DB) Busy(c Command) bool {
	s := db.sessions[c.Session]
	return c.Number > 0 && s != nil && s.busy
}

// Do runs a command. If hold is set and the command is an upsert that must insert, the
// document is built now, and rest inserts it later.
func (db *DB) Do(c Command, now time.Time, hold bool) (reply bson.D, rest func(now time.Time) bson.D) {
	var finish func(now time.Time) (bson.D, error)
	reply, finish, err := db.run(c, now)
	if finish == nil {
		return answer(reply, err), nil
	}
	if hold {
		s := db.session(c.Session)
		s.busy = c.Number > 0
		return nil, func(now time.Time) bson.D {
			s.busy = false
			return answer(finish(now))
		}
	}
	return answer(finish(now)), nil
}

func answer(reply bson.D, err error) bson.D {
	if err == nil {
		return append(reply, bson.E{Key: "ok", Value: 1.0})
	}
	var f failure
	if !errors.As(err, &f) {
		f = failure{2, err.Error()}
	}
	return Failure(f.code, f.message, reply...)
}

// Failure is the reply of a command that failed.
func Failure(code int32, message string, more ...bson.E) bson.D {
	return append(bson.D{
		{Key: "ok", Value: 0.0},
		{Key: "errmsg", Value: message},
		{Key: "code", Value: code},
		{Key: "codeName", Value: codeNames[code]},
	}, more...)
}

var codeNames = map[int32]string{
	2: "BadValue", 9: "FailedToParse", 14: "TypeMismatch", 26: "NamespaceNotFound", 28: "PathNotViable",
	40: "ConflictingUpdateOperators", 43: "CursorNotFound", 48: "NamespaceExists", 50: "MaxTimeMSExpired",
	52: "DollarPrefixedFieldName", 56: "EmptyFieldName", 61: "ShardKeyNotFound",
	59: "CommandNotFound", 66: "ImmutableField", 136: "CappedPositionLost", 166: "CommandNotSupportedOnView", 175: "QueryPlanKilled", 189: "PrimarySteppedDown", 225: "TransactionTooOld",
	10107: "NotWritablePrimary", 11000: "DuplicateKey", 11602: "InterruptedDueToReplStateChange", 7314600: "Location7314600",
}

func (db *DB) run(c Command, now time.Time) (bson.D, func(time.Time) (bson.D, error), error) {
	if c.Number > 0 && c.Writes() {
		s := db.session(c.Session)
		if c.Number < s.active {
			return nil, nil, failure{225, fmt.Sprintf("cannot start transaction %d on a session where %d has begun", c.Number, s.active)}
		}
		if c.Number > s.active {
			s.active, s.done = c.Number, map[int32]Entry{}
		}
	}
	if err := db.writable(c); err != nil {
		return nil, nil, err
	}
	if c.Name == "findAndModify" {
		return db.findAndModify(c, now)
	}
	reply, err := db.simple(c, now)
	return reply, nil, err
}

func (db *DB) simple(c Command, now time.Time) (bson.D, error) {
	switch c.Name {
	case "find":
		return db.find(c)
	case "getMore":
		return db.getMore(c)
	case "killCursors":
		return db.killCursors(c)
	case "insert":
		return db.insert(c, now)
	case "update":
		return db.update(c, now)
	case "delete":
		return db.remove(c, now)
	case "create":
		return db.create(c, now)
	case "drop":
		return db.drop(c, now)
	case "createIndexes":
		return db.createIndexes(c, now)
	case "listIndexes":
		return db.listIndexes(c)
	case "aggregate":
		return db.aggregate(c)
	case "listCollections":
		return db.listCollections(c)
	case "ping", "endSessions":
		return bson.D{}, nil
	}
	return nil, failure{59, "no such command: '" + c.Name + "'"}
}

// done returns what an earlier send of the same statement did.
func (db *DB) done(c Command, stmt int32) (Entry, bool) {
	if c.Number == 0 {
		return Entry{}, false
	}
	e, ok := db.session(c.Session).done[stmt]
	return e, ok
}

// entry returns the log entry of a statement's write.
func (c Command) entry(stmt int32, before, after bson.D, image any) Entry {
	e := Entry{NS: c.NS(), Before: before, After: after, image: image}
	if c.Number > 0 {
		e.session, e.number, e.stmt = c.Session, c.Number, stmt
	}
	return e
}

// Release frees the session of a command that was held up and then given up.
func (db *DB) Release(c Command) {
	if s := db.sessions[c.Session]; s != nil {
		s.busy = false
	}
}
