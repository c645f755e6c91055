package docdb

import (
	"go.mongodb.org/mongo-driver/v2/bson"
)

// aggregate counts documents, as the driver's CountDocuments asks for it. It does nothing
// else.
func (db *DB) aggregate(c Command) (bson.D, error) {
	filter := bson.D{}
	skip, most := 0.0, 0.0
	grouped := false
	for _, s := range field[bson.A](c.Body, "pipeline") {
		stage, _ := s.(bson.D)
		if len(stage) != 1 || grouped {
			return nil, badValue("an aggregation that does more than count")
		}
		switch value := stage[0].Value; stage[0].Key {
		case "$match":
			filter, _ = value.(bson.D)
		case "$skip":
			skip, _ = number(value)
		case "$limit":
			most, _ = number(value)
		case "$group":
			sum, _ := number(mustGet(stage, "$group.n.$sum"))
			group, _ := value.(bson.D)
			if grouped = sum == 1 && len(group) == 2; !grouped {
				return nil, badValue("an aggregation that does more than count")
			}
		default:
			return nil, badValue("an aggregation that does more than count: %s", stage[0].Key)
		}
	}
	if !grouped {
		return nil, badValue("an aggregation that does not count")
	}
	found, err := db.all(c.NS(), filter)
	if err != nil {
		return nil, err
	}
	n := max(float64(len(found))-skip, 0)
	if most > 0 {
		n = min(n, most)
	}
	batch := bson.A{}
	if n > 0 {
		batch = append(batch, bson.D{{Key: "_id", Value: int32(1)}, {Key: "n", Value: int32(n)}})
	}
	return batched("firstBatch", 0, c.NS(), batch), nil
}

func (db *DB) listIndexes(c Command) (bson.D, error) {
	coll := db.colls[c.NS()]
	if coll == nil {
		return nil, failure{26, "ns does not exist: " + c.NS()}
	}
	batch := bson.A{bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}}, {Key: "name", Value: "_id_"}}}
	for _, index := range coll.indexes {
		batch = append(batch, index)
	}
	return batched("firstBatch", 0, c.NS(), batch), nil
}
