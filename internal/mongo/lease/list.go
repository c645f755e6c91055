package lease

import (
	"context"
	"iter"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// List yields the locks that find finds and whose keys begin with prefix, in the order of the
// cursor. It leaves out documents without a key and documents of strangers. A key is remembered if a
// holder ran out and is not known to be over: otherwise each list would begin anew to watch it.
func (s *Steps[R, X]) List(ctx context.Context, prefix string, find func(context.Context) (*mongo.Cursor, error), read func(bson.Raw) (key string, seen R)) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		ctx := command.Bare(ctx)
		err := s.Base.ReadFresh(ctx)
		s.Base.Refresh(ctx) // a list is for people: it should be sure which holders have run out
		var cursor *mongo.Cursor
		if err == nil {
			cursor, err = find(ctx)
		}
		if err != nil {
			yield(store.Status{}, server.NotApplied(err))
			return
		}
		defer cursor.Close(ctx)
		for cursor.Next(ctx) {
			key, seen := read(cursor.Current)
			if key == "" || seen.Foreign() != nil || !strings.HasPrefix(key, prefix) {
				continue
			}
			status := s.Status(key, seen)
			if slices.ContainsFunc(status.Holders, status.Confirming) {
				s.Base.Saw(key, seen.Marks(), s.Base.Clock.Now())
			}
			if !yield(status, nil) {
				return
			}
		}
		if err := cursor.Err(); err != nil {
			yield(store.Status{}, server.NotApplied(err))
		}
	}
}
