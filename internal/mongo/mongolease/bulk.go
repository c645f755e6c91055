package mongolease

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// A Bulk is many releases that are under way: one find, which shows who waits, and a bulk of each
// kind of write. Every write names the ID of its acquisition, as a single release does.
//
// A bulk does not return images. So a write that would remove a line asks that nobody is in it.
// Holders that are still there afterwards are found and released again, with two more commands:
// see Take.
type Bulk[R Record, X any] struct {
	Steps   *Steps[R, X]
	Ctx     context.Context
	Coll    *mongo.Collection
	Batch   []store.Ending
	Answers []store.Ended

	// The entries, by their places in the batch, according to the command that they need.
	Held []int // to be released
	Kept []int // stay for some time, under MinHold
	Gone []int // have no holder, and are answered

	has   func(r store.Ref, seen R) bool
	names []bson.D              // of the documents
	rest  map[int]time.Duration // of MinHold
	lined map[int]bool          // somebody was seen in line
}

// A Change says what a release does to the document that has its holder: under which
// conditions, and by which update. Without an update the document is removed.
type Change func(r store.Ref) (conditions []bson.E, update bson.D)

// BeginBulk begins a bulk, and reads the documents of its entries. refuse tells which entries
// the store does not accept; has tells whether a document that was read has the entry's holder.
func (s *Steps[R, X]) BeginBulk(ctx context.Context, batch []store.Ending, refuse func(store.Mode) error, has func(r store.Ref, seen R) bool) *Bulk[R, X] {
	b := &Bulk[R, X]{Steps: s, Ctx: mongobase.Bare(ctx), Coll: s.Base.Soft, Batch: batch, Answers: make([]store.Ended, len(batch)),
		has: has, names: make([]bson.D, len(batch)), rest: map[int]time.Duration{}, lined: map[int]bool{}}
	var all []int
	for i, e := range batch {
		if s.Gently(e.ID, e.Keep) == s.Base.Voted { // it would be missed if it were lost
			b.Coll = s.Base.Voted
		}
		err := refuse(e.Mode)
		if err == nil {
			b.names[i], err = s.Shape.Name(e.Ref)
		}
		if b.Answers[i].Err = err; err == nil {
			all = append(all, i)
		}
	}
	_, err := s.Base.Read(b.Ctx)
	var images map[int]Image[R]
	if err == nil {
		images, err = b.Find(all)
	}
	if err != nil {
		b.fail(all, mongoerr.NotApplied(err))
		return b
	}
	for _, i := range all {
		e, seen := batch[i], images[i].Record
		if !has(e.Ref, seen) {
			b.Answers[i].Err = GoneIfBroken(Why(images[i], e.ID))
			b.Gone = append(b.Gone, i)
			continue
		}
		if h, _ := seen.Holder(e.ID); e.Keep > 0 {
			b.rest[i] = s.Rest(e.ID, h.Since, e.Keep)
		}
		b.Saw(i, seen)
		if b.rest[i] > 0 {
			b.Kept = append(b.Kept, i)
		} else {
			b.Held = append(b.Held, i)
		}
	}
	return b
}

// Saw answers an entry by its document, without the holder unless that stays, and notes whether
// somebody is in line.
func (b *Bulk[R, X]) Saw(i int, seen R) {
	b.Answers[i] = EndedAs(seen)
	if h, holds := seen.Holder(b.Batch[i].ID); holds && b.rest[i] == 0 {
		b.Answers[i].Left -= max(1, h.Weight)
	}
	b.lined[i] = len(seen.Waiters()) > 0
}

func (b *Bulk[R, X]) Find(which []int) (map[int]Image[R], error) {
	if len(which) == 0 {
		return nil, nil
	}
	images, err := b.Steps.FindMany(b.Ctx, b.Steps.Base.Soft, b.refs(which))
	if err != nil {
		return nil, err
	}
	found := make(map[int]Image[R], len(which))
	for k, i := range which {
		found[i] = images[k]
	}
	return found, nil
}

func (b *Bulk[R, X]) refs(which []int) []store.Ref {
	refs := make([]store.Ref, len(which))
	for k, i := range which {
		refs[k] = b.Batch[i].Ref
	}
	return refs
}

// Take sends the releases of the held: alone for exclusive ones where nobody was seen in line, under
// the condition that nobody is; and leaving for the others, whose documents stay. Holders that are
// still there then have a line by now, because somebody joined it since the find, and leave it. If
// the find that tells of them fails, the outcome is unknown.
func (b *Bulk[R, X]) Take(alone, leaving Change) {
	var open, lined []int
	for _, i := range b.Held {
		if b.lined[i] || b.Batch[i].Mode != store.Exclusive {
			lined = append(lined, i)
		} else {
			open = append(open, i)
		}
	}
	if all := b.Write(open, alone); !all {
		images, err := b.Find(open)
		for _, i := range open {
			switch {
			case b.Answers[i].Err != nil:
			case err != nil:
				b.Answers[i].Err = err
			case b.has(b.Batch[i].Ref, images[i].Record):
				b.Saw(i, images[i].Record)
				lined = append(lined, i)
			}
		}
	}
	b.Write(lined, leaving)
}

func (b *Bulk[R, X]) Keep(release func(r store.Ref, t Tenure) (conditions []bson.E, update bson.D)) {
	if len(b.Kept) == 0 {
		return
	}
	terms := map[string]Tenure{}
	for _, i := range b.Kept {
		terms[b.Batch[i].ID] = b.Steps.Base.Tenure(b.rest[i])
	}
	b.Write(b.Kept, func(r store.Ref) ([]bson.E, bson.D) { return release(r, terms[r.ID]) })
	for _, i := range b.Kept { // as Release remembers the one that it leaves
		if r := b.Batch[i].Ref; b.Answers[i].Err == nil && r.Mode == store.Exclusive && b.Steps.Base.ManyClocks() {
			b.Steps.Base.Saw(r.Key, []mongobase.Mark{{ID: r.ID, Beat: terms[r.ID].Beat, TTL: terms[r.ID].TTL}}, b.Steps.Base.Clock.Now())
		}
	}
}

// Write sends the writes of some entries as one bulk, all of one kind: of two kinds an error could
// belong to the second alone. It answers those that failed, and reports whether all the others found
// their holders.
func (b *Bulk[R, X]) Write(which []int, change Change) (all bool) {
	models := make([]mongo.WriteModel, len(which))
	for k, i := range which {
		conditions, update := change(b.Batch[i].Ref)
		filter := append(slices.Clip(b.names[i]), conditions...)
		if update == nil {
			models[k] = b.Steps.Deletion(Release, filter)
		} else {
			models[k] = b.Steps.Model(Release, filter, update)
		}
	}
	done, failed, err := b.Steps.Base.Bulk(b.Ctx, b.Coll, models)
	if err != nil {
		b.fail(which, mongoerr.Mark(err))
		return true
	}
	for k, err := range failed {
		b.Answers[which[k]].Err = err
	}
	return done+len(failed) == len(which)
}

// End forgets the released leases, and returns the answers.
func (b *Bulk[R, X]) End() []store.Ended {
	for i, a := range b.Answers {
		if a.Err != nil {
			b.Answers[i] = store.Ended{Err: a.Err}
		}
		if a.Err == nil || store.IsVerdict(a.Err) {
			b.Steps.Memory.Forget(b.Batch[i].ID)
		}
	}
	return b.Answers
}

func (b *Bulk[R, X]) fail(which []int, err error) {
	for _, i := range which {
		b.Answers[i].Err = err
	}
}
