package pathlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

// stale is the age from which on a sample's drift would make locks noticeably too long.
const stale = 10 * time.Minute

// A sight holds what one find saw of a tree.
type sight struct {
	word    word
	records []record
	sent    server.Moment
	seen    server.Moment // when the answer came
	full    bool          // the find was cut off: there may be more
}

// filter returns the filter of a find: for these locks, by their numbers, and for the tree's
// word. Each alternative makes the find slower, so everything that has a number is found by it.
// The first find of a process also looks for a foreign document under the tree's name.
func (m *mongoTree) filter(on, under bson.A, ids ...string) bson.D {
	some := bson.A{bson.D{{Key: fieldOn, Value: bson.D{{Key: "$in", Value: append(on, wordNumber(m.name))}}}}}
	if len(under) > 0 {
		some = append(some, bson.D{{Key: fieldUnder, Value: bson.D{{Key: "$in", Value: under}}}})
	}
	if !m.met.Load() {
		ids = append(ids, m.name)
	}
	if len(ids) > 0 {
		some = append(some, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	}
	if len(some) == 1 {
		return some[0].(bson.D)
	}
	return bson.D{{Key: "$or", Value: some}}
}

// inTheWay returns the filter for the locks that may conflict with a request, and for its own.
// If its own lock is exclusive, it is among them by its number.
func (m *mongoTree) inTheWay(r Request, own ...string) bson.D {
	modes := []Mode{Exclusive, Shared}
	if r.Mode == Shared {
		modes = modes[:1]
	} else {
		own = nil
	}
	var under bson.A
	if r.Depth == Infinity {
		under = within(m.name, r.Path, modes...)
	}
	return m.filter(covering(m.name, r.Path, modes...), under, own...)
}

// partFilter returns the filter for a part of the tree.
func (m *mongoTree) partFilter(p part) bson.D {
	if p.all {
		p = part{at: []string{"/"}, below: []string{"/"}}
	}
	var on, under bson.A
	for _, path := range p.at {
		on = append(on, covering(m.name, path, Exclusive, Shared)...)
	}
	for _, path := range p.below {
		under = append(under, within(m.name, path, Exclusive, Shared)...)
	}
	return m.filter(on, under)
}

// withoutKeys leaves out the numbers by which a record is found.
var withoutKeys = bson.D{{Key: fieldOn, Value: 0}, {Key: fieldUnder, Value: 0}}

// each calls tell with what a filter finds, without the numbers by which it is found.
func (m *mongoTree) each(ctx context.Context, coll *mongo.Collection, filter bson.D, tell func(bson.Raw) error, opts *options.FindOptionsBuilder) error {
	cursor, err := coll.Find(ctx, filter, opts.SetProjection(withoutKeys))
	if err != nil {
		return err
	}
	defer cursor.Close(ctx)
	for cursor.Next(ctx) {
		if err := tell(cursor.Current); err != nil {
			return err
		}
	}
	return cursor.Err()
}

// find reads what a filter finds: at most limit documents, if limit is not 0. If it fails,
// nothing was changed.
func (m *mongoTree) find(ctx context.Context, coll *mongo.Collection, filter bson.D, limit int64) (s sight, err error) {
	s.sent = m.base.Clock.Now()
	told, n := false, int64(0)
	err = m.each(ctx, coll, filter, func(raw bson.Raw) (err error) {
		n++
		if id, _ := raw.Lookup("_id").StringValueOK(); id == m.name {
			told = true
			s.word, err = m.readWord(raw)
			return err
		}
		if tree, is := raw.Lookup(fieldTree).StringValueOK(); is && tree != m.name {
			return nil // the token, or its words, of another tree
		}
		r, err := readRecord(raw)
		s.records = append(s.records, r)
		return err
	}, options.Find().SetLimit(limit))
	switch {
	case errors.Is(err, ErrForeign):
		return s, err
	case err != nil:
		return s, server.NotApplied(err)
	}
	s.full, s.seen = limit > 0 && n >= limit, m.base.Clock.Now()
	if s.full && !told { // it was among those cut off
		s.word, err = m.standing(ctx)
		return s, err
	}
	m.met.Store(true)
	m.learn(s.word, s.sent)
	return s, nil
}

// look reads the locks in the way of a request whose own lock was added. A lock that was added
// before that one has to be seen, unless it is gone for good. So the look reads what a majority
// has: if a lock was removed by a write that may be rolled back, the look still sees it. And it
// has to see its own lock: a member that shows that one has everything that was written before
// it, whether it is the primary, or was, or is asked through a router.
func (m *mongoTree) look(ctx context.Context, r Request, token string, d *doubts) (sight, error) {
	coll := m.base.W1
	if m.base.Kind().Set {
		coll = m.base.Committed
	}
	s, err := m.find(server.Bare(ctx), coll, m.inTheWay(r, token), maxListed+3) // 3 more, for the word and the lock itself
	d.answered(s.sent, m.base.Clock.Now())
	return s, err
}

// lately returns the server's clock as it is known.
func (m *mongoTree) lately() interval {
	reading, _ := m.base.Known()
	return interval{Earliest: reading.Earliest, Latest: server.Ceil(reading.Latest)}
}

// clock returns the server's clock, exact enough to judge these records. They matter only through a
// router: elsewhere the judge asks the server itself.
func (m *mongoTree) clock(ctx context.Context, records []record) (interval, error) {
	r, known := m.base.Known()
	between := func(o record) bool { return o.until.After(r.Earliest) && !o.until.After(r.Latest) }
	old := !r.Fresh && (r.Latest.Sub(r.Earliest) >= stale || m.base.Kind().Router && slices.ContainsFunc(records, between))
	if !known || old {
		if err := m.sample(ctx, records); err != nil {
			return interval{}, err
		}
	}
	return m.lately(), nil
}

// sample asks for the server's time. A router's time is another machine's and must not judge,
// so through a router one of the documents is asked, by a write that changes nothing else.
func (m *mongoTree) sample(ctx context.Context, records []record) error {
	if !m.base.Kind().Router {
		if _, _, err := m.base.Hello(ctx); err != nil {
			return server.NotApplied(err)
		}
	}
	if !m.base.Kind().Router || len(records) == 0 {
		return nil
	}
	r, err := m.base.Modify(ctx, m.base.Majority,
		bson.D{{Key: "_id", Value: records[0].Token}, {Key: fieldVersion, Value: mongoVersion}},
		bson.D{{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}}}, onlyAt())
	if err != nil {
		return server.NotApplied(err)
	}
	m.drawn(r)
	return nil
}

