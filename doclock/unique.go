package doclock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

// uniqueFor is how long a unique index is trusted to exist after it was seen.
const uniqueFor = time.Minute

// unique remembers for a while which fields name one document.
type unique struct {
	mu     sync.Mutex           // protects proved
	proved map[string]time.Time // until when, by the fields' names
}

func names(fields bson.D) string {
	var all []string
	for _, f := range fields {
		all = append(all, f.Key)
	}
	return strings.Join(all, ", ")
}

// proves reports whether some unique index has only fields among these. Without the right to
// list indexes it is false.
func (u *unique) proves(ctx context.Context, base *server.Collection, fields bson.D) (bool, error) {
	key := names(fields)
	u.mu.Lock()
	until, seen := u.proved[key]
	u.mu.Unlock()
	if seen && time.Now().Before(until) {
		return true, nil
	}
	coll := base.W1
	cursor, err := coll.Indexes().List(ctx)
	if c := server.ClassOf(err); err != nil && (c == server.Refused || c == server.NoCommand) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("doclock: the indexes of %s: %w", coll.Name(), err)
	}
	defer cursor.Close(ctx)
	for cursor.Next(ctx) {
		if !covers(cursor.Current, fields) {
			continue
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.proved == nil {
			u.proved = map[string]time.Time{}
		}
		u.proved[key] = time.Now().Add(uniqueFor)
		return true, nil
	}
	return false, cursor.Err()
}

// covers reports whether an index allows at most one document with given values of these
// fields.
func covers(index bson.Raw, fields bson.D) bool {
	is, _ := index.Lookup("unique").BooleanOK()
	keys, ok := index.Lookup("key").DocumentOK()
	if !is || !ok || !index.Lookup("partialFilterExpression").IsZero() {
		return false
	}
	elements, err := keys.Elements()
	for _, e := range elements {
		if !e.Value().IsNumber() || !slices.ContainsFunc(fields, func(f bson.E) bool { return f.Key == e.Key() }) {
			return false
		}
	}
	return err == nil && len(elements) > 0
}

// only returns the key of the one document that has these values now, and the fields with its
// _id: so another document that gets the values later is not locked instead.
func only(ctx context.Context, base *server.Collection, fields bson.D) (string, bson.D, error) {
	cursor, err := base.W1.Find(ctx, fields, options.Find().SetLimit(2).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return "", nil, fmt.Errorf("doclock: looking for the document: %w", err)
	}
	defer cursor.Close(ctx)
	var found []bson.RawValue
	for cursor.Next(ctx) {
		found = append(found, slices.Clone(cursor.Current).Lookup("_id"))
	}
	switch err := cursor.Err(); {
	case err != nil:
		return "", nil, fmt.Errorf("doclock: looking for the document: %w", err)
	case len(found) == 0:
		text, _ := bson.MarshalExtJSON(fields, false, false)
		return "", nil, &notFoundError{string(text)}
	case len(found) > 1:
		return "", nil, fmt.Errorf("%w: several documents have these %s, among them those with _id %s and %s",
			ErrAmbiguous, names(fields), clip(found[0]), clip(found[1]))
	}
	key, err := keyOfID(found[0])
	if fields[0].Key != "_id" {
		fields = append(ID(found[0]), fields...)
	}
	return key, fields, err
}
