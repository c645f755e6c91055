package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/internal/mongolease"
	"github.com/mongolock/mongolock/store"
)

// ReleaseMany releases holders with one find, which shows who waits, and one bulk. Every
// write of the bulk names the ID of its acquisition, as a single release does.
//
// A bulk does not answer with images, so a document is deleted under the condition that no
// word was left in it since the find. Those that are still there then are found and deleted
// with two commands more. Holders of shared keys leave first; a find and a bulk delete the
// documents in which nobody is left.
func (s *Store) ReleaseMany(ctx context.Context, batch []store.Ending) []store.Ended {
	b := &bulk{Store: s, ctx: mongobase.Bare(ctx), batch: batch, answers: make([]store.Ended, len(batch)), coll: s.base.Soft, now: s.base.Present()}
	all := make([]int, 0, len(batch))
	for i, e := range batch {
		if b.answers[i].Err = knownMode(e.Mode); b.answers[i].Err == nil {
			all = append(all, i)
		}
		if s.steps.Gently(e.ID) == s.base.Voted { // one of them would be missed if it were lost
			b.coll = s.base.Voted
		}
	}
	if len(all) == 0 {
		return b.answers
	}
	images, err := b.find(all)
	if err != nil {
		b.fail(all, mongoerr.NotApplied(err))
		return b.answers
	}
	b.release(b.sorted(all, images))
	for i, a := range b.answers {
		if a.Err == nil || store.IsVerdict(a.Err) {
			s.steps.Memory.Forget(batch[i].ID)
		}
	}
	return b.answers
}

// A bulk is many releases on their way.
type bulk struct {
	*Store
	ctx     context.Context
	coll    *mongo.Collection
	now     time.Time // the server's, when it began
	batch   []store.Ending
	answers []store.Ended
}

// The releases of a bulk, by what has to be sent for them.
type releases struct {
	removed []int                 // the only holder of its document
	kept    []int                 // stays for some time, under MinHold
	rest    map[int]time.Duration // of MinHold
	leaving []int                 // shares its document
	left    []int                 // left it before, and perhaps did not delete it
}

// find reads the documents of some entries.
func (b *bulk) find(which []int) (map[int]reply, error) {
	if len(which) == 0 {
		return nil, nil
	}
	refs := make([]store.Ref, len(which))
	for k, i := range which {
		refs[k] = b.batch[i].Ref
	}
	images, err := layout{b.Store}.FindMany(b.ctx, b.base.Soft, refs)
	if err != nil {
		return nil, err
	}
	found := make(map[int]reply, len(which))
	for k, i := range which {
		found[i] = images[k]
	}
	return found, nil
}

func (b *bulk) fail(which []int, err error) {
	for _, i := range which {
		b.answers[i].Err = err
	}
}

// sorted tells what is to be sent, and answers the entries that have no holder.
func (b *bulk) sorted(all []int, images map[int]reply) (r releases) {
	r.rest = map[int]time.Duration{}
	for _, i := range all {
		e, image := b.batch[i], images[i].Record
		b.answers[i].Wanted = image.Wanted(b.now)
		h, holds := image.Holder(e.ID)
		rest := b.steps.Rest(e.ID, h.Since, e.Keep)
		switch {
		case !holds || image.mode != e.Mode:
			b.answers[i] = store.Ended{Err: mongolease.GoneIfBroken(mongolease.Why(images[i], e.ID))}
			if e.Mode != store.Exclusive {
				r.left = append(r.left, i)
			}
		case e.Keep > 0 && rest > 0:
			r.kept, r.rest[i] = append(r.kept, i), rest
		case e.Mode == store.Exclusive:
			r.removed = append(r.removed, i)
		default:
			r.leaving = append(r.leaving, i)
		}
	}
	return r
}

func (b *bulk) release(r releases) {
	b.remove(r.removed)
	b.answered(r.kept, b.models(r.kept, func(i int) mongo.WriteModel {
		filter, update := b.laterRelease(b.batch[i].Ref, r.rest[i])
		return layout{}.Model(mongolease.Release, filter, update)
	}))
	b.answered(r.leaving, b.models(r.leaving, func(i int) mongo.WriteModel {
		filter, update := leaving(b.batch[i].Ref)
		return layout{}.Model(mongolease.Leave, filter, update)
	}))
	b.last(append(r.left, r.leaving...))
}

