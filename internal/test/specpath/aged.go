package specpath

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Age moves every date of a document back by a Tick and a little more, as if that time had passed for those who
// judge by the server's clock. A document that is not there has none.
func Age(ctx context.Context, coll *mongo.Collection, filter bson.D) error {
	var doc bson.D
	err := coll.FindOne(ctx, filter).Decode(&doc)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil
	case err != nil:
		return err
	}
	_, err = coll.ReplaceOne(ctx, filter, aged(doc))
	return err
}

// serverSlack is how long a walk may take between two ticks, and longer than what a store adds to
// an end because it does not know the server's time exactly.
const serverSlack = 3 * time.Second

func aged(v any) any {
	switch v := v.(type) {
	case bson.DateTime:
		return bson.NewDateTimeFromTime(v.Time().Add(-Tick - serverSlack))
	case time.Time:
		return v.Add(-Tick - serverSlack)
	case bson.D:
		for i := range v {
			v[i].Value = aged(v[i].Value)
		}
	case bson.A:
		for i := range v {
			v[i] = aged(v[i])
		}
	}
	return v
}
