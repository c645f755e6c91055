package docdb

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// defaultAwait is how long a getMore without a limit waits.
const defaultAwait = time.Second

func (db *DB) find(c Command) (bson.D, error) {
	coll := db.colls[c.NS()]
	filter := field[bson.D](c.Body, "filter")
	projection := field[bson.D](c.Body, "projection")
	if err := projectable(projection); err != nil {
		return nil, err
	}
	if field[bool](c.Body, "tailable") {
		return db.tail(c, coll, filter)
	}
	found := []bson.D{}
	if coll != nil {
		for _, d := range coll.docs {
			is, err := matches(d, filter)
			if err != nil {
				return nil, err
			}
			if is {
				found = append(found, d)
			}
		}
	} else if _, err := matches(nil, filter); err != nil {
		return nil, err
	}
	if sort := field[bson.D](c.Body, "sort"); len(sort) > 0 {
		slices.SortStableFunc(found, func(a, b bson.D) int { return bySort(sort, a, b) })
	}
	if skip, _ := number(mustGet(c.Body, "skip")); skip > 0 {
		found = found[min(int(skip), len(found)):]
	}
	if limit, _ := number(mustGet(c.Body, "limit")); limit > 0 && len(found) > int(limit) {
		found = found[:int(limit)]
	}
	batch := bson.A{}
	for _, d := range found {
		batch = append(batch, projected(d, projection))
	}
	return batched("firstBatch", 0, c.NS(), batch), nil
}

func bySort(sort, a, b bson.D) int {
	for _, s := range sort {
		x, _ := get(a, s.Key)
		y, _ := get(b, s.Key)
		d := compare(x, y)
		if way, _ := number(s.Value); way < 0 {
			d = -d
		}
		if d != 0 {
			return d
		}
	}
	return 0
}

// projected keeps the fields that a projection names, or leaves out those that it names
// with 0.
func projected(d, projection bson.D) bson.D {
	switch {
	case len(projection) == 0:
		return d
	case truth(projection[0].Value):
		if _, named := get(projection, "_id"); !named {
			projection = append(bson.D{{Key: "_id", Value: 1}}, projection...)
		}
		return kept(d, projection)
	}
	for _, e := range projection {
		d = without(d, e.Key)
	}
	return d
}

// kept returns the fields at some paths.
func kept(d, paths bson.D) bson.D {
	some := bson.D{}
	for _, e := range d {
		var inside bson.D
		for _, p := range paths {
			name, rest, deeper := strings.Cut(p.Key, ".")
			if name == e.Key && deeper {
				inside = append(inside, bson.E{Key: rest, Value: p.Value})
			} else if name == e.Key {
				some = append(some, e)
			}
		}
		if in, is := e.Value.(bson.D); is && len(inside) > 0 {
			some = append(some, bson.E{Key: e.Key, Value: kept(in, inside)})
		}
	}
	return some
}

// projectable refuses a projection that keeps some fields and leaves out others, or that names a path
// and a part of it.
func projectable(projection bson.D) error {
	for i, e := range projection {
		if truth(e.Value) != truth(projection[0].Value) {
			return failure{31254, fmt.Sprintf("cannot do exclusion and inclusion of fields in one projection, at %s", e.Key)}
		}
		for _, other := range projection[:i] {
			if e.Key == other.Key || strings.HasPrefix(e.Key, other.Key+".") || strings.HasPrefix(other.Key, e.Key+".") {
				return failure{31249, fmt.Sprintf("path collision at %s", e.Key)}
			}
		}
	}
	return nil
}

func batched(name string, id int64, ns string, batch bson.A) bson.D {
	return bson.D{{Key: "cursor", Value: bson.D{
		{Key: name, Value: batch},
		{Key: "id", Value: id},
		{Key: "ns", Value: ns},
	}}}
}

func (db *DB) tail(c Command, coll *coll, filter bson.D) (bson.D, error) {
	if _, err := matches(nil, filter); err != nil {
		return nil, err
	}
	switch {
	case coll == nil:
		return batched("firstBatch", 0, c.NS(), bson.A{}), nil
	case !coll.capped:
		return nil, badValue("error processing query: tailable cursor requested on non capped collection")
	case len(coll.docs) == 0: // the cursor is dead at once
		return batched("firstBatch", 0, c.NS(), bson.A{}), nil
	}
	db.lastID++
	cur := &cursor{ns: c.NS(), coll: coll, filter: filter, wait: defaultAwait}
	db.cursors[db.lastID] = cur
	return batched("firstBatch", db.lastID, c.NS(), cur.read()), nil
}

// read returns the documents after the cursor that its filter matches, and moves it to the end.
func (cur *cursor) read() bson.A {
	c, batch := cur.coll, bson.A{}
	for _, d := range c.docs[max(cur.next-c.gone, 0):] {
		if is, _ := matches(d, cur.filter); is { // the filter was tried when the cursor was opened
			batch = append(batch, d)
		}
	}
	cur.next = c.gone + len(c.docs)
	return batch
}

