package mongolease

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/store"
)

// MostUnseen is how many releases are sent without a find before them, at most: if one
// of their holders was gone it may not be known which.
const MostUnseen = 32

// BeginUnseen begins a bulk of a few releases without reading their documents. It reports
// whether that can be done: for holders that are there, by what is remembered of them, stay
// under no MinHold, and are released for the first time, on a server where one deletion
// removes many documents.
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

// TakeUnseen releases holders whose documents nobody has read, with one command: it deletes
// those in which no word is left. How many these were it answers, and if it was all, nobody
// waited, and every holder was there. Else a find shows what is left, which is released as
// somebody's who is waited for.
//
// If some are neither left nor were deleted, these had gone before. Which of the absent they
// are is not known, so each of them answers that it may be gone: nobody is told of a lease
// that it was there to the end when it was not.
func (b *Bulk[R, X]) TakeUnseen(which []int, release Change) {
	missing := b.write(which, b.releases(release))
	lost := b.lost(which)
	if missing == 0 && !lost {
		return
	}
	b.unseen, b.joint = false, false // what is left, document by document
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

// lost reports whether a bulk was not answered though there is time left, and forgets the
// error then. The driver does not send deletions of many documents a second time. A find
// tells what is left, and that is written once more. What is absent counts as released, as
// after any release whose reply was lost; nobody had left word in it. If the first bulk comes
// late, it finds no holder of its own, and no other.
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

// left are those of some entries that still have their holders, after a bulk: somebody left
// word. Without an answer what became of the entries is not known.
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

// releases makes the writes that release entries: of those that nobody is known to wait for
// under the condition that no word was left since.
func (b *Bulk[R, X]) releases(release Change) func(i int) mongo.WriteModel {
	return func(i int) mongo.WriteModel {
		conditions, update := release(b.Batch[i].Ref)
		if !b.Answers[i].Wanted && !knob.BulkIgnoresWord {
			conditions = append(conditions, b.Steps.Shape.Unworded(b.Now)...)
		}
		return b.model(i, conditions, update)
	}
}

// joined is one deletion of the documents of several, with which a server has far less work. Of
// many each is deleted by itself: a document that a transaction blocks would keep those in the
// same deletion.
//
// The filters are alike but for the document and its holder. What all ask is asked once, beside
// the _ids, so that a server reads these documents and no others. An ID is that of one
// acquisition, and so of one document: in which of them it stands need not be said.
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
	if knob.BulkByKey {
		return &mongo.DeleteManyModel{Filter: joint[:1]}
	}
	return &mongo.DeleteManyModel{Filter: mongobase.ByID(append(joint, bson.E{Key: "$or", Value: holders}))}
}
