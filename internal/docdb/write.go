package docdb

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func field[T any](d bson.D, path string) T {
	v, _ := get(d, path)
	t, _ := v.(T)
	return t
}

// first returns the first document that a filter matches.
func (db *DB) first(ns string, filter bson.D) (bson.D, error) {
	c := db.colls[ns]
	if c == nil {
		_, err := matches(nil, filter)
		return nil, err
	}
	docs := c.docs
	if id := mustGet(filter, "_id"); len(docs) > many {
		if text, ok := id.(string); ok {
			at := c.find(text)
			docs = docs[max(at, 0) : at+1]
		}
	}
	for _, d := range docs {
		is, err := matches(d, filter)
		if is || err != nil {
			return d, err
		}
	}
	return nil, nil
}

func duplicate(ns string, id any) failure {
	return failure{11000, fmt.Sprintf("E11000 duplicate key error collection: %s index: _id_ dup key: { _id: %v }", ns, id)}
}

func duplicateDetails(id any) bson.D {
	return bson.D{
		{Key: "keyPattern", Value: bson.D{{Key: "_id", Value: int32(1)}}},
		{Key: "keyValue", Value: bson.D{{Key: "_id", Value: id}}},
	}
}

// add inserts a document, unless there is one with its _id.
func (db *DB) add(e Entry, now time.Time) error {
	id, ok := get(e.After, "_id")
	if !ok {
		return badValue("a document without _id")
	}
	if c := db.colls[e.NS]; c != nil && c.find(id) >= 0 {
		return duplicate(e.NS, id)
	}
	db.write(now, e)
	return nil
}

// An image is what a findAndModify answered. It answers a retry as well.
type image struct {
	value    bson.D
	existing bool
	upserted any
	removed  bool
}

func (i image) reply() bson.D {
	last := bson.D{{Key: "n", Value: int32(0)}}
	switch {
	case i.removed:
		last = bson.D{{Key: "n", Value: int32(1)}}
	case i.existing:
		last = bson.D{{Key: "n", Value: int32(1)}, {Key: "updatedExisting", Value: true}}
	case i.upserted != nil:
		last = bson.D{{Key: "n", Value: int32(1)}, {Key: "updatedExisting", Value: false}, {Key: "upserted", Value: i.upserted}}
	default:
		last = append(last, bson.E{Key: "updatedExisting", Value: false})
	}
	var value any
	if i.value != nil {
		value = i.value
	}
	return bson.D{{Key: "lastErrorObject", Value: last}, {Key: "value", Value: value}}
}

func (db *DB) findAndModify(c Command, now time.Time) (bson.D, func(time.Time) (bson.D, error), error) {
	if e, ok := db.done(c, 0); ok {
		return e.image.(image).reply(), nil, nil
	}
	query := field[bson.D](c.Body, "query")
	if err := conflicts(field[bson.D](c.Body, "update")); err != nil {
		return nil, nil, err
	}
	old, err := db.first(c.NS(), query)
	if err != nil {
		return nil, nil, err
	}
	if field[bool](c.Body, "remove") {
		if old == nil {
			return bson.D{{Key: "lastErrorObject", Value: bson.D{{Key: "n", Value: int32(0)}}}, {Key: "value", Value: nil}}, nil, nil
		}
		i := image{value: old, removed: true}
		db.write(now, c.entry(0, old, nil, i))
		return i.reply(), nil, nil
	}
	update, ok := mustGet(c.Body, "update").(bson.D)
	if !ok {
		return nil, nil, failure{9, "an update must be a document"}
	}
	if old != nil {
		next, err := updated(old, update, db.stamps(now), false)
		if err != nil {
			return nil, nil, err
		}
		i := image{value: old, existing: true}
		if field[bool](c.Body, "new") {
			i.value = next
		}
		if compare(old, next) != 0 {
			db.write(now, c.entry(0, old, next, i))
		}
		return i.reply(), nil, nil
	}
	if !field[bool](c.Body, "upsert") {
		return image{}.reply(), nil, nil
	}
	next, err := db.built(query, update, now)
	if err != nil {
		return nil, nil, err
	}
	return nil, func(now time.Time) (bson.D, error) { return db.upserted(c, next, now) }, nil
}

// built returns the document that an upsert inserts, with the times drawn here.
func (db *DB) built(query, update bson.D, now time.Time) (bson.D, error) {
	d, err := equalities(query, bson.D{})
	if err != nil {
		return nil, err
	}
	if d, err = updated(d, update, db.stamps(now), true); err != nil {
		return nil, err
	}
	if _, has := get(d, "_id"); !has {
		d = append(bson.D{{Key: "_id", Value: bson.NewObjectID()}}, d...)
	}
	return d, nil
}

