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

// A Bulk is many releases that are under way, as of a store.BulkReleaser: one find, which shows
// the waiters, and one bulk. Every write of the bulk names the ID of its acquisition, as a
// single release does.
//
// A bulk does not return images. So its writes have the condition that no word was left in
// their documents since the find. Those that are still there afterwards are found and written
// again, with two more commands: see Take.
type Bulk[R Record, X any] struct {
	Steps   *Steps[R, X]
	Ctx     context.Context
	Coll    *mongo.Collection
	Now     time.Time // the server's time when it began
	Batch   []store.Ending
	Answers []store.Ended

	has   func(r store.Ref, seen R) bool
	names []bson.D              // of the documents
	rest  map[int]time.Duration // of MinHold
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
		has: has, names: make([]bson.D, len(batch)), rest: map[int]time.Duration{}}
	for _, e := range batch {
		if s.Gently(e.ID) == s.Base.Voted { // it would be missed if it were lost
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
	b.Now = s.Base.Present()
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
		b.Answers[i].Wanted = image.Record.Wanted(b.Now)
		h, _ := image.Record.Holder(e.ID)
		if rest := b.Steps.Rest(e.ID, h.Since, e.Keep); e.Keep > 0 && rest > 0 {
			b.rest[i] = rest
			s.Kept = append(s.Kept, i)
		} else {
			s.Held = append(s.Held, i)
		}
	}
	return s
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

// Take sends the releases of some entries, each under the condition that no word was left since
// the find. Holders that are still there then are found and released once more.
func (b *Bulk[R, X]) Take(which []int, release Change) {
	if all := b.Write(which, b.releases(release)); !all {
		b.Write(b.left(which), b.releases(release))
	}
}

// left returns those of some entries that still have their holders after a bulk, because a word
// was left in their documents since the find. If another find fails, the outcome is unknown.
func (b *Bulk[R, X]) left(which []int) (left []int) {
	images, err := b.Find(which)
	for _, i := range which {
		switch {
		case b.Answers[i].Err != nil:
		case err != nil:
			b.Answers[i].Err = err
		case b.has(b.Batch[i].Ref, images[i].Record):
			b.Answers[i].Wanted = true
			left = append(left, i)
		}
	}
	return left
}

// releases makes the writes that release entries. If no waiter is known, the write has the
// condition that no word was left since.
func (b *Bulk[R, X]) releases(release Change) func(i int) mongo.WriteModel {
	return func(i int) mongo.WriteModel {
		conditions, update := release(b.Batch[i].Ref)
		if !b.Answers[i].Wanted {
			conditions = append(conditions, b.Steps.Shape.Unworded(b.Now)...)
		}
		return b.model(i, conditions, update)
	}
}

// Keep sends the releases under MinHold.
func (b *Bulk[R, X]) Keep(which []int, release func(r store.Ref, rest time.Duration) (conditions []bson.E, update bson.D)) {
	b.Write(which, func(i int) mongo.WriteModel {
		conditions, update := release(b.Batch[i].Ref, b.rest[i])
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
