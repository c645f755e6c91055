package mongolease

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/store"
)

// MostUnseen is the greatest number of releases that are sent without a find before them: if
// one of their holders was gone, it may be impossible to tell which.
const MostUnseen = 32

// BeginUnseen begins a bulk of a few releases without reading their documents. It reports
// whether that is possible: on a server where one deletion removes many documents, for holders
// that are there according to memory, are not kept by MinHold, and are released for the first
// time.
func (s *Steps[R, X]) BeginUnseen(ctx context.Context, batch []store.Ending, has func(r store.Ref, seen R) bool) (b *Bulk[R, X], which []int, ok bool) {
	if len(batch) > MostUnseen || !s.Base.WritesMany() {
		return nil, nil, false
	}
	now := s.Base.Clock.Now()
	for _, e := range batch {
		if l, known := s.Memory.Of(e.ID); !known || l.Until <= now || e.Keep > 0 || e.Again {
			return nil, nil, false
		}
	}
	b = s.newBulk(ctx, batch, has)
	b.unseen = true
	for i, e := range batch {
		if b.names[i], b.Answers[i].Err = s.Shape.Name(e.Ref); b.Answers[i].Err == nil {
			which = append(which, i)
		}
	}
	b.Now = s.Base.Present()
	return b, which, true
}

// TakeUnseen releases holders whose documents were not read, with one command: it deletes those
// in which no word is left, and returns how many these were. If it was all of them, no process
// waited, and every holder was there. Otherwise a find shows the documents that are left, and
// they are released as locks that are waited for.
//
// If some were neither left nor deleted, they had gone before. Since it is not known which of
// the missing these are, each missing one is answered as possibly gone: no caller must believe
// that a lost lease was held to the end.
func (b *Bulk[R, X]) TakeUnseen(which []int, release Change) {
	missing := b.write(which, b.releases(release))
	lost := b.lost(which)
	if missing == 0 && !lost {
		return
	}
	b.unseen, b.joint = false, false // from now on, document by document
	left, found := b.left(which)
	if gone := missing - len(left); found && gone > 0 && !lost {
		for _, i := range which {
			if a := &b.Answers[i]; a.Err == nil && !a.Wanted {
				a.Err = fmt.Errorf("%w, or another was: of %d keys released together %d were not held any more", store.ErrGone, len(which), gone)
			}
		}
	}
	b.Write(left, b.releases(release))
}

// lost reports whether a bulk was not answered although there is time left, and then forgets
// the error. The driver does not send deletions of many documents a second time. A find shows
// the documents that are left, and these are written once more. A missing document counts as
// released, as after any release whose reply was lost; it had no word. If the first bulk comes
// late, it finds neither its own holder nor another's.
func (b *Bulk[R, X]) lost(which []int) bool {
	if !b.joint || b.Ctx.Err() != nil {
		return false
	}
	for _, i := range which {
		if err := b.Answers[i].Err; err == nil || store.IsCertain(err) || store.IsVerdict(err) {
			return false
		}
	}
	b.fail(which, nil)
	return true
}

// left returns those of some entries that still have their holders after a bulk, because a word
// was left in them. If the find fails, found is false and the outcome is unknown.
func (b *Bulk[R, X]) left(which []int) (left []int, found bool) {
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
	return left, err == nil
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

// joined is one deletion of several documents, which is much less work for a server. Many
// documents are deleted one by one: a document that a transaction blocks would hold up those in
// the same deletion.
//
// The filters differ only in the document and its holder. Common conditions are asked once,
// beside a list of the _ids, so that a server reads these documents and no others. Each
// acquisition has an ID of its own and is in one document, so the $or of holders need not name
// the documents again.
func joined(deletions []mongo.WriteModel) mongo.WriteModel {
	filters := make([]bson.D, len(deletions))
	for i, d := range deletions {
		filters[i] = d.(*mongo.DeleteOneModel).Filter.(bson.D)
	}
	names, holders := make(bson.A, len(filters)), make(bson.A, len(filters))
	for i, f := range filters {
		names[i], holders[i] = f[0].Value, bson.D{}
	}
	joint := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: names}}}}
	for k, e := range filters[0][1:] {
		if !slices.ContainsFunc(filters, func(f bson.D) bool { return !reflect.DeepEqual(f[k+1], e) }) {
			joint = append(joint, e)
			continue
		}
		for i, f := range filters {
			holders[i] = append(holders[i].(bson.D), f[k+1])
		}
	}
	return &mongo.DeleteManyModel{Filter: mongobase.ByID(append(joint, bson.E{Key: "$or", Value: holders}))}
}