// drawn takes the time in an answer as a sample, and returns it.
func (m *mongoTree) drawn(r server.Reply) (at time.Time, ok bool) {
	at, ok = server.Time(r.Image.Lookup(fieldAt))
	if ok {
		m.base.Timed(at, r.Sent)
	}
	return at, ok
}

// onlyAt makes an update return only the server's time of the document.
func onlyAt() *options.FindOneAndUpdateOptionsBuilder {
	return options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(bson.D{{Key: fieldAt, Value: 1}})
}

// view reads a part of the tree: one find.
func (m *mongoTree) view(ctx context.Context, p part, look func(*document, interval)) error {
	if err := notStarted(ctx); err != nil {
		return err
	}
	ctx = server.Bare(ctx)
	s, err := m.find(ctx, m.base.W1, m.partFilter(p), 0)
	if err != nil {
		return err
	}
	now, err := m.clock(ctx, s.records)
	if err != nil {
		return err
	}
	d, err := m.document(ctx, fmt.Sprint("view", p), now, &s)
	if err != nil {
		return err
	}
	look(d, now)
	return nil
}

// document returns what was seen, in the form by which requests judge it.
func (m *mongoTree) document(ctx context.Context, about string, now interval, s *sight) (*document, error) {
	var past []*record // the judge of the others need remember nothing
	for i := range s.records {
		if !s.records[i].until.After(now.Latest) {
			past = append(past, &s.records[i])
		}
	}
	j, err := m.judged(ctx, about, now, s, past)
	if err != nil {
		return nil, server.NotApplied(err)
	}
	var locks []Lock
	for i := range s.records {
		if r := &s.records[i]; !j.over[r.Token] {
			locks = append(locks, j.shown(r))
		}
	}
	return newDocument(locks...), nil
}
