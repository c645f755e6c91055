package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// Many exclusive holders come under a session with one update, docs/design.md §4.11. It names
// their documents, and the revisions that their grants wrote. It leaves their own ends and
// beats as they are, which only an update for each could move.

// Renew gives holders a new end, or puts those under a session that are to come under it.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	for _, r := range batch {
		if r.Alone { // moves the revision
			s.steps.Memory.Change(r.ID, func(l *mongolease.Lease[int64]) { l.Own = 0 })
		}
	}
	group := s.entering(batch)
	if len(group) < 2 {
		return s.steps.Renew(ctx, batch)
	}
	entered, err := s.enterMany(ctx, batch, group)
	answers := make([]store.Renewed, len(batch))
	var rest []store.Renewal
	var at []int
	for i, r := range batch {
		_, among := group[i]
		switch {
		case entered[r.ID]: // how long its own end is away, its client knows better: this clock misses what a machine sleeps
		case among && err != nil:
			answers[i].Err = err
		default: // a renewal of its own says why, if it is not there
			rest, at = append(rest, r), append(at, i)
		}
	}
	for i, a := range s.steps.Renew(ctx, rest) {
		answers[at[i]] = a
	}
	return answers
}

// entering are the holders of a batch that can come under the session of the first of them
// together, with what is remembered of each. A renewal that named a session by itself may be
// on its way yet, and only another one bars it.
func (s *Store) entering(batch []store.Renewal) map[int]mongolease.Lease[int64] {
	if !s.base.WritesMany() {
		return nil
	}
	group, session := make(map[int]mongolease.Lease[int64], len(batch)), ""
	for i, r := range batch {
		if r.Session == "" || r.Alone || r.Mode != store.Exclusive || session != "" && r.Session != session {
			continue
		}
		l, ok := s.steps.Memory.Of(r.ID)
		if ok && l.Own != 0 && s.base.Clock.Now() < l.Until && (!l.Named || knob.TogetherAfterAlone) {
			group[i], session = l, r.Session
		}
	}
	return group
}

// enterMany answers which holders a majority has under the session. Those that it does not
// answer are not, or not surely if there is an error.
func (s *Store) enterMany(ctx context.Context, batch []store.Renewal, group map[int]mongolease.Lease[int64]) (map[string]bool, error) {
	ctx = mongobase.Bare(ctx)
	keys, revs := make(bson.A, 0, len(group)), make(bson.A, 0, len(group))
	refs, session := make([]store.Ref, 0, len(group)), ""
	entered := make(map[string]bool, len(group))
	for i, r := range batch {
		l, among := group[i]
		if !among {
			continue
		}
		keys, revs, refs, session = append(keys, r.Key), append(revs, l.Own), append(refs, r.Ref), r.Session
		entered[r.ID] = true
		s.steps.Memory.Change(r.ID, func(l *mongolease.Lease[int64]) { l.Kept = true })
	}
	within, cancel := mongolease.PartOf(ctx)
	matched, failed, err := s.base.Bulk(within, s.base.Durable, []mongo.WriteModel{entrance(session, keys, revs)})
	cancel()
	if err == nil {
		err = failed[0]
	}
	switch {
	case err == nil && matched == len(refs) || knob.EnteredUnseen:
		return entered, nil
	case err != nil && mongoerr.ClassOf(err) != mongoerr.Unknown:
		return nil, mongoerr.Mark(err)
	}
	images, fault := s.steps.FindMany(ctx, s.base.Committed, refs)
	if fault != nil {
		return nil, errors.Join(mongoerr.Mark(err), fault)
	}
	for i, image := range images {
		h, there := image.Record.Holder(refs[i].ID)
		entered[refs[i].ID] = there && !h.IsBroken && !h.Released && h.Session == session
	}
	return entered, mongoerr.Mark(err)
}

// entrance is the update of documents with those revisions: it names exclusive holders that are
// under no session, or under this one. A break and a release for later move a revision.
func entrance(session string, keys, revs bson.A) mongo.WriteModel {
	in := func(all bson.A) bson.D { return bson.D{{Key: "$in", Value: all}} }
	return mongo.NewUpdateManyModel().
		SetFilter(bson.D{
			{Key: "_id", Value: in(keys)}, {Key: fieldMark, Value: shape}, exclusively, {Key: fieldRev, Value: in(revs)},
			{Key: fieldSession, Value: in(bson.A{nil, session})},
		}).
		SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: fieldSession, Value: session}, {Key: fieldExpireAt, Value: farEnd(session)}}}, stampAt})
}

// keptBy is where the session stands that a holder is under. The document of an exclusive one
// has no other, so that one update can put many under a session.
func keptBy(r store.Ref) string {
	if r.Mode == store.Exclusive {
		return fieldSession
	}
	return of(r.ID, fieldSession)
}

// under is the condition that an exclusive holder is under the session that was seen, or under
// none if none was: coming under one together with others moves neither beat nor revision.
func (r record) under() []bson.E {
	switch {
	case knob.UnderUnseen || r.mode != store.Exclusive:
		return nil
	case r.session == "":
		return []bson.E{mongolease.Lacks(fieldSession)}
	}
	return []bson.E{{Key: fieldSession, Value: r.session}}
}