// remove deletes the documents of exclusive holders.
func (b *bulk) remove(which []int) {
	deletion := func(i int) mongo.WriteModel {
		r := b.batch[i].Ref
		filter := ours(r.Key, exclusively, exists(fieldHolders+"."+r.ID))
		if !b.answers[i].Wanted {
			filter = append(filter, wordless(b.now)...)
		}
		return b.deletion(mongolease.Release, filter)
	}
	if all := b.answered(which, b.models(which, deletion)); all {
		return
	}
	var waited []int // somebody left word since the find
	images, err := b.find(which)
	for _, i := range which {
		switch _, holds := images[i].Record.Holder(b.batch[i].ID); {
		case b.answers[i].Err != nil:
		case err != nil:
			b.answers[i].Err = err
		case holds && images[i].Record.mode == store.Exclusive:
			b.answers[i].Wanted = true
			waited = append(waited, i)
		}
	}
	b.answered(waited, b.models(waited, deletion))
}

// last deletes, of the documents that some entries left, those that have no holders any
// more. One that has a writer's word stays, as after a single leave.
func (b *bulk) last(which []int) {
	images, err := b.find(which)
	var empty []record
	seen := map[string]bool{}
	for _, i := range which {
		image := images[i].Record
		switch gone := errors.Is(b.answers[i].Err, store.ErrGone); {
		case b.answers[i].Err != nil && !gone:
			continue
		case err != nil:
			b.answers[i].Err = err
			continue
		case !gone:
			b.answers[i].Wanted = b.answers[i].Wanted || image.Wanted(b.now)
		}
		if images[i].Found() && !seen[image.key] && image.Foreign() == nil && image.mode != store.Exclusive && len(image.holders) == 0 {
			seen[image.key] = true
			empty = append(empty, image)
		}
	}
	now := b.base.Now()
	var models, stay []mongo.WriteModel
	for _, image := range empty {
		named := bson.E{Key: fieldRev, Value: image.rev}
		switch {
		case image.exclusiveWanted.After(now.Earliest):
			stay = append(stay, layout{}.Model(mongolease.Last, ours(image.key, named), bson.D{
				{Key: "$set", Value: bson.D{{Key: fieldExpireAt, Value: mongobase.Date(now.Earliest)}}}, stampAt,
			}))
		case image.Wanted(b.now):
			models = append(models, b.deletion(mongolease.Last, ours(image.key, noWriter(named, now)...)))
		default:
			models = append(models, b.deletion(mongolease.Last, ours(image.key, append(wordless(b.now), named)...)))
		}
	}
	_, _, _ = b.send(stay) // what fails here is in nobody's way
	if done, _, err := b.send(models); err == nil && done < len(models) {
		b.lastAgain(which, seen)
	}
}

// lastAgain ends, one by one, the few documents in which a word was left since they were
// found empty.
func (b *bulk) lastAgain(which []int, empty map[string]bool) {
	images, err := b.find(which)
	if err != nil {
		return
	}
	for _, i := range which {
		image := images[i].Record
		if !empty[image.key] || len(image.holders) > 0 {
			continue
		}
		b.Store.last(b.ctx, image.key, &image, b.coll)
		b.answers[i].Wanted = b.answers[i].Err == nil && image.Wanted(b.now)
	}
}

// wordless is the condition that nobody waits.
func wordless(now time.Time) []bson.E {
	none := bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: mongobase.Date(now)}}}}
	return []bson.E{{Key: fieldWanted, Value: none}, {Key: fieldExclusiveWanted, Value: none}}
}

func (b *bulk) models(which []int, model func(i int) mongo.WriteModel) []mongo.WriteModel {
	models := make([]mongo.WriteModel, len(which))
	for k, i := range which {
		models[k] = model(i)
	}
	return models
}

func (b *bulk) deletion(what mongolease.Step, filter bson.D) mongo.WriteModel {
	if knob.On {
		filter, _, _ = tampered(what, filter, nil, nil)
	}
	return &mongo.DeleteOneModel{Filter: filter}
}

// answered sends the commands of some entries, and answers those that failed. It reports
// whether every one that did not fail found its holder.
func (b *bulk) answered(which []int, models []mongo.WriteModel) (all bool) {
	done, failed, err := b.send(models)
	if err != nil {
		b.fail(which, mongoerr.Mark(err))
		return true
	}
	for k, err := range failed {
		b.answers[which[k]].Err = err
	}
	return done+len(failed) == len(which)
}

// send sends commands of one kind as one bulk: if there were two, an error could be that of
// the second alone. It answers how many found a document.
func (b *bulk) send(models []mongo.WriteModel) (done int, failed map[int]error, err error) {
	if len(models) == 0 {
		return 0, nil, nil
	}
	result, err := b.base.BulkWrite(b.ctx, b.coll, models)
	var e mongo.BulkWriteException
	if errors.As(err, &e) && e.WriteConcernError == nil && result != nil {
		failed = make(map[int]error, len(e.WriteErrors))
		for _, w := range e.WriteErrors {
			failed[w.Index] = fmt.Errorf("release refused: %s (%d)", w.Message, w.Code)
		}
		err = nil
	}
	if err != nil {
		return 0, nil, err
	}
	return int(result.DeletedCount + result.MatchedCount), failed, nil
}
