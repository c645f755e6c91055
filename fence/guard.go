package fence

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

// guarded sends the write with the guard in its filter. If nothing matched, it finds
// out why.
func (w *write) guarded(ctx context.Context, filter any, send func(filter any) (*mongo.UpdateResult, error)) (*mongo.UpdateResult, error) {
	filter, err := document(filter)
	if err != nil {
		return nil, fmt.Errorf("fence: the filter: %w", err)
	}
	if w.upsert {
		return w.upserted(ctx, filter, send)
	}
	result, err := w.taken(ctx, w.guard(filter), send)
	switch {
	case err != nil:
		return result, err
	case !result.Acknowledged:
		return result, errUnacknowledged
	case result.MatchedCount > 0:
		return result, nil
	}
	newer, err := w.newer(ctx, filter)
	switch {
	case err != nil:
		return nil, err
	case newer > w.token:
		return nil, &Error{Token: w.token, Newer: newer}
	}
	return result, nil // there is no such document: one that is there by now was inserted later
}

// upserted is guarded for an upsert. If the guard hides the document, the server tries
// to insert one, and fails because the _id is taken.
func (w *write) upserted(ctx context.Context, filter any, send func(filter any) (*mongo.UpdateResult, error)) (*mongo.UpdateResult, error) {
	id, rest, err := splitID(filter)
	if err != nil {
		return nil, err
	}
	filter = w.guardUpsert(id, rest)
	// Another writer's upsert may come between the server's look and its insert. That says
	// nothing about tokens, so try again. If the filter's other conditions do not hold, the
	// reply is the same each time, and the number of tries ends that.
	const tries = 3
	for try := 1; ; try++ {
		result, err := w.taken(ctx, filter, send)
		switch {
		case err == nil && !result.Acknowledged:
			return result, errUnacknowledged
		case !mongo.IsDuplicateKeyError(err):
			return result, err
		}
		known, refusal := w.fencedOff(ctx, id)
		switch {
		case refusal != nil:
			return nil, refusal
		case !known || try == tries || ctx.Err() != nil:
			return result, err
		}
	}
}

// taken sends a write. In a transaction, one that changes nothing takes nothing: a newer token could write the document
// before the commit. So its token is then changed, and put back.
func (w *write) taken(ctx context.Context, filter any, send func(filter any) (*mongo.UpdateResult, error)) (*mongo.UpdateResult, error) {
	result, err := send(filter)
	session := mongo.SessionFromContext(ctx)
	if err != nil || session == nil || !session.TransactionRunning() || result.MatchedCount == 0 || result.ModifiedCount > 0 {
		return result, err
	}
	add := func(n int32) bson.D { return bson.D{{Key: "$inc", Value: bson.D{{Key: w.field, Value: n}}}} }
	opts := options.FindOneAndUpdate().SetProjection(bson.D{{Key: "_id", Value: 1}})
	if w.let != nil {
		opts.SetLet(w.let)
	}
	if w.collation != nil {
		opts.SetCollation(w.collation)
	}
	if w.sort != nil {
		opts.SetSort(w.sort)
	}
	written, err := w.coll.FindOneAndUpdate(ctx, filter, add(-1), opts).Raw()
	if err != nil {
		return nil, err
	}
	if _, err := w.coll.UpdateByID(ctx, written.Lookup("_id"), add(1)); err != nil {
		return nil, err
	}
	return result, nil
}

// guard lets filter match only what no newer token has written. Both stand in an $and,
// so that their conditions cannot clash.
func (w *write) guard(filter any) bson.D {
	return bson.D{{Key: "$and", Value: bson.A{filter, w.notNewer()}}}
}

// guardUpsert is guard with the caller's conditions at the top level, where every
// server finds the values for the new document.
func (w *write) guardUpsert(id, rest bson.D) bson.D {
	filter, both := slices.Clip(id), bson.A{w.notNewer()}
	for _, e := range rest {
		if e.Key == "$and" {
			both = append(both, bson.D{e})
		} else {
			filter = append(filter, e)
		}
	}
	return append(filter, bson.E{Key: "$and", Value: both})
}

// notNewer is the guard. An array in the field is no token: without the last condition it would
// match as soon as one of its members does.
func (w *write) notNewer() bson.D {
	return bson.D{
		{Key: "$or", Value: bson.A{
			bson.D{{Key: w.field, Value: nil}}, // or missing
			bson.D{{Key: w.field, Value: bson.D{{Key: "$lte", Value: w.token}}}},
		}},
		{Key: w.field + ".0", Value: bson.D{{Key: "$exists", Value: false}}},
	}
}

