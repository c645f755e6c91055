package mongolease

import (
	"context"
	"iter"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// List yields the locks that find finds and whose keys begin with prefix, in the order of
// the cursor. A document without a key, or that is a stranger's, is left out.
func (s *Steps[R, X]) List(ctx context.Context, prefix string, find func(context.Context) (*mongobase.Cursor, error), read func(bson.Raw) (key string, seen R)) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		ctx := mongobase.Bare(ctx)
		_, err := s.Base.ReadFresh(ctx)
		s.Base.Refresh(ctx) // a list is for people: it is to be sure who has run out
		var cursor *mongobase.Cursor
		if err == nil {
			cursor, err = find(ctx)
		}
		if err != nil {
			yield(store.Status{}, mongoerr.NotApplied(err))
			return
		}
		defer cursor.Close(ctx)
		for cursor.Next(ctx) {
			key, seen := read(cursor.Current())
			if key == "" || seen.Foreign() != nil || !strings.HasPrefix(key, prefix) {
				continue
			}
			s.learn(ctx, seen)
			if !yield(s.Status(key, seen), nil) {
				return
			}
		}
		if err := cursor.Err(); err != nil {
			yield(store.Status{}, mongoerr.NotApplied(err))
		}
	}
}
