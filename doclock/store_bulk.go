package doclock

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/store"
)

// ReleaseMany releases holders with one find and one bulk. Holders whose release does more to
// the document, or may meet an open transaction of the caller, are released alone, beside the
// others. On FerretDB, which does not return from an update of some hundred documents, each is
// released alone, one after the other.
func (s *docStore) ReleaseMany(ctx context.Context, batch []store.Ending) []store.Ended {
	one := func(e store.Ending) (a store.Ended) {
		a.Wanted, a.Err = s.Release(ctx, e.Ref, e.Keep)
		return a
	}
	if s.isFlat() {
		answers := make([]store.Ended, len(batch))
		for i, e := range batch {
			answers[i] = one(e)
		}
		return answers
	}
	return apart(batch,
		func(e store.Ending) bool { return s.ending(e.ID) != nil || s.writtenInTransaction(e.ID) }, one,
		func(together []store.Ending) []store.Ended { return s.releaseTogether(ctx, together) })
}

func (s *docStore) releaseTogether(ctx context.Context, batch []store.Ending) []store.Ended {
	b, which := s.steps.BeginBulk(ctx, batch, modeIs, func(r store.Ref, seen record) bool {
		_, holds := seen.Holder(r.ID)
		return holds
	})
	b.Take(which.Held, func(r store.Ref) ([]bson.E, bson.D) {
		return s.Holds(r.ID), bson.D(s.leaving(s.residue(r.ID)))
	})
	b.Keep(which.Kept, func(r store.Ref, rest time.Duration) ([]bson.E, bson.D) {
		return s.Holds(r.ID), bson.D(s.staying(rest))
	})
	for i, e := range batch {
		if l, ok := s.steps.Memory.Of(e.ID); ok && b.Answers[i].Err == nil {
			s.freed.add(e.Key, l.Own.doc)
		}
	}
	return b.End()
}
