package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Register is an upsert that changes nothing if the document exists.
func (m *Mongo) Register(ctx context.Context, name, plan string, now, next time.Time) error {
	first := bson.D{{Key: "plan", Value: plan}, {Key: "decided", Value: date(now)}, {Key: "ended", Value: date(now)}, {Key: "next", Value: date(next)}}
	_, err := m.modify(command.Bare(ctx), bson.D{{Key: "_id", Value: name}, ours}, bson.D{{Key: "$setOnInsert", Value: first}, stamp}, upsert)
	if server.ClassOf(err) == server.DuplicateID {
		return fmt.Errorf("the document %q is not a job: %w", name, store.ErrForeign)
	}
	return server.Classified(err)
}

// Change is one update. Its dates are read from the server's clock before. That they are late
// or early by some milliseconds does not matter.
func (m *Mongo) Change(ctx context.Context, name string, change Change) (changed bool, err error) {
	ctx = command.Bare(ctx)
	if _, _, err := m.base.Hello(ctx); err != nil {
		return false, server.NotApplied(err)
	}
	now := date(m.Now())
	filter, update := bson.D{{Key: "_id", Value: name}, ours}, bson.D{stamp}
	paused := func(is bool) bson.E { return bson.E{Key: "paused", Value: bson.D{{Key: "$exists", Value: is}}} }
	switch change {
	case AskRun:
		filter = append(filter, paused(false))
		update = append(update, bson.E{Key: "$set", Value: bson.D{{Key: "asked", Value: now}}})
	case Pause:
		begins := append(slices.Clone(filter), paused(false))
		r, err := m.modify(ctx, begins, append(slices.Clone(update), bson.E{Key: "$set", Value: bson.D{{Key: "paused", Value: true}, {Key: "pausedAt", Value: now}}}), after)
		if err != nil || r.Found() {
			return err == nil, server.Classified(err)
		} // it is paused already, or there is no such job
	case Resume:
		filter = append(filter, paused(true))
		update = append(update, bson.E{Key: "$unset", Value: bson.D{{Key: "paused", Value: ""}}},
			bson.E{Key: "$max", Value: bson.D{{Key: "decided", Value: now}}}, bson.E{Key: "$set", Value: bson.D{{Key: "resumedAt", Value: now}}})
	}
	r, err := m.modify(ctx, filter, update, after)
	return err == nil && r.Found(), server.Classified(err)
}

// Asked is one find, which mostly finds nothing.
func (m *Mongo) Asked(ctx context.Context, names []string, since time.Time) (map[string]time.Time, error) {
	ctx = command.Bare(ctx)
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}, {Key: "asked", Value: bson.D{{Key: "$gt", Value: date(since)}}}, ours}
	cursor, err := m.base.Soft.Find(ctx, filter, options.Find().SetProjection(bson.D{{Key: "asked", Value: 1}}))
	if err != nil {
		return nil, server.Classified(err)
	}
	defer cursor.Close(ctx)
	asked := make(map[string]time.Time)
	for cursor.Next(ctx) {
		name, isName := cursor.Current.Lookup("_id").StringValueOK()
		at, isTime := cursor.Current.Lookup("asked").TimeOK()
		if isName && isTime {
			asked[name] = at.UTC()
		}
	}
	return asked, cursor.Err()
}
