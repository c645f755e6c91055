package docdb

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// IDs returns the _ids that a command names, one for each of its statements, and whether all
// of it is about them.
func (c Command) IDs() (ids []string, named bool) {
	add := func(filter any) bool {
		d, _ := filter.(bson.D)
		switch id := mustGet(d, "_id").(type) {
		case string:
			ids = append(ids, id)
			return true
		case bson.D: // an _id that is a document, unless it is a condition
			ids = append(ids, fmt.Sprint(id))
			return len(id) > 0 && !strings.HasPrefix(id[0].Key, "$")
		}
		return false
	}
	switch c.Name {
	case "findAndModify":
		if !add(mustGet(c.Body, "query")) {
			return nil, false
		}
	case "find":
		if !add(mustGet(c.Body, "filter")) {
			return nil, false
		}
	case "insert":
		for _, d := range field[bson.A](c.Body, "documents") {
			if !add(d) {
				return nil, false
			}
		}
	case "update", "delete":
		for _, u := range field[bson.A](c.Body, c.Name+"s") {
			if !add(mustGet(u.(bson.D), "q")) {
				return nil, false
			}
		}
	default:
		return nil, false
	}
	return ids, len(ids) > 0
}

// ErrNoShardKey answers a write to one document that does not name the shard key, as before MongoDB 7.1.
var ErrNoShardKey = Failure(61, "the query must contain the shard key")

// Many reports whether a command may be about documents on several shards.
func (c Command) Many() bool {
	switch c.Name {
	case "findAndModify":
		return false
	case "update", "delete":
		return !slices.ContainsFunc(field[bson.A](c.Body, c.Name+"s"), func(of any) bool {
			most, _ := number(mustGet(of.(bson.D), "limit"))
			return !field[bool](of.(bson.D), "multi") && (c.Name == "update" || most > 0)
		})
	}
	return true
}

// Part returns a command with only those of its statements whose _id keep accepts. They keep
// their numbers.
func (c Command) Part(keep func(id string) bool) Command {
	ids, _ := c.IDs()
	list := map[string]string{"insert": "documents", "update": "updates", "delete": "deletes"}[c.Name]
	all := field[bson.A](c.Body, list)
	part := bson.A{}
	var numbers []int32
	for i, id := range ids {
		if keep(id) {
			part = append(part, all[i])
			numbers = append(numbers, c.statement(i))
		}
	}
	c.Body, _ = with(c.Body, list, part)
	c.statements = numbers
	return c
}

// statement returns the number of a command's ith statement.
func (c Command) statement(i int) int32 {
	if c.statements != nil {
		return c.statements[i]
	}
	return int32(i)
}

// Merged returns what a router answers for the replies of its shards: a failure if there is
// one, else all that they answered.
func Merged(c Command, replies []bson.D) bson.D {
	merged := bson.D{}
	for _, r := range replies {
		if ok := mustGet(r, "ok"); ok != 1.0 {
			return r
		}
		for _, e := range r {
			merged = merge(merged, e)
		}
	}
	if c.Name == "find" {
		if batch, ok := mustGet(merged, "cursor.firstBatch").(bson.A); ok {
			slices.SortStableFunc(batch, func(a, b any) int { return compare(mustGet(a.(bson.D), "_id"), mustGet(b.(bson.D), "_id")) })
		}
	}
	return merged
}

func merge(into bson.D, e bson.E) bson.D {
	old, there := get(into, e.Key)
	value := e.Value
	switch e.Key {
	case "n", "nModified":
		if there {
			value = old.(int32) + value.(int32)
		}
	case "writeErrors", "upserted":
		if there {
			value = append(slices.Clone(old.(bson.A)), value.(bson.A)...)
		}
	case "operationTime", "$clusterTime":
		if there && compare(old, value) > 0 {
			value = old
		}
	case "cursor":
		if there {
			batch := append(slices.Clone(field[bson.A](old.(bson.D), "firstBatch")), field[bson.A](value.(bson.D), "firstBatch")...)
			value, _ = with(old.(bson.D), "firstBatch", batch)
		}
	}
	into, _ = with(into, e.Key, value)
	return into
}

// Move moves a document to another database, as the migration of its chunk does: with the
// writes made to it under transaction numbers, and with the cluster time. Commands of its
// sessions that changed nothing are forgotten.
func (db *DB) Move(to *DB, ns, id string, now, there time.Time) {
	to.Hear(db.ClusterTime())
	about := func(d bson.D) bool { return d != nil && mustGet(d, "_id") == any(id) }
	for _, e := range slices.Clone(db.log) {
		if e.NS == ns && e.session != "" && (about(e.Before) || about(e.After)) {
			e.At, e.NS, e.Tag, e.undo = to.tick(there), "", nil, func(*DB) {}
			e.Before, e.After = nil, nil
			to.log = append(to.log, e)
			to.remember(e)
		}
	}
	if c := db.colls[ns]; c != nil {
		if at := c.find(id); at >= 0 {
			d := c.docs[at]
			db.write(now, Entry{NS: ns, Before: d})
			to.write(there, Entry{NS: ns, After: d})
		}
	}
}