func (db *DB) getMore(c Command) (bson.D, error) {
	id, _ := c.Body[0].Value.(int64)
	cur := db.cursors[id]
	if cur == nil {
		return nil, failure{43, "cursor id not found"}
	}
	gone := db.colls[cur.ns] != cur.coll
	switch {
	case gone && c.Wait == Waits:
		return batched("nextBatch", id, cur.ns, bson.A{}), nil
	case gone && c.Wait == Over:
		delete(db.cursors, id)
		return batched("nextBatch", 0, cur.ns, bson.A{}), nil
	case gone:
		delete(db.cursors, id)
		return nil, failure{175, "collection dropped"} // QueryPlanKilled
	case cur.next < cur.coll.gone:
		delete(db.cursors, id)
		return nil, failure{136, "the position in the capped collection is lost"}
	}
	return batched("nextBatch", id, cur.ns, cur.read()), nil
}

// Nothing reports whether a getMore's reply has nothing to read.
func Nothing(reply bson.D) bool {
	batch, ok := get(reply, "cursor.nextBatch")
	list, _ := batch.(bson.A)
	return ok && len(list) == 0
}

func (db *DB) killCursors(c Command) (bson.D, error) {
	for _, id := range field[bson.A](c.Body, "cursors") {
		n, _ := id.(int64)
		delete(db.cursors, n)
	}
	return bson.D{}, nil
}

func (db *DB) create(c Command, now time.Time) (bson.D, error) {
	if db.colls[c.NS()] != nil {
		return nil, failure{48, "collection already exists"}
	}
	size, _ := number(mustGet(c.Body, "size"))
	ns := c.NS()
	db.colls[ns] = &coll{kind: kind(c.Body), capped: field[bool](c.Body, "capped"), size: int64(size)}
	db.alter(now, ns, func(db *DB) { delete(db.colls, ns) })
	return bson.D{}, nil
}

func kind(create bson.D) string {
	for option, kind := range map[string]string{"viewOn": "view", "timeseries": "timeseries"} {
		if _, is := get(create, option); is {
			return kind
		}
	}
	return ""
}

// writable refuses a write to a view or a time series: in the words of MongoDB 5.0, or of 8.0 for a
// findAndModify on a time series.
func (db *DB) writable(c Command) error {
	coll := db.colls[c.NS()]
	switch {
	case coll == nil || coll.kind == "" || !c.Writes() || c.Name == "create" || c.Name == "drop":
		return nil
	case coll.kind == "timeseries" && c.Name == "findAndModify" && c.Number > 0:
		return failure{7314600, "Retryable findAndModify on a timeseries is not supported"}
	}
	return failure{166, "Namespace " + c.NS() + " is a " + coll.kind + ", not a collection"}
}

func (db *DB) drop(c Command, now time.Time) (bson.D, error) {
	ns := c.NS()
	old := db.colls[ns]
	if old == nil {
		return bson.D{}, nil
	}
	delete(db.colls, ns)
	db.alter(now, ns, func(db *DB) {
		again := *old
		db.colls[ns] = &again
	})
	return bson.D{{Key: "ns", Value: ns}}, nil
}

func (db *DB) createIndexes(c Command, now time.Time) (bson.D, error) {
	ns := c.NS()
	at := db.colls[ns]
	if at == nil {
		at = &coll{}
		db.colls[ns] = at
	}
	before := int32(len(at.indexes) + 1)
	for _, x := range field[bson.A](c.Body, "indexes") {
		index := x.(bson.D)
		name := field[string](index, "name")
		if slices.ContainsFunc(at.indexes, func(o bson.D) bool { return field[string](o, "name") == name }) {
			continue
		}
		at.indexes = append(at.indexes, index)
		db.alter(now, ns, func(db *DB) {
			if c := db.colls[ns]; c != nil && len(c.indexes) > 0 {
				c.indexes = c.indexes[:len(c.indexes)-1]
			}
		})
	}
	return bson.D{
		{Key: "numIndexesBefore", Value: before},
		{Key: "numIndexesAfter", Value: int32(len(at.indexes) + 1)},
	}, nil
}

func (db *DB) listCollections(c Command) (bson.D, error) {
	filter := field[bson.D](c.Body, "filter")
	batch := bson.A{}
	for _, ns := range db.Collections() {
		name, in := strings.CutPrefix(ns, c.DB+".")
		if !in {
			continue
		}
		coll, opts, kind := db.colls[ns], bson.D{}, "collection"
		if coll.capped {
			opts = bson.D{{Key: "capped", Value: true}, {Key: "size", Value: coll.size}}
		}
		if coll.kind != "" {
			kind = coll.kind
		}
		d := bson.D{{Key: "name", Value: name}, {Key: "type", Value: kind}, {Key: "options", Value: opts}}
		is, err := matches(d, filter)
		if err != nil {
			return nil, err
		}
		if is {
			batch = append(batch, d)
		}
	}
	return batched("firstBatch", 0, c.DB+".$cmd.listCollections", batch), nil
}
