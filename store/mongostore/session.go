package mongostore

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// The fields of a session's document, docs/internals/design.md §4.11, other than those that a holder has
// as well.
const (
	fieldWhat     = "kind"
	fieldDead     = "dead"
	fieldReasons  = "brokenHolders" // why holders of the session were broken
	fieldSessions = "sessions"      // in a shared lock: the sessions that its holders may be under, for the sweep
	fieldSession  = mongolease.FieldSession

	kindSession = "session"
)

// A lock's document of which a holder is under a session ends so far in the future that the TTL
// index never removes it. A sweep finds what a session left by the same index: the document of
// an exclusive holder ends at a date that is its session's own, but for a chance of one in
// 10¹⁴. A document that several sessions may keep has the last date of all.
var (
	far   = time.Date(5000, 1, 1, 0, 0, 0, 0, time.UTC)
	never = mongobase.Date(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
)

// farEnd returns the end of a document whose only holder is under that session.
func farEnd(session string) bson.DateTime {
	h := fnv.New64a()
	_, _ = h.Write([]byte(session))                               // it never fails
	return mongobase.Date(far) + bson.DateTime(h.Sum64()%(1<<47)) //nolint:gosec // before the year 9460
}

// A sessionRecord is a session's document as read. A dead session has no holder.
type sessionRecord struct {
	mongolease.Document
	id     string
	dead   bool
	broken map[string]string
}

func (r sessionRecord) Foreign() error {
	if r.Stranger == "" {
		return nil
	}
	return fmt.Errorf("%w: the session's document has %s", store.ErrForeign, r.Stranger)
}

func (r sessionRecord) Status(key string, now time.Time) store.Status {
	return r.Seen(key, store.Exclusive, 1, now)
}

func readSession(raw bson.Raw) (r sessionRecord) {
	r.id, _ = raw.Lookup("_id", fieldSession).StringValueOK()
	if !mongobase.Is(raw.Lookup(fieldMark), shape) {
		r.Stranger = "another shape"
		return r
	}
	h := mongolease.Holder{Holder: store.Holder{ID: r.id}}
	elements, err := raw.Elements()
	for _, e := range elements {
		switch v := e.Value(); e.Key() {
		case fieldDead:
			r.dead = true
		case fieldAt:
			r.At, _ = mongobase.Time(v)
		case fieldReasons:
			r.broken = readReasons(v)
		default:
			h.Read(e.Key(), v)
		}
	}
	if !r.dead && err == nil && h.Complete() {
		r.Holders = []mongolease.Holder{h}
	}
	return r
}

func readReasons(v bson.RawValue) map[string]string {
	doc, _ := v.DocumentOK()
	elements, _ := doc.Elements()
	reasons := make(map[string]string, len(elements))
	for _, e := range elements {
		reasons[e.Key()], _ = e.Value().StringValueOK()
	}
	return reasons
}

// A sessionLayout tells the steps of internal/mongo/mongolease how a session's document looks: it is
// a lock whose only holder is the session itself. Its _id is a document, so it differs from
// every key's.
type sessionLayout struct{ of *sessions }

func sessionName(id string) bson.E {
	return bson.E{Key: "_id", Value: bson.D{{Key: fieldSession, Value: id}}}
}

func ourSession(id string, more ...bson.E) bson.D {
	return append(bson.D{sessionName(id), {Key: fieldMark, Value: shape}, {Key: fieldWhat, Value: kindSession}}, more...)
}

func (sessionLayout) Name(r store.Ref) (bson.D, error) { return bson.D{sessionName(r.ID)}, nil }

func (sessionLayout) Fields(string) mongolease.Fields { return "" }

func (sessionLayout) Named(string) []bson.E {
	return []bson.E{{Key: fieldMark, Value: shape}, {Key: fieldWhat, Value: kindSession}, mongolease.Lacks(fieldDead)}
}

func (l sessionLayout) Holds(id string) []bson.E { return l.Named(id) }

func (l sessionLayout) Read(document bson.Raw) sessionRecord {
	r := readSession(document)
	l.of.saw(r, l.of.steps.Base.Clock.Now())
	return r
}

func (l sessionLayout) FindMany(ctx context.Context, _ *mongo.Collection, refs []store.Ref) ([]mongolease.Image[sessionRecord], error) {
	image, err := l.of.steps.Find(ctx, refs[0]) // a session is renewed alone
	return []mongolease.Image[sessionRecord]{image}, err
}

// BeginSession inserts a session's document, with an upsert whose filter finds nothing. A document
// whose outcome is unknown may stay: its ID is never used, so no holder comes under it.
func (s *Store) BeginSession(ctx context.Context, of store.Session) (time.Duration, error) {
	ctx = mongobase.Bare(ctx)
	x, sent := &s.sessions, s.base.Clock.Now()
	if err := s.base.Sure(ctx); err != nil {
		return 0, mongoerr.NotApplied(err)
	}
	t := s.base.Tenure(of.TTL)
	filter := ourSession(of.ID, bson.E{Key: fieldBeat, Value: t.Beat})
	update := bson.D{{Key: "$set", Value: bson.D{
		{Key: mongolease.FieldOwner, Value: of.Owner},
		{Key: fieldExpireAt, Value: mongobase.Date(t.Until)},
		{Key: mongolease.FieldTTL, Value: mongobase.Millis(t.TTL)},
		{Key: fieldEpoch, Value: t.By.Epoch},
	}}, stampAt}
	image, err := x.steps.Send(ctx, mongolease.Begin, s.base.Durable, filter, update, mongobase.Upsert)
	switch {
	case mongoerr.ClassOf(err) == mongoerr.DuplicateID:
		return 0, store.ErrGone
	case err != nil:
		return 0, mongoerr.Mark(err)
	case image.Record.At.IsZero():
		return 0, mongobase.ErrNoTrace
	}
	left := s.base.Left(t, sent, image.Sent, image.Record.At)
	if left < of.TTL/2 { // it was written by a clock far behind the server's
		again := x.steps.Renew(ctx, []store.Renewal{{Ref: store.Ref{ID: of.ID}, TTL: of.TTL}})[0]
		if again.Err != nil {
			return 0, again.Err
		}
		left = max(left, again.Left)
	}
	x.used.Store(true)
	x.surveyed.Store(false)
	return left, nil
}

// RenewSession sends one update. Its after-image tells which holders were broken.
func (s *Store) RenewSession(ctx context.Context, of store.Session) (store.SessionRenewed, error) {
	x := &s.sessions
	answer := x.steps.Renew(ctx, []store.Renewal{{Ref: store.Ref{ID: of.ID}, TTL: of.TTL}})[0]
	if answer.Err != nil {
		return store.SessionRenewed{}, answer.Err
	}
	v, _ := x.view(of.ID)
	return store.SessionRenewed{Left: answer.Left, Broken: v.broken}, nil
}

// EndSession marks a session, by its ID alone, because only its own process does so.
func (s *Store) EndSession(ctx context.Context, id string) error {
	x := &s.sessions
	_, err := x.steps.Send(mongobase.Bare(ctx), mongolease.Mark, s.base.Durable, ourSession(id), dead(), mongobase.After)
	if err != nil {
		return mongoerr.Mark(err)
	}
	x.isOver(id)
	return nil
}

func dead(more ...bson.E) bson.D {
	return append(bson.D{{Key: "$set", Value: bson.D{{Key: fieldDead, Value: true}}}, stampAt}, more...)
}

// enter adds to a renewal's update that the holder comes under a session, or leaves one. The
// beat that is written with it bars every older copy.
func enter(r store.Renewal, update bson.D) bson.D {
	most, set := slices.Clone(update[0].Value.(bson.D)), update[1].Value.(bson.D)
	session := bson.E{Key: keptBy(r.Ref), Value: r.Session}
	end := slices.IndexFunc(most, func(e bson.E) bool { return e.Key == fieldExpireAt })
	var more bson.D
	switch {
	case r.Alone && r.Mode == store.Exclusive: // no other holder is in the document
		set = append(set, most[end])
		most = slices.Delete(most, end, end+1)
		more = bson.D{{Key: "$unset", Value: bson.D{session}}, moveRev} // then no late update puts it under the session together with others
	case r.Alone:
		more = bson.D{{Key: "$unset", Value: bson.D{session}}}
	case r.Mode == store.Exclusive:
		most = slices.Delete(most, end, end+1)
		set = append(set, session, bson.E{Key: fieldExpireAt, Value: farEnd(r.Session)})
	default:
		most[end].Value = never
		set = append(set, session)
		more = bson.D{{Key: "$addToSet", Value: bson.D{{Key: fieldSessions, Value: r.Session}}}}
	}
	return append(bson.D{{Key: "$max", Value: most}, {Key: "$set", Value: set}, stampAt}, more...)
}

func readSessions(v bson.RawValue) (ids []string) {
	all, _ := v.ArrayOK()
	values, _ := all.Values()
	for _, v := range values {
		if id, ok := v.StringValueOK(); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// oldSessions is how many sessions without holders the document of a shared key may keep.
const oldSessions = 16

// prune adds to a join that the sessions without holders are removed from the document, if they
// have become many: holders that leave do not remove them. The filter then names the beat of
// every holder that stays, so that none of them has come under a session since the look.
func (c *claim) prune(seen record, over map[string]bool, filter bson.D, update mongobase.Change) (bson.D, mongobase.Change) {
	if c.pruned || len(seen.sessions) <= oldSessions {
		return filter, update
	}
	old := make(map[string]bool, len(seen.sessions))
	for _, id := range seen.sessions {
		old[id] = true
	}
	for _, h := range seen.Holders {
		if !over[h.ID] {
			delete(old, h.Session)
		}
	}
	if len(old) <= oldSessions {
		return filter, update
	}
	c.pruned = true
	for _, h := range seen.Holders {
		if !over[h.ID] {
			filter = append(filter, holder(h.ID).Still(h))
		}
	}
	ids := bson.A{}
	for _, id := range slices.Sorted(maps.Keys(old)) {
		ids = append(ids, id)
	}
	return filter, update.Add("$pullAll", bson.E{Key: fieldSessions, Value: ids})
}
