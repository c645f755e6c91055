package mongobase

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var unordered = options.BulkWrite().SetOrdered(false)

// refusals returns the writes of a bulk that were refused, if the error says
// nothing else.
func refusals(err error) (failed map[int]error, _ error) {
	var e mongo.BulkWriteException
	if !errors.As(err, &e) || e.WriteConcernError != nil {
		return nil, err
	}
	failed = make(map[int]error, len(e.WriteErrors))
	for _, w := range e.WriteErrors {
		failed[w.Index] = fmt.Errorf("refused: %w", mongo.WriteException{WriteErrors: mongo.WriteErrors{w.WriteError}})
	}
	return failed, nil
}

// Bulk sends updates on Durable, unordered: one that fails does not stop the others. The number of
// those that found a document is a total over all of them. Without a journal it is as with Modify.
func (b *Base) Bulk(ctx context.Context, models []mongo.WriteModel) (found int, failed map[int]error, err error) {
	coll := b.Durable
	if b.noJ.Load() {
		coll = b.Voted
	}
	result, err := coll.BulkWrite(ctx, models, unordered)
	if coll == b.Durable && b.lacksJournal(err) {
		return b.Bulk(ctx, models)
	}
	if result != nil {
		failed, err = refusals(err)
	}
	if err != nil {
		b.epochs.suspect(false)
		return 0, nil, err
	}
	return int(result.MatchedCount), failed, nil
}
