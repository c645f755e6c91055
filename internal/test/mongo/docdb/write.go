package docdb

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func field[T any](d bson.D, path string) T {
	v, _ := get(d, path)
	t, _ := v.(T)
	return t
}

// first returns the first document that a filter matches, in the order of a sort if there is
// one.
func (db *DB) first(ns string, filter, sort bson.D) (bson.D, error) {
	if len(sort) > 0 {
		found, err := db.all(ns, filter)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		return slices.MinFunc(found, func(a, b bson.D) int { return bySort(sort, a, b) }), nil
	}
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

// all returns the documents that a filter matches.
func (db *DB) all(ns string, filter bson.D) (found []bson.D, err error) {
	c := db.colls[ns]
	if c == nil {
		_, err := matches(nil, filter)
		return nil, err
	}
	for _, d := range c.docs {
		is, err := matches(d, filter)
		if err != nil {
			return nil, err
		}
		if is {
			found = append(found, d)
		}
	}
	return found, nil
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
	if err := db.unique(e); err != nil {
		return err
	}
	db.write(now, e)
	return nil
}

// unique refuses a write that gives a document the fields of another one that are to be
// unique.
func (db *DB) unique(e Entry) error {
	c := db.colls[e.NS]
	if c == nil {
		return nil
	}
	for _, index := range c.indexes {
		if !field[bool](index, "unique") {
			continue
		}
		keys := field[bson.D](index, "key")
		same := func(d bson.D) bool {
			return !slices.ContainsFunc(keys, func(k bson.E) bool { return compare(mustGet(d, k.Key), mustGet(e.After, k.Key)) != 0 })
		}
		for _, d := range c.docs {
			if compare(mustGet(d, "_id"), mustGet(e.After, "_id")) != 0 && same(d) {
				return failure{11000, fmt.Sprintf("E11000 duplicate key error collection: %s index: %s", e.NS, field[string](index, "name"))}
			}
		}
	}
	return nil
}

// An image is what a findAndModify answered. It answers a retry as well.
type image struct {
	value    bson.D
	existing bool
	upserted any
	removed  bool
}

func (i image) reply(fields bson.D) bson.D {
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
		value = projected(i.value, fields)
	}
	return bson.D{{Key: "lastErrorObject", Value: last}, {Key: "value", Value: value}}
}

func (db *DB) findAndModify(c Command, now time.Time) (bson.D, func(time.Time) (bson.D, error), error) {
	fields := field[bson.D](c.Body, "fields")
	if e, ok := db.done(c, 0); ok {
		return e.image.(image).reply(fields), nil, nil
	}
	query := field[bson.D](c.Body, "query")
	if err := projectable(fields); err != nil {
		return nil, nil, err
	}
	if err := conflicts(field[bson.D](c.Body, "update")); err != nil {
		return nil, nil, err
	}
	old, err := db.first(c.NS(), query, field[bson.D](c.Body, "sort"))
	if err != nil {
		return nil, nil, err
	}
	if field[bool](c.Body, "remove") {
		if old == nil {
			return bson.D{{Key: "lastErrorObject", Value: bson.D{{Key: "n", Value: int32(0)}}}, {Key: "value", Value: nil}}, nil, nil
		}
		i := image{value: old, removed: true}
		db.write(now, c.entry(0, old, nil, i))
		return i.reply(fields), nil, nil
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
		if e := c.entry(0, old, next, i); compare(old, next) != 0 {
			if err := db.unique(e); err != nil {
				return nil, nil, err
			}
			db.write(now, e)
		}
		return i.reply(fields), nil, nil
	}
	if !field[bool](c.Body, "upsert") {
		return image{}.reply(nil), nil, nil
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
	return i.reply(field[bson.D](c.Body, "fields")), nil
}

func mustGet(d bson.D, path string) any {
	v, _ := get(d, path)
	return v
}
