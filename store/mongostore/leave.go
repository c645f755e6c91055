package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Leave takes a place out of the line, and removes a document that has nothing else. It answers
// with the key as it is then.
func (s *Store) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	ctx = command.Bare(ctx)
	if _, err := s.base.Read(ctx); err != nil {
		return store.Status{Key: key}, server.NotApplied(err)
	}
	var image reply
	var err error
	if p != "" { // no path of a field has an empty part
		image, err = s.steps.StepOut(ctx, ours(key), p)
	}
	if err != nil {
		return store.Status{Key: key}, server.Classified(err)
	}
	if image.Found() {
		s.last(ctx, key, image.Record, s.base.Soft)
	} else if image, err = s.find(ctx, key); err != nil {
		return store.Status{Key: key}, server.NotApplied(err)
	}
	return s.steps.Status(key, image.Record), image.Record.Foreign()
}

// dropping returns the update that takes a holder out of a document that stays. The revision
// moves with an exclusive holder: a late hand-over, which names nothing else, would put it back.
// Sharers keep the revision, because a holder that left invalidates no join.
func (s *Store) dropping(r store.Ref, used time.Duration) bson.D {
	u := lock.Freed(used).Unset(fieldHolders + "." + r.ID)
	if r.Mode == store.Exclusive {
		u = append(u, moveRev)
		if _, known := s.base.Known(); known { // otherwise the end stays as it is
			_, until := s.base.Now().Expiry(store.PlaceFor) // by which the TTL index goes, for the sake of the line
			u = u.Set(fieldExpireAt, command.Date(until))
		}
	}
	return bson.D(u)
}

// drop removes a holder that a filter finds, and ends the document if nothing is left in it.
func (s *Store) drop(ctx context.Context, what lease.Step, r store.Ref, filter bson.D, used time.Duration, coll *mongo.Collection) (reply, error) {
	image, err := s.steps.Send(ctx, what, coll, filter, s.dropping(r, used), command.After)
	if err == nil && image.Found() {
		s.last(ctx, r.Key, image.Record, coll)
	}
	return image, err
}

// last deletes a document that nobody holds and nobody waits for. If a place is in its line, the
// document stays for that.
//
// The command does no harm if it comes late or twice. If it fails, the holder has left all the
// same: an empty document blocks no claim, and the next one takes it over.
func (s *Store) last(ctx context.Context, key string, seen record, coll *mongo.Collection) {
	if seen.Foreign() == nil && len(seen.Holders) == 0 && len(seen.Line) == 0 {
		_, _ = s.remove(ctx, lease.Last, coll, ours(key, unheld, unawaited))
	}
}

// finish ends the document after a leave that was cut short after its first command.
func (s *Store) finish(ctx context.Context, r store.Ref, coll *mongo.Collection) (reply, error) {
	image, err := s.find(ctx, r.Key)
	if err == nil && image.Found() {
		s.last(ctx, r.Key, image.Record, coll)
	}
	return image, err
}
