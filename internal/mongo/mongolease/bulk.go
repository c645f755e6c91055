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

	has   func(r store.Ref, seen R) bool
	names []bson.D              // of the documents
	rest  map[int]time.Duration // of MinHold
	lined map[int]bool          // somebody was seen in line
}

// A Change says what a release does to the document that has its holder: under which
// conditions, and by which update. Without an update the document is removed.
type Change func(r store.Ref) (conditions []bson.E, update bson.D)

// A Sorted bulk lists its entries, by their places in the batch, according to the command that
// they need.
type Sorted struct {
	Held []int // to be released
	Kept []int // stay for some time, under MinHold
	Gone []int // have no holder, and are answered
}

// BeginBulk begins a bulk, and reads the documents of its entries. refuse tells which entries
// the store does not accept; has tells whether a document that was read has the entry's holder.
func (s *Steps[R, X]) BeginBulk(ctx context.Context, batch []store.Ending, refuse func(store.Mode) error, has func(r store.Ref, seen R) bool) (*Bulk[R, X], Sorted) {
	b := &Bulk[R, X]{Steps: s, Ctx: mongobase.Bare(ctx), Coll: s.Base.Soft, Batch: batch, Answers: make([]store.Ended, len(batch)),
		has: has, names: make([]bson.D, len(batch)), rest: map[int]time.Duration{}, lined: map[int]bool{}}
	for _, e := range batch {
		if s.Gently(e.ID, e.Keep) == s.Base.Voted { // it would be missed if it were lost
			b.Coll = s.Base.Voted
		}
	}
	var all []int
	for i, e := range batch {
		err := refuse(e.Mode)
		if err == nil {
			b.names[i], err = s.Shape.Name(e.Ref)
		}
		if b.Answers[i].Err = err; err == nil {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return b, Sorted{}
	}
	_, err := s.Base.Read(b.Ctx)
	var images map[int]Image[R]
	if err == nil {
		images, err = b.Find(all)
	}
	if err != nil {
		b.fail(all, mongoerr.NotApplied(err))
		return b, Sorted{}
	}
	return b, b.sort(all, images)
}

// sort decides what is to be sent, and answers the entries that have no holder.
func (b *Bulk[R, X]) sort(all []int, images map[int]Image[R]) (s Sorted) {
	for _, i := range all {
		e, image := b.Batch[i], images[i]
		if !b.has(e.Ref, image.Record) {
			b.Answers[i].Err = GoneIfBroken(Why(image, e.ID))
			s.Gone = append(s.Gone, i)
			continue
		}
		b.Saw(i, image.Record)
		h, _ := image.Record.Holder(e.ID)
		if rest := b.Steps.Rest(e.ID, h.Since, e.Keep); e.Keep > 0 && rest > 0 {
			b.rest[i] = rest
			s.Kept = append(s.Kept, i)
		} else {
			b.Answers[i].Left -= max(1, h.Weight)
			s.Held = append(s.Held, i)
		}
	}
	return s
}

// Saw answers an entry by its document, and notes whether somebody is in line.
func (b *Bulk[R, X]) Saw(i int, seen R) {
	b.Answers[i] = EndedAs(seen)
	b.lined[i] = len(seen.Waiters()) > 0
}

// Find reads the documents of some entries.
func (b *Bulk[R, X]) Find(which []int) (map[int]Image[R], error) {
	if len(which) == 0 {
		return nil, nil
	}
	refs := make([]store.Ref, len(which))
	for k, i := range which {
		refs[k] = b.Batch[i].Ref
	}
	images, err := b.Steps.FindMany(b.Ctx, b.Steps.Base.Soft, refs)
	if err != nil {
		return nil, err
	}
	found := make(map[int]Image[R], len(which))
	for k, i := range which {
		found[i] = images[k]
	}
	return found, nil
}

// Take sends the releases of some entries: alone where nobody was seen in line, under the
// condition that nobody is; and leaving for the others, whose documents stay. Holders that are
// still there then have a line by now, and leave it.
func (b *Bulk[R, X]) Take(which []int, alone, leaving Change) {
	var open, lined []int
	for _, i := range which {
		if b.lined[i] {
			lined = append(lined, i)
		} else {
			open = append(open, i)
		}
	}
	if all := b.Write(open, b.changes(alone)); !all {
		lined = append(lined, b.left(open)...)
	}
	b.Write(lined, b.changes(leaving))
}

// left returns those of some entries that still have their holders after a bulk, because somebody
// joined the line since the find. If another find fails, the outcome is unknown.
func (b *Bulk[R, X]) left(which []int) (left []int) {
	images, err := b.Find(which)
	for _, i := range which {
		switch {
		case b.Answers[i].Err != nil:
		case err != nil:
			b.Answers[i].Err = err
		case b.has(b.Batch[i].Ref, images[i].Record):
			b.Saw(i, images[i].Record)
			h, _ := images[i].Record.Holder(b.Batch[i].ID)
			b.Answers[i].Left -= max(1, h.Weight)
			left = append(left, i)
		}
	}
	return left
}

func (b *Bulk[R, X]) changes(change Change) func(i int) mongo.WriteModel {
	return func(i int) mongo.WriteModel {
		conditions, update := change(b.Batch[i].Ref)
		return b.model(i, conditions, update)
	}
}

// Keep sends the releases under MinHold.
func (b *Bulk[R, X]) Keep(which []int, release func(r store.Ref, t Tenure) (conditions []bson.E, update bson.D)) {
	refs := make([]store.Ref, len(which))
	for k, i := range which {
		refs[k] = b.Batch[i].Ref
	}
	at, drawn, err := b.Steps.timesOf(b.Ctx, refs)
	if err != nil {
		b.fail(which, mongoerr.NotApplied(err))
		return
	}
	terms := map[int]Tenure{}
	for k, i := range which {
		terms[i] = b.Steps.tenureBy(at[k], drawn, b.rest[i])
	}
	b.Write(which, func(i int) mongo.WriteModel {
		conditions, update := release(b.Batch[i].Ref, terms[i])
		return b.model(i, conditions, update)
	})
}

func (b *Bulk[R, X]) model(i int, conditions []bson.E, update bson.D) mongo.WriteModel {
	filter := append(slices.Clip(b.names[i]), conditions...)
	if update == nil {
		return b.Steps.Deletion(Release, filter)
	}
	return b.Steps.Model(Release, filter, update)
}

// Write sends the writes of some entries, and answers those that failed. It reports whether all
// the others found their holders.
func (b *Bulk[R, X]) Write(which []int, model func(i int) mongo.WriteModel) (all bool) {
	models := make([]mongo.WriteModel, len(which))
	for k, i := range which {
		models[k] = model(i)
	}
	done, failed, err := b.Send(models)
	if err != nil {
		b.fail(which, mongoerr.Mark(err))
		return true
	}
	for k, err := range failed {
		b.Answers[which[k]].Err = err
	}
	return done+len(failed) == len(which)
}

// Send sends writes of one kind as one bulk: of two bulks, an error could belong to the second
// alone. It returns how many found a document.
func (b *Bulk[R, X]) Send(models []mongo.WriteModel) (done int, failed map[int]error, err error) {
	if len(models) == 0 {
		return 0, nil, nil
	}
	return b.Steps.Base.Bulk(b.Ctx, b.Coll, models)
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

// fail answers entries with an error.
func (b *Bulk[R, X]) fail(which []int, err error) {
	for _, i := range which {
		b.Answers[i].Err = err
	}
}