// fencedOff reads the document that filter names by its _id. refusal is set if a newer token
// has written it, or if its field holds something other than a token. known is false if it
// could not be read: a duplicate key ends a transaction, for example.
func (w *write) fencedOff(ctx context.Context, filter any) (known bool, refusal error) {
	if filter == nil {
		return false, nil
	}
	newer, err := w.newer(ctx, filter)
	switch {
	case errors.Is(err, errNoToken):
		return true, err
	case err != nil:
		return false, nil
	case newer <= w.token:
		return true, nil
	}
	return true, &Error{Token: w.token, Newer: newer}
}

// newer returns the token on a document that filter matches, or 0. It reads what the primary
// has now, even if that may be rolled back later, because the write was judged by it.
func (w *write) newer(ctx context.Context, filter any) (int64, error) {
	coll := w.coll.Clone(options.Collection().SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Local()))
	opts := options.Find().SetLimit(-1).SetProjection(bson.D{{Key: w.field, Value: 1}}) // -1: one, and no cursor; FindOne has no Let
	if w.let != nil {
		opts.SetLet(w.let)
	}
	if w.collation != nil {
		opts.SetCollation(w.collation)
	}
	cursor, err := coll.Find(ctx, filter, opts)
	if err != nil {
		return 0, err
	}
	defer cursor.Close(ctx)
	if !cursor.Next(ctx) {
		return 0, cursor.Err()
	}
	field := cursor.Current.Lookup(w.field)
	switch field.Type {
	case 0, bson.TypeNull:
		return 0, nil
	case bson.TypeInt32, bson.TypeInt64:
		return field.AsInt64(), nil
	case bson.TypeDouble: // a number written in a shell
		switch f := math.Ceil(field.Double()); {
		case f >= math.MaxInt64:
			return math.MaxInt64, nil
		case f > 0:
			return int64(f), nil
		}
	}
	return 0, fmt.Errorf("fence: the document's field %s holds %w: %s", w.field, errNoToken, field)
}

var errNoToken = errors.New("something that is not a token")

var errNoID = errors.New("fence: the filter of an upsert must name _id by value: another filter would create a second document beside one that is fenced off")

// splitID returns the part of filter that names one _id, and the rest.
func splitID(filter any) (id, rest bson.D, err error) {
	if encodedByDriver(filter) {
		return nil, nil, fmt.Errorf("fence: the filter of an upsert must be a bson.D, a map or a bson.Raw, not a %T", filter)
	}
	elements, err := elementsOf(filter)
	if err != nil {
		return nil, nil, fmt.Errorf("fence: the filter: %w", err)
	}
	for _, e := range elements {
		if e.Key == "_id" && len(id) == 0 {
			id = bson.D{e}
		} else {
			rest = append(rest, e)
		}
	}
	if len(id) == 0 || !isValue(id[0].Value) {
		return nil, nil, errNoID
	}
	return id, rest, nil
}

// isValue reports whether v stands for itself in a filter. A value that only the client's
// registry can encode is assumed to.
func isValue(v any) bool {
	kind, raw, err := bson.MarshalValue(v)
	if err != nil || kind != bson.TypeEmbeddedDocument {
		return err != nil || kind != bson.TypeRegex
	}
	first, err := bson.Raw(raw).IndexErr(0)
	return err != nil || !strings.HasPrefix(first.Key(), "$") || first.Key() == "$eq"
}

// duplicateID returns a filter for the document that has the _id already. It takes the _id from
// the server's error, or otherwise from the caller's document. It returns nil if the duplicate
// key was of another field.
func duplicateID(err error, doc any) any {
	var failed mongo.WriteException
	if errors.As(err, &failed) && len(failed.WriteErrors) == 1 {
		told := failed.WriteErrors[0].Raw
		if key, ok := told.Lookup("keyValue").DocumentOK(); ok {
			elements, err := key.Elements()
			if err != nil || len(elements) != 1 || elements[0].Key() != "_id" {
				return nil
			}
			if told.Lookup("collation").IsZero() { // otherwise it has a key of the collation
				return key
			}
		}
	}
	elements, _ := elementsOf(doc)
	for _, e := range elements {
		if e.Key == "_id" {
			return bson.D{e}
		}
	}
	return nil
}
