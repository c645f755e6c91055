package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// One update puts many exclusive holders under a session, docs/internals/design.md §4.11. It names their
// documents, and the revisions that their grants wrote. It leaves their own ends and beats as
// they are, because those need an update for each.

// Renew gives holders a new end, or puts them under the session that their renewal names.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	for _, r := range batch {
		if r.Alone { // this moves the revision
			s.steps.Memory.Change(r.ID, func(l *mongolease.Lease[int64]) { l.Own = 0 })
		}
	}
	refs, revs, session := s.entering(batch)
	if len(refs) < 2 {
		return s.steps.Renew(ctx, batch)
	}
	entered, err := s.enterMany(ctx, refs, revs, session)
	answers := make([]store.Renewed, len(batch))
	var rest []store.Renewal
	var at []int
	for i, r := range batch {
		in, among := entered[r.ID]
		switch {
		case in: // its client knows better how far away its own end is: this clock misses time asleep
		case among && err != nil:
			answers[i].Err = err
		default: // a renewal of its own tells why the holder was not found
			rest, at = append(rest, r), append(at, i)
		}
	}
	for i, a := range s.steps.Renew(ctx, rest) {
		answers[at[i]] = a
	}
	return answers
}

// entering returns the holders of a batch that can come under the session of the first of them
// together, with the revisions that their grants wrote. A holder's own renewal that named a session
// may still be on its way, and only another one of its own bars that.
func (s *Store) entering(batch []store.Renewal) (refs []store.Ref, revs bson.A, session string) {
	if !s.base.WritesMany() {
		return nil, nil, ""
	}
	for _, r := range batch {
		if r.Session == "" || r.Alone || r.Mode != store.Exclusive || session != "" && r.Session != session {
			continue
		}
		l, ok := s.steps.Memory.Of(r.ID)
		if ok && l.Own != 0 && s.base.Clock.Now() < l.Until && !l.Named {
			refs, revs, session = append(refs, r.Ref), append(revs, l.Own), r.Session
		}
	}
	return refs, revs, session
}

// enterMany returns which holders a majority has under the session. The other holders are not
// under it, or may be if there is an error.
func (s *Store) enterMany(ctx context.Context, refs []store.Ref, revs bson.A, session string) (map[string]bool, error) {
	ctx = mongobase.Bare(ctx)
	keys, entered := make(bson.A, len(refs)), make(map[string]bool, len(refs))
	for i, r := range refs {
		keys[i], entered[r.ID] = r.Key, false
		s.steps.Memory.Change(r.ID, func(l *mongolease.Lease[int64]) { l.Kept = true })
	}
	within, cancel := mongolease.PartOf(ctx)
	matched, failed, err := s.base.Bulk(within, s.base.Durable, []mongo.WriteModel{entrance(session, keys, revs)})
	cancel()
	if err == nil {
		err = failed[0]
	}
	switch {
	case err == nil && matched == len(refs):
		for id := range entered {
			entered[id] = true
		}
		return entered, nil
	case err != nil && mongoerr.ClassOf(err) != mongoerr.Unknown:
		return entered, mongoerr.Mark(err)
	}
	images, fault := s.steps.FindMany(ctx, s.base.Committed, refs)
	for i, image := range images {
		h, there := image.Record.Holder(refs[i].ID)
		entered[refs[i].ID] = fault == nil && there && !h.IsBroken && !h.Released && h.Session == session
	}
	return entered, errors.Join(mongoerr.Mark(err), fault)
}

// entrance returns the update of documents with those revisions: it names exclusive holders
// that are under no session, or under this one. A break and a release for later move a
// revision.
func entrance(session string, keys, revs bson.A) mongo.WriteModel {
	in := func(all bson.A) bson.D { return bson.D{{Key: "$in", Value: all}} }
	return mongo.NewUpdateManyModel().
		SetFilter(bson.D{
			{Key: "_id", Value: in(keys)}, {Key: fieldMark, Value: shape}, exclusively, {Key: fieldRev, Value: in(revs)},
			{Key: fieldSession, Value: in(bson.A{nil, session})},
		}).
		SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: fieldSession, Value: session}, {Key: fieldExpireAt, Value: farEnd(session)}}}, stampAt})
}

// keptBy returns the path of the session that a holder is under. The document of an exclusive
// holder has one such field, so that one update can put many holders under a session.
func keptBy(r store.Ref) string {
	if r.Mode == store.Exclusive {
		return fieldSession
	}
	return of(r.ID, fieldSession)
}

// under returns the condition that an exclusive holder is still under the session that was
// seen, or still under none: coming under a session together with others moves neither beat nor
// revision.
func (r record) under() []bson.E {
	switch {
	case r.mode != store.Exclusive:
		return nil
	case r.session == "":
		return []bson.E{mongolease.Lacks(fieldSession)}
	}
	return []bson.E{{Key: fieldSession, Value: r.session}}
}
