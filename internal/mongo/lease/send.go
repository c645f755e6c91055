package lease

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Where returns the filter of the document that r is about, under further conditions.
func (s *Steps[R, X]) Where(r store.Ref, more ...[]bson.E) (bson.D, error) {
	where, err := s.Shape.Name(r)
	if err != nil {
		return nil, err
	}
	for _, conditions := range more {
		where = append(where, conditions...)
	}
	return where, nil
}

// Alive is the condition that the holder is there and can be renewed, handed over and saved
// under; see Fields.Alive.
func (s *Steps[R, X]) Alive(id string, by server.Bearing) []bson.E {
	return append(s.Shape.Named(id), s.Shape.Fields(id).Alive(by)...)
}

// unlessTrusted returns by, or a bearing that judges no date if the holder's lease may be
// trusted: then it has not run out, and a renewal need not ask. SecantusDB answers a filter
// with an $or by reading the whole collection.
func (s *Steps[R, X]) unlessTrusted(id string, by server.Bearing) server.Bearing {
	if s.trusts(id) {
		by.Sure = false
	}
	return by
}

func (s *Steps[R, X]) trusts(id string) bool {
	l, ok := s.Memory.Of(id)
	return ok && s.Base.Clock.Now() < l.Until
}

// Send updates one document and returns its image. If the update stamps the document with the
// server's time, that counts as a sample.
func (s *Steps[R, X]) Send(ctx context.Context, what Step, coll *mongo.Collection, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (Image[R], error) {
	return s.SendReading(ctx, what, coll, filter, update, opts, s.Shape.Read)
}

// SendReading is Send for a caller that reads less of the image.
func (s *Steps[R, X]) SendReading(ctx context.Context, what Step, coll *mongo.Collection, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder, read func(bson.Raw) R) (Image[R], error) {
	all := []options.Lister[options.FindOneAndUpdateOptions]{opts}
	if s.Only != nil && !what.claims() {
		all = append(all, options.FindOneAndUpdate().SetProjection(s.Only))
	}
	r, err := s.Base.Modify(ctx, coll, filter, update, all...)
	image := imageOf(r, read)
	if at, _ := image.Record.Drawn(); opts != command.Before {
		s.Base.Timed(at, r.Sent)
	}
	return image, err
}

// Update sends an update of the document that r is about, if it meets the conditions.
func (s *Steps[R, X]) Update(ctx context.Context, what Step, coll *mongo.Collection, r store.Ref, conditions []bson.E, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (Image[R], error) {
	filter, err := s.Where(r, conditions)
	if err != nil {
		return Image[R]{}, err
	}
	return s.Send(ctx, what, coll, filter, update, opts)
}

func (s *Steps[R, X]) Remove(ctx context.Context, what Step, coll *mongo.Collection, filter bson.D, read func(bson.Raw) R) (Image[R], error) {
	var only []options.Lister[options.FindOneAndDeleteOptions]
	if s.Only != nil {
		only = append(only, options.FindOneAndDelete().SetProjection(s.Only))
	}
	r, err := s.Base.Remove(ctx, coll, filter, only...)
	return imageOf(r, read), err
}

func (s *Steps[R, X]) Model(what Step, filter, update bson.D) mongo.WriteModel {
	return &mongo.UpdateOneModel{Filter: command.ByID(filter), Update: update}
}

// Find reads the document that r is about, whichever holder it has.
func (s *Steps[R, X]) Find(ctx context.Context, r store.Ref) (Image[R], error) {
	name, err := s.Shape.Name(r)
	if err != nil {
		return Image[R]{}, err
	}
	return s.FindOne(ctx, name)
}

// FindOne reads a document that a filter matches.
func (s *Steps[R, X]) FindOne(ctx context.Context, filter bson.D) (Image[R], error) {
	var only []options.Lister[options.FindOneOptions]
	if s.Only != nil {
		only = append(only, options.FindOne().SetProjection(s.Only))
	}
	r, err := s.Base.Find(ctx, filter, only...)
	return imageOf(r, s.Shape.Read), err
}

// FindMany reads the documents of some refs, in their order, under the read concern of
// coll.
func (s *Steps[R, X]) FindMany(ctx context.Context, coll *mongo.Collection, refs []store.Ref) ([]Image[R], error) {
	if len(refs) == 1 && coll == s.Base.Soft {
		image, err := s.Find(ctx, refs[0])
		return []Image[R]{image}, err
	}
	return s.Shape.FindMany(ctx, coll, refs)
}

func imageOf[R Record](r command.Reply, read func(bson.Raw) R) Image[R] {
	if !r.Found() {
		return Image[R]{Reply: r}
	}
	return Image[R]{Reply: r, Record: read(r.Image)}
}
