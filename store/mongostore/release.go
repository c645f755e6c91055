package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Renew gives holders a new end.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	ctx = command.Bare(ctx)
	names := make([]bson.D, len(batch))
	for i, r := range batch {
		names[i] = named(r.Key)
	}
	r := s.steps.Renewing(batch, names)
	for r.Next(ctx) {
		keys := make([]string, len(r.Which))
		for n, i := range r.Which {
			keys[n] = batch[i].Key
		}
		r.Read(s.read(ctx, r.From, keys))
	}
	for i, a := range r.Answers {
		if errors.Is(a.Err, store.ErrGone) {
			s.steps.Memory.Forget(batch[i].ID)
		}
	}
	return r.Answers
}

// Release releases a holder, with one command in most cases.
func (s *Store) Release(ctx context.Context, r store.ReleaseRequest) (store.ReleaseResult, error) {
	if err := knownMode(r.Mode); err != nil {
		return store.ReleaseResult{}, err
	}
	ctx, to := command.Bare(ctx), s.steps.ReleaseConcern(r.ID, r.Keep)
	image, err := s.release(ctx, r, to)
	switch {
	case err != nil:
		return store.ReleaseResult{}, server.Classified(err)
	case image.Found():
		return s.steps.Released(r.Ref, image), nil
	}
	if image, err = s.steps.Find(ctx, named(r.Key)); err == nil { // a leave may have been cut short after its first command
		s.tidy(ctx, to, r.Key, image)
	}
	return store.ReleaseResult{}, s.steps.NotReleased(r.ID, image, err)
}

func (s *Store) release(ctx context.Context, r store.ReleaseRequest, to *mongo.Collection) (lease.Image, error) {
	t, stays, err := s.steps.Stays(ctx, named(r.Key), r.ID, r.Keep)
	switch {
	case err != nil:
		return lease.Image{}, err
	case stays:
		return s.steps.Send(ctx, stay(to, r.Ref, t))
	case r.Mode != store.Exclusive:
		return s.takeOut(ctx, lease.Leave, to, r, held(r.Ref))
	}
	return s.takeOut(ctx, lease.Release, to, r, held(r.Ref))
}

// takeOut deletes the document of an exclusive holder, if nobody is in line; that is a guess,
// unless somebody is known to be. Any other holder leaves the document, which ends if nothing is left in it.
func (s *Store) takeOut(ctx context.Context, what lease.Step, to *mongo.Collection, r store.ReleaseRequest, filter bson.D) (lease.Image, error) {
	if r.Mode == store.Exclusive && !r.Line {
		if image, err := s.steps.Send(ctx, remove(what, to, filter)); err != nil || image.Found() {
			return image, err
		}
	}
	image, err := s.steps.Send(ctx, s.drop(what, to, r.Ref, filter, r.Used))
	if err == nil {
		s.tidy(ctx, to, r.Key, image)
	}
	return image, err
}

// tidy deletes a document in which an image shows neither a holder nor a line.
func (s *Store) tidy(ctx context.Context, to *mongo.Collection, key string, left lease.Image) {
	if left.Found() && left.Foreign == nil && len(left.Holders) == 0 && len(left.Line) == 0 {
		_, _ = s.steps.Send(ctx, last(to, key))
	}
}

// Leave takes a place out of the line, and removes a document that has nothing else. It answers
// with the key as it is then.
func (s *Store) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	ctx = command.Bare(ctx)
	if _, err := s.base.Read(ctx); err != nil {
		return store.Status{Key: key}, server.NotApplied(err)
	}
	var image lease.Image
	var err error
	if p != "" { // no path of a field has an empty part
		image, err = s.steps.StepOut(ctx, ours(key), p)
	}
	if err != nil {
		return store.Status{Key: key}, server.Classified(err)
	}
	if image.Found() {
		s.tidy(ctx, s.base.Soft, key, image)
	} else if image, err = s.steps.Find(ctx, named(key)); err != nil {
		return store.Status{Key: key}, server.NotApplied(err)
	}
	return s.steps.Status(key, image.Document), image.Foreign
}

// Break marks a holder, which learns of it at its next renewal, and with now removes the
// holder. Both outlast a failover: an operator must not find a break undone.
func (s *Store) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if err := knownMode(r.Mode); err != nil {
		return err
	}
	ctx = command.Bare(ctx)
	var image lease.Image
	var err error
	if now {
		image, err = s.takeOut(ctx, lease.Break, s.base.Durable, store.ReleaseRequest{Ref: r}, ours(r.Key, holds(r.ID), inMode(r.Mode)))
	} else {
		image, err = s.steps.Send(ctx, s.mark(r, reason))
	}
	switch {
	case err != nil:
		return server.Classified(err)
	case !image.Found():
		return lease.GoneIfBroken(s.steps.Explain(ctx, named(r.Key), r.ID))
	}
	return nil
}
