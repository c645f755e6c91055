package mongostore

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// The switches of internal/knob take a safety out, for the tests which show that it is needed.
// In an ordinary build they are constants, and none of this code is linked.

// tampered returns a command without the safeties that switches take out.
func tampered(what mongolease.Step, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (bson.D, bson.D, *options.FindOneAndUpdateOptionsBuilder) {
	byKey := what == mongolease.HandOver && knob.HandOverByKey || what == mongolease.Release && knob.ReleaseByKey || what == mongolease.Last && knob.DeleteWithoutRev
	filter = slices.DeleteFunc(slices.Clone(filter), func(e bson.E) bool {
		switch {
		case e.Key == "_id":
			return false
		case e.Key == fieldMark:
			return knob.MarkIgnored
		case byKey:
			return true
		case e.Key == fieldRev:
			return what == mongolease.TakeOver && knob.SwapWithoutRev
		case strings.HasSuffix(e.Key, "."+fieldBeat):
			return what == mongolease.TakeOver && knob.SwapByRevAlone || what == mongolease.Join && knob.JoinDropsTheLiving
		case e.Key == "$or": // no writer waits
			return knob.JoinIgnoresWord && (what == mongolease.Acquire || what == mongolease.Join || what == mongolease.Last)
		}
		return false
	})
	if what == mongolease.Renew && knob.RenewalUpserts && opts != nil {
		opts = mongobase.Upsert
	}
	if what == mongolease.Renew && knob.RenewalSets {
		update = append(bson.D{{Key: "$set", Value: update[0].Value}}, update[1:]...)
	}
	if what == mongolease.Renew && (knob.RenewalKeepsBeat || knob.BeatCounts) {
		update = withoutBeat(update)
	}
	if what == mongolease.Join && knob.JoinKeepsRev {
		set := slices.DeleteFunc(slices.Clone(update[0].Value.(bson.D)), func(e bson.E) bool { return e.Key == fieldRev })
		update = append(bson.D{{Key: "$set", Value: set}}, update[1:]...)
	}
	if what == mongolease.Acquire || what == mongolease.TakeOver || what == mongolease.HandOver {
		update = claimUpdate(update)
	}
	return filter, update, opts
}

// withoutBeat returns a renewal that leaves the beat as it is, or adds one to it.
func withoutBeat(update bson.D) bson.D {
	update = slices.Clone(update)
	for i, op := range update {
		set, _ := op.Value.(bson.D)
		at := slices.IndexFunc(set, func(e bson.E) bool { return strings.HasSuffix(e.Key, "."+fieldBeat) })
		if op.Key != "$set" || at < 0 {
			continue
		}
		update[i].Value = slices.Delete(slices.Clone(set), at, at+1)
		if knob.BeatCounts {
			update = append(update, bson.E{Key: "$inc", Value: bson.D{{Key: set[at].Key, Value: int64(1)}}})
		}
	}
	return update
}

// mapWith returns the map of holders as it was seen, with the claim added, for the control
// which shows why a join does not write the map.
func (r record) mapWith(c *claim, t mongolease.Tenure, over map[string]bool) bson.D {
	all := bson.D{{Key: c.ID, Value: c.Holder(t)}}
	for _, h := range r.Holders {
		if !over[h.ID] {
			old := claim{Claim: &mongolease.Claim{Claim: store.Claim{Owner: h.Owner, Note: h.Note}}}
			all = append(all, bson.E{Key: h.ID, Value: old.Holder(mongolease.Tenure{
				Since: h.Since, Until: h.ExpireAt, TTL: h.TTL, Beat: h.Beat, By: mongobase.Bearing{Epoch: h.Epoch},
			})})
		}
	}
	return all
}

// claimUpdate returns a claim's update as it is, unless a switch asks for one of the wrong
// kinds of token.
func claimUpdate(update bson.D) bson.D {
	if !knob.StampedToken && !knob.CounterToken {
		return update
	}
	if knob.StampedToken {
		return append(bson.D{update[0], {Key: "$currentDate", Value: bson.D{
			{Key: fieldAt, Value: true},
			{Key: fieldStamp, Value: bson.D{{Key: "$type", Value: "timestamp"}}},
		}}}, update[2:]...)
	}
	var set bson.D
	for _, e := range update[0].Value.(bson.D) {
		if e.Key != fieldLimit {
			set = append(set, e)
		}
	}
	return append(bson.D{{Key: "$set", Value: set}, {Key: "$inc", Value: bson.D{{Key: fieldLimit, Value: 1}}}, stampAt}, update[2:]...)
}

// withFaults gives the steps the faults that switches ask for.
func (s *Store) withFaults() {
	if knob.On {
		s.steps.Tamper = tampered
	}
	if knob.CounterToken || knob.StampedToken {
		s.steps.Token = func(image reply) int64 {
			r := readRecord(image.Image)
			return knob.Pick(knob.StampedToken, mongobase.Token(r.Stamp), int64(r.limit))
		}
	}
}

// lookFirst reads the document before the word is left, in place of the read after it.
func (s *Store) lookFirst(ctx context.Context, c *claim) reply {
	seen, err := s.find(ctx, c.Key)
	if err == nil {
		seen.Record.WantedUntil = s.base.Present().Add(c.Want + time.Hour)
	}
	return seen
}