func (db *DB) upserted(c Command, next bson.D, now time.Time) (bson.D, error) {
	i := image{upserted: mustGet(next, "_id")}
	if field[bool](c.Body, "new") {
		i.value = next
	}
	if err := db.add(c.entry(0, nil, next, i), now); err != nil {
		return duplicateDetails(i.upserted), err
	}
	return i.reply(), nil
}

func mustGet(d bson.D, path string) any {
	v, _ := get(d, path)
	return v
}

func (db *DB) insert(c Command, now time.Time) (bson.D, error) {
	var n int32
	var failed bson.A
	for i, doc := range field[bson.A](c.Body, "documents") {
		stmt := c.statement(i)
		if _, ok := db.done(c, stmt); ok {
			n++
			continue
		}
		d := doc.(bson.D)
		if err := db.add(c.entry(stmt, nil, d, nil), now); err != nil {
			failed = append(failed, writeError(c.statement(i), err, duplicateDetails(mustGet(d, "_id"))))
			if field[bool](c.Body, "ordered") {
				break
			}
			continue
		}
		n++
	}
	return counted(n, failed), nil
}

func writeError(i int32, err error, more bson.D) bson.D {
	f, ok := err.(failure) //nolint:errorlint // never wrapped
	if !ok {
		f = failure{2, err.Error()}
	}
	d := bson.D{{Key: "index", Value: i}, {Key: "code", Value: f.code}, {Key: "errmsg", Value: f.message}}
	if f.code == 11000 {
		d = append(d, more...)
	}
	return d
}

func counted(n int32, failed bson.A, more ...bson.E) bson.D {
	reply := append(bson.D{{Key: "n", Value: n}}, more...)
	if len(failed) > 0 {
		reply = append(reply, bson.E{Key: "writeErrors", Value: failed})
	}
	return reply
}

// A change is what one statement of an update did. It answers a retry as well.
type change struct {
	modified int32
	upserted any
}

func (db *DB) update(c Command, now time.Time) (bson.D, error) {
	var n, modified int32
	var failed, upserts bson.A
	for i, u := range field[bson.A](c.Body, "updates") {
		statement := u.(bson.D)
		did, matched, err := db.updateOne(c, c.statement(i), statement, now)
		if err != nil {
			failed = append(failed, writeError(c.statement(i), err, duplicateDetails(mustGet(statement, "q._id"))))
			if field[bool](c.Body, "ordered") {
				break
			}
			continue
		}
		n += matched
		modified += did.modified
		if did.upserted != nil {
			upserts = append(upserts, bson.D{{Key: "index", Value: c.statement(i)}, {Key: "_id", Value: did.upserted}})
		}
	}
	more := bson.D{{Key: "nModified", Value: modified}}
	if len(upserts) > 0 {
		more = append(more, bson.E{Key: "upserted", Value: upserts})
	}
	return counted(n, failed, more...), nil
}

func (db *DB) updateOne(c Command, stmt int32, u bson.D, now time.Time) (did change, matched int32, err error) {
	if e, ok := db.done(c, stmt); ok {
		return e.image.(change), 1, nil
	}
	query := field[bson.D](u, "q")
	update, ok := mustGet(u, "u").(bson.D)
	if !ok {
		return did, 0, failure{9, "an update must be a document"}
	}
	if err := conflicts(update); err != nil {
		return did, 0, err
	}
	old, err := db.first(c.NS(), query)
	if err != nil {
		return did, 0, err
	}
	if old == nil && !field[bool](u, "upsert") {
		return did, 0, nil
	}
	if old == nil {
		next, err := db.built(query, update, now)
		if err != nil {
			return did, 0, err
		}
		did.upserted = mustGet(next, "_id")
		return did, 1, db.add(c.entry(stmt, nil, next, did), now)
	}
	next, err := updated(old, update, db.stamps(now), false)
	if err != nil {
		return did, 0, err
	}
	if compare(old, next) != 0 {
		did.modified = 1
		db.write(now, c.entry(stmt, old, next, did))
	}
	return did, 1, nil
}

func (db *DB) remove(c Command, now time.Time) (bson.D, error) {
	var n int32
	for i, q := range field[bson.A](c.Body, "deletes") {
		stmt := c.statement(i)
		if _, ok := db.done(c, stmt); ok {
			n++
			continue
		}
		old, err := db.first(c.NS(), field[bson.D](q.(bson.D), "q"))
		if err != nil {
			return nil, err
		}
		if old != nil {
			db.write(now, c.entry(stmt, old, nil, nil))
			n++
		}
	}
	return counted(n, nil), nil
}
