package mongostore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/internal/swept"
	"github.com/mongolock/mongolock/store"
)

// sessions holds what a store knows of sessions, its own and those of others.
type sessions struct {
	steps mongolease.Steps[sessionRecord, struct{}]
	used  atomic.Bool // this store began one, so its holders may be under it

	surveyed atomic.Bool // since then the search for those whose process died long ago was made

	mu   sync.Mutex              // protects the rest; never held across a command
	seen swept.Map[string, view] // by ID
	left []string                // those found over, whose holders are to be swept
}

// A view is what was last seen of a session.
type view struct {
	sessionRecord
	at   mongoclock.Moment
	over bool // for good: a majority has the mark
}

// past reports whether the session has run out if it was not renewed since.
func (v view) past(now time.Time) bool {
	return len(v.Holders) > 0 && !v.Marks()[0].ExpireAt.After(now)
}

// unkey begins names that are remembered like keys but do not name one. It is not UTF-8, so no
// key begins with it.
const unkey = "\xff"

const (
	viewFresh = time.Second // a view this young is shown without another look
	leftMost  = 1024        // sessions that are remembered for the sweep
	viewsKept = time.Hour
)

func (x *sessions) saw(r sessionRecord, at mongoclock.Moment) {
	if r.id == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.put(r.id, view{sessionRecord: r, at: at, over: x.seen.All[r.id].over})
}

// put remembers a view. Call it with x.mu held.
func (x *sessions) put(id string, v view) {
	x.seen.Put(id, v, func(_ string, old view) bool { return v.at.Sub(old.at) > viewsKept })
}

// isOver remembers that a session is over for good, and that it is to be swept.
func (x *sessions) isOver(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := x.seen.All[id]
	v.over, v.at = true, x.steps.Base.Clock.Now()
	x.put(id, v)
	if !slices.Contains(x.left, id) && len(x.left) < leftMost {
		x.left = append(x.left, id)
	}
}

func (x *sessions) leftBy() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.left)
}

func (x *sessions) swept(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.left = slices.DeleteFunc(x.left, func(other string) bool { return other == id })
}

func (x *sessions) view(id string) (view, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	v, ok := x.seen.All[id]
	return v, ok
}

// Over judges sessions by the rules for holders, and marks those that are over, by majority.
// Only the mark makes sure of it: the look may have been answered by a primary that was
// deposed. After the mark no renewal is applied, and none was since the look.
func (x *sessions) Over(ctx context.Context, ids []string) (map[string]bool, error) {
	over := make(map[string]bool, len(ids))
	var ask []string
	for _, id := range ids {
		if v, _ := x.view(id); v.over {
			over[id] = true
		} else {
			ask = append(ask, id)
		}
	}
	sent := x.steps.Base.Clock.Now()
	found, err := x.read(ctx, ask)
	if err != nil {
		return nil, err
	}
	at := x.steps.Base.Clock.Now()
	for _, id := range ask {
		r := found[id]
		gone, err := x.steps.Base.Judge(ctx, unkey+id, r.Marks(), sent, at, x.steps.DrawnFor(store.Ref{ID: id}, mongolease.Image[sessionRecord]{Record: r}))
		if err != nil {
			return nil, err
		}
		if len(gone) < len(r.Holders) || r.Stranger != "" {
			continue
		}
		if over[id], err = x.mark(ctx, id, r); err != nil {
			return nil, err
		}
	}
	return over, nil
}

// read reads sessions. A session that is missing, or dead, has no holder.
func (x *sessions) read(ctx context.Context, ids []string) (map[string]sessionRecord, error) {
	found := make(map[string]sessionRecord, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	names := make(bson.A, len(ids))
	for i, id := range ids {
		names[i] = sessionName(id).Value
	}
	err := x.steps.Base.FindAll(ctx, x.steps.Base.Soft, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}}, len(ids), func(doc bson.Raw) {
		r := readSession(doc)
		found[r.id] = r
	})
	if err != nil {
		return nil, err
	}
	at := x.steps.Base.Clock.Now()
	for _, id := range ids {
		r := found[id]
		r.id = id
		x.saw(r, at)
	}
	return found, nil
}

// mark marks a session dead that was seen, or that was missing; in the latter case its document
// has only the mark. It reports false if the session was renewed meanwhile.
func (x *sessions) mark(ctx context.Context, id string, seen sessionRecord) (bool, error) {
	isDead := bson.E{Key: fieldDead, Value: true}
	filter := ourSession(id, isDead)
	if len(seen.Holders) > 0 {
		filter = ourSession(id, bson.E{Key: "$or", Value: bson.A{bson.D{isDead}, bson.D{{Key: fieldBeat, Value: seen.Holders[0].Beat}}}})
	}
	coll := x.steps.Base.Durable
	_, until := x.steps.Base.Now().Expiry(0)
	update := dead(bson.E{Key: "$setOnInsert", Value: bson.D{{Key: fieldExpireAt, Value: mongobase.Date(until)}}})
	_, err := x.steps.Base.Modify(ctx, coll, filter, update, mongobase.Upsert)
	switch {
	case mongoerr.ClassOf(err) == mongoerr.DuplicateID:
		return false, nil
	case err != nil:
		return false, err
	}
	x.isOver(id)
	return true, nil
}

// Ends returns when a session ends, by what was last seen of it.
func (x *sessions) Ends(id string, now time.Time) (expireAt, knownBy time.Time, over bool) {
	v, known := x.view(id)
	switch {
	case !known:
		return now.Add(viewFresh), time.Time{}, false
	case v.over || len(v.Holders) == 0:
		return time.Time{}, time.Time{}, true
	}
	m := v.Marks()[0]
	return m.ExpireAt, x.steps.Base.KnownBy(unkey+id, m, now), false
}

// Learn reads sessions that were not seen lately, or whose end as seen then has passed. After a
// fault they are shown as last seen.
func (x *sessions) Learn(ctx context.Context, ids []string) {
	now, present := x.steps.Base.Clock.Now(), x.steps.Base.Present()
	var ask []string
	for _, id := range ids {
		if v, known := x.view(id); !known || !v.over && (now.Sub(v.at) > viewFresh || v.past(present)) {
			ask = append(ask, id)
		}
	}
	found, err := x.read(ctx, ask)
	if err != nil {
		return
	}
	at := x.steps.Base.Clock.Now()
	for _, id := range ask {
		x.steps.Base.Saw(unkey+id, found[id].Marks(), at)
	}
}

// survey finds, once after a session was begun, sessions whose process died long ago and whose
// keys were not asked for since.
func (x *sessions) survey(ctx context.Context) error {
	now := x.steps.Base.Now()
	if x.surveyed.Load() || !x.used.Load() || now.Earliest.IsZero() {
		return nil
	}
	var ids []string
	err := x.steps.Base.FindAll(ctx, x.steps.Base.Soft, bson.D{
		{Key: fieldMark, Value: shape}, {Key: fieldWhat, Value: kindSession},
		{Key: fieldExpireAt, Value: bson.D{{Key: "$lt", Value: mongobase.Date(now.Earliest.Add(-mongobase.LongPast))}}},
	}, leftMost, func(doc bson.Raw) {
		if r := readSession(doc); r.id != "" {
			ids = append(ids, r.id)
		}
	}, options.Find().SetLimit(leftMost/4).SetSort(bson.D{{Key: fieldExpireAt, Value: 1}}))
	if err == nil {
		_, err = x.Over(ctx, ids)
	}
	if err == nil && len(ids) < leftMost/4 { // otherwise the next sweep goes on
		x.surveyed.Store(true)
	}
	return err
}
