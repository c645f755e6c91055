package docdb

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

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
	old, err := db.first(c.NS(), query, nil)
	if err != nil {
		return did, 0, err
	}
	if old != nil && field[bool](u, "multi") {
		return db.updateMany(c.NS(), query, update, now)
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
		e := c.entry(stmt, old, next, did)
		if err := db.unique(e); err != nil {
			return change{}, 0, err
		}
		db.write(now, e)
	}
	return did, 1, nil
}

// updateMany updates all documents that a filter matches. It is never sent again, and so
// answers no retry.
func (db *DB) updateMany(ns string, filter, update bson.D, now time.Time) (did change, matched int32, err error) {
	found, err := db.all(ns, filter)
	for _, old := range found {
		next, err := updated(old, update, db.stamps(now), false)
		if err == nil {
			err = db.unique(Entry{NS: ns, After: next})
		}
		if err != nil {
			return did, matched, err
		}
		matched++
		if compare(old, next) != 0 {
			did.modified++
			db.write(now, Entry{NS: ns, Before: old, After: next})
		}
	}
	return did, matched, err
}

func (db *DB) remove(c Command, now time.Time) (bson.D, error) {
	var n int32
	for i, q := range field[bson.A](c.Body, "deletes") {
		stmt := c.statement(i)
		if _, ok := db.done(c, stmt); ok {
			n++
			continue
		}
		filter := field[bson.D](q.(bson.D), "q")
		old, err := db.first(c.NS(), filter, nil)
		found := []bson.D{old}
		if most, _ := number(mustGet(q.(bson.D), "limit")); err == nil && most == 0 {
			found, err = db.all(c.NS(), filter)
		}
		if err != nil {
			return nil, err
		}
		for _, old := range found {
			if old != nil {
				db.write(now, c.entry(stmt, old, nil, nil))
				n++
			}
		}
	}
	return counted(n, nil), nil
}
