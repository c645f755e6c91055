package fence

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// UpdateOne updates one document that filter matches, unless a newer token has
// written to it. Then the error is an [*Error], which matches [ErrFenced]. A missing
// document is no error: MatchedCount is 0, as in the driver.
//
// If filter matches several documents, one that is not fenced off is updated;
// ErrFenced means that all of them are.
//
// update is a document of operators or a pipeline, of the types that the driver
// takes. It must not touch the field of the token.
func UpdateOne(ctx context.Context, coll *mongo.Collection, token int64, filter, update any, opts ...UpdateOption) (*mongo.UpdateResult, error) {
	w, err := newWrite(coll, token, opts, UpdateOption.applyUpdate)
	if err != nil {
		return nil, err
	}
	update, err = w.stampUpdate(update)
	if err != nil {
		return nil, err
	}
	return w.guarded(ctx, filter, func(filter any) (*mongo.UpdateResult, error) {
		return coll.UpdateOne(ctx, filter, update, w.update...)
	})
}

// UpdateByID is UpdateOne for the document with that _id.
func UpdateByID(ctx context.Context, coll *mongo.Collection, token int64, id, update any, opts ...UpdateOption) (*mongo.UpdateResult, error) {
	if id == nil {
		return nil, fmt.Errorf("fence: the id: %w", mongo.ErrNilValue)
	}
	return UpdateOne(ctx, coll, token, bson.D{{Key: "_id", Value: id}}, update, opts...)
}

// ReplaceOne replaces one document that filter matches, unless a newer token has
// written to it. It answers as UpdateOne does. The replacement must not have the field
// of the token, which ReplaceOne adds.
func ReplaceOne(ctx context.Context, coll *mongo.Collection, token int64, filter, replacement any, opts ...ReplaceOption) (*mongo.UpdateResult, error) {
	w, err := newWrite(coll, token, opts, ReplaceOption.applyReplace)
	if err != nil {
		return nil, err
	}
	replacement, err = w.stampDocument(replacement)
	if err != nil {
		return nil, err
	}
	return w.guarded(ctx, filter, func(filter any) (*mongo.UpdateResult, error) {
		return coll.ReplaceOne(ctx, filter, replacement, w.replace...)
	})
}

// InsertOne inserts a document that carries the token. If a document with the same _id exists
// and a newer token has written it, the error is an [*Error]; otherwise it is the driver's
// duplicate key error. The document must not have the field of the token, which InsertOne adds.
//
// A deleted document leaves no token behind: an outdated holder can insert what a
// newer one deleted. Where that matters, mark documents as deleted instead.
func InsertOne(ctx context.Context, coll *mongo.Collection, token int64, document any, opts ...InsertOption) (*mongo.InsertOneResult, error) {
	w, err := newWrite(coll, token, opts, InsertOption.applyInsert)
	if err != nil {
		return nil, err
	}
	stamped, err := w.stampDocument(document)
	if err != nil {
		return nil, err
	}
	result, err := coll.InsertOne(ctx, stamped, w.insert...)
	switch {
	case err == nil && !result.Acknowledged:
		return result, errUnacknowledged
	case !mongo.IsDuplicateKeyError(err):
		return result, err
	}
	if _, refusal := w.fencedOff(ctx, duplicateID(err, document)); refusal != nil {
		return nil, refusal
	}
	return result, err
}

var errUnacknowledged = errors.New("fence: the write was sent, but without acknowledgement it cannot be known whether it was refused")
