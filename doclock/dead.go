package doclock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// A Dead is a document that was claimed as often as MaxAttempts allows, but was not completed.
type Dead[T any] struct {
	ID       bson.RawValue
	Value    T
	Attempts int       // how often it was claimed
	At       time.Time // when it was set aside, by the server's clock
}

// errSetAside answers the claim of a document that was claimed too often.
var errSetAside = errors.New("doclock: claimed too often, set aside")

// setAside marks a document as dead, and releases it in the same step. No worker received it.
func (l *Locks[T]) setAside(lease *mongolock.Lease, attempts int) error {
	e := &ending{done: true, dead: true, uncounted: true}
	l.store.end(lease.ID(), e)
	err := lease.Release()
	if !e.landed.Load() {
		return fmt.Errorf("doclock: claim: %s was claimed %d times: setting it aside: %w", lease.Key(), attempts, err)
	}
	l.logger.Warn("doclock: a document was claimed too often and is set aside", "key", lease.Key(), "attempts", attempts, "collection", l.store.base.W1.Name())
	return errSetAside
}

// Dead yields the documents that MaxAttempts has set aside, of those that filter matches, as
// they are now. It reads without a lock, and is for people and their tools. A document that
// does not decode comes with an error that matches ErrDecode, and the next one follows; any
// other error ends it.
func (l *Locks[T]) Dead(ctx context.Context, filter any) iter.Seq2[Dead[T], error] {
	return func(yield func(Dead[T], error) bool) {
		f, err := marshal(filter)
		if err != nil {
			yield(Dead[T]{}, fmt.Errorf("doclock: dead: the filter: %w", err))
			return
		}
		s, ctx := l.store, server.Bare(ctx)
		cursor, err := s.base.W1.Find(ctx, s.deadOf(f))
		if err != nil {
			yield(Dead[T]{}, fmt.Errorf("doclock: dead: %w", err))
			return
		}
		defer cursor.Close(ctx)
		for cursor.Next(ctx) {
			seen := readMarks(cursor.Current, string(s.lock))
			d := Dead[T]{Attempts: seen.attempts, At: seen.dead}
			d.ID = bson.Raw(append([]byte(nil), cursor.Current...)).Lookup("_id")
			d.Value, err = l.codec.decode(cursor.Current)
			if !yield(d, err) {
				return
			}
		}
		if err := cursor.Err(); err != nil {
			yield(Dead[T]{}, fmt.Errorf("doclock: dead: %w", err))
		}
	}
}

// Reopen lets documents be claimed again that were completed, or set aside by MaxAttempts: all
// of those that filter matches. Their attempts count from one. It returns how many it reopened,
// and wakes waiting claims. A document that is locked at the moment is left as it is.
//
// After an error the number of reopened documents is not known: call it again. A transaction in
// ctx is left alone.
func (l *Locks[T]) Reopen(ctx context.Context, filter any) (int, error) {
	f, err := marshal(filter)
	if err != nil {
		return 0, fmt.Errorf("doclock: reopen: the filter: %w", err)
	}
	s := l.store
	ctx = server.Bare(ctx)
	result, err := s.base.Majority.UpdateMany(ctx, both(f, bson.D{
		{Key: s.path(fieldDone), Value: bson.D{{Key: "$nin", Value: notDone}}},
		{Key: "$and", Value: bson.A{append(s.ours(), lease.Lacks(s.path(fieldID)))}},
	}), bson.D(s.leaving(false)))
	if err != nil {
		return 0, fmt.Errorf("doclock: reopen: %w", err)
	}
	if result.ModifiedCount > 0 {
		_ = l.Announce(ctx) // a hint
	}
	return int(result.ModifiedCount), nil
}
