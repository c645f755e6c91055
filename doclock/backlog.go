package doclock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// A Backlog says whether the workers keep up.
type Backlog struct {
	Claimable int       // documents that a worker could claim now
	Claimed   int       // documents that have a live holder
	Dead      int       // documents that MaxAttempts has set aside
	Oldest    time.Time // when the oldest claimable document came; zero if there is none, or no field was named
	Now       time.Time // the server's clock
}

// Age returns how old the oldest claimable document is.
func (b Backlog) Age() time.Duration {
	if b.Oldest.IsZero() {
		return 0
	}
	return max(0, b.Now.Sub(b.Oldest))
}

// Backlog counts the documents that filter matches, whichever process works on them. The filter is that of Claim. The
// field came has the date on which a document came, or is an _id that is an ObjectID; it may be "". If the first
// document has no date there, the numbers come with an error that matches ErrDecode.
//
// It is for monitors, and reads as many entries of an index as it counts: of that by EnsureClaimIndex, sorted by came,
// those that can be claimed or are, and also those of all completed documents that are still there, unless the
// lock's field dead has a sparse index.
func (l *Locks[T]) Backlog(ctx context.Context, filter any, came string) (Backlog, error) {
	f, err := marshal(filter)
	if err != nil {
		return Backlog{}, fmt.Errorf("doclock: backlog: the filter: %w", err)
	}
	s, ctx := l.store, server.Bare(ctx)
	if err := s.base.ReadFresh(ctx); err != nil {
		return Backlog{}, fmt.Errorf("doclock: backlog: %w", err)
	}
	b := Backlog{Now: s.base.Present()}
	claimable := s.claimableOf(f, b.Now, b.Now)
	held := append(s.ours(), s.held(), bson.E{Key: s.path(fieldExpireAt), Value: bson.D{{Key: "$gt", Value: date(b.Now)}}})
	for _, of := range []struct {
		n      *int
		filter bson.D
	}{{&b.Claimable, claimable}, {&b.Claimed, both(f, bson.D{s.notDone(), {Key: "$and", Value: bson.A{held}}})}, {&b.Dead, s.deadOf(f)}} {
		n, err := s.base.W1.CountDocuments(ctx, of.filter)
		if err != nil {
			return Backlog{}, fmt.Errorf("doclock: backlog: %w", err)
		}
		*of.n = int(n)
	}
	if came == "" {
		return b, nil
	}
	opts := options.Find().SetSort(bson.D{{Key: came, Value: 1}}).SetProjection(bson.D{{Key: came, Value: 1}}).SetLimit(1)
	cursor, err := s.base.W1.Find(ctx, claimable, opts)
	if err != nil {
		return b, fmt.Errorf("doclock: backlog: %w", err)
	}
	defer cursor.Close(ctx)
	if cursor.Next(ctx) {
		b.Oldest, err = dateIn(cursor.Current, came)
	}
	if err == nil && cursor.Err() != nil {
		err = fmt.Errorf("doclock: backlog: %w", cursor.Err())
	}
	return b, err
}

// dateIn returns a date in a document, or that of an ObjectID.
func dateIn(doc bson.Raw, field string) (time.Time, error) {
	v := doc.Lookup(strings.Split(field, ".")...)
	if id, is := v.ObjectIDOK(); is {
		return id.Timestamp(), nil
	}
	at, is := server.Time(v)
	if !is {
		return time.Time{}, fmt.Errorf("%w: backlog: %s of that with _id %s is no date", ErrDecode, field, clip(doc.Lookup("_id")))
	}
	return at, nil
}

// deadOf returns the filter of those of a filter's documents that were set aside.
func (s *docStore) deadOf(filter bson.Raw) bson.D {
	return both(filter, bson.D{{Key: s.path(fieldDone), Value: true}, {Key: s.path(fieldVersion), Value: shape}, lease.Exists(s.path(fieldDead))})
}
