package lease

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Looked answers a look at some keys by the documents that it found, and remembers since when their
// holders are silent.
func (s *Steps) Looked(keys []string, images []Image) ([]store.Status, error) {
	at := s.Coll.Clock.Now()
	seen := make([]store.Status, len(keys))
	var strangers []error
	for i, key := range keys {
		d := images[i].Document
		if d.Foreign != nil {
			strangers = append(strangers, fmt.Errorf("%q: %w", key, d.Foreign))
			d = Document{}
		}
		s.Coll.Saw(key, d.States(), at)
		seen[i] = s.Status(key, d)
	}
	return seen, errors.Join(strangers...)
}

// List yields the locks that a filter finds, in the order of the cursor. It leaves out documents of
// strangers.
func (s *Steps) List(ctx context.Context, filter bson.D, opts ...options.Lister[options.FindOptions]) iter.Seq2[Image, error] {
	return func(yield func(Image, error) bool) {
		ctx := command.Bare(ctx)
		err := s.Coll.ReadFresh(ctx)
		s.Coll.Refresh(ctx) // a list is for people: it should be sure which holders have run out
		if err == nil {
			cursor, failed := s.Coll.Soft.Find(ctx, filter, append(opts, options.Find().SetProjection(s.Only))...)
			if err = failed; err == nil {
				defer cursor.Close(ctx)
				for cursor.Next(ctx) {
					image := Image{command.Reply{Image: cursor.Current}, s.Read(cursor.Current)}
					if image.Foreign == nil && !yield(image, nil) {
						return
					}
				}
				err = cursor.Err()
			}
		}
		if err != nil {
			yield(Image{}, server.NotApplied(err))
		}
	}
}

// Listed returns what a list shows of a key. A key is remembered if a holder ran out and is not known to
// be over: otherwise each list would begin again to watch it.
func (s *Steps) Listed(key string, d Document) store.Status {
	status := s.Status(key, d)
	if slices.ContainsFunc(status.Holders, status.Confirming) {
		s.Coll.Saw(key, d.States(), s.Coll.Clock.Now())
	}
	return status
}
