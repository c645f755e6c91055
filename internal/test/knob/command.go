package knob

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Command returns a command of the store on MongoDB without the safeties that switches take out.
// what is its step, as in package lease. opts is nil for a command of a bulk, and update for one that
// removes a document.
func Command(what string, filter, update bson.D, opts *options.FindOneAndUpdateOptionsBuilder) (bson.D, bson.D, *options.FindOneAndUpdateOptionsBuilder) {
	byKey := what == "hand over" && HandOverByKey || what == "release" && ReleaseByKey
	grants := what == "acquire" || what == "take over" || what == "join" || what == "offer"
	filter = slices.DeleteFunc(slices.Clone(filter), func(e bson.E) bool {
		switch {
		case e.Key == "_id":
			return false
		case e.Key == "mongolock":
			return MarkIgnored
		case byKey:
			return true
		case e.Key == "rev":
			return what == "take over" && SwapWithoutRev
		case strings.HasSuffix(e.Key, ".beat"):
			return what == "take over" && SwapByRevAlone || what == "join" && JoinDropsTheLiving
		case e.Key == "line", strings.HasPrefix(e.Key, "line."):
			return grants && (GrantOutOfTurn || LineIgnored) || !grants && ReleaseDropsLine && what != "wait" && what != "step out"
		case strings.HasPrefix(e.Key, "waits."):
			return grants && (StalePassedBlindly || LineIgnored)
		case e.Key == "holders":
			return what == "offer" && OfferUncompared || what == "last" && LastDeletesHeld
		case e.Key == "$or": // nobody holds the key, or readers do
			return what == "join" && OfferUncompared
		}
		return false
	})
	switch what {
	case "release":
		if ReleaseKeepsRev {
			update = without(update, "$inc")
		}
	case "renew":
		if RenewalUpserts && opts != nil {
			opts = options.FindOneAndUpdate().SetReturnDocument(options.After).SetUpsert(true)
		}
		if RenewalSets {
			set := slices.Concat(update[0].Value.(bson.D), update[1].Value.(bson.D))
			update = append(bson.D{{Key: "$set", Value: set}}, update[2:]...)
		}
		if RenewalKeepsBeat || BeatCounts {
			update = withoutBeat(update)
		}
	case "join":
		if JoinKeepsRev {
			update = append(bson.D{{Key: "$set", Value: without(update[0].Value.(bson.D), "rev")}}, update[1:]...)
		}
	case "acquire", "take over", "hand over", "offer":
		switch {
		case StampedToken:
			update = append(bson.D{update[0], {Key: "$currentDate", Value: bson.D{
				{Key: "at", Value: true}, {Key: "stamp", Value: bson.D{{Key: "$type", Value: "timestamp"}}},
			}}}, update[2:]...)
		case CounterToken:
			set := without(update[0].Value.(bson.D), "limit")
			update = append(bson.D{{Key: "$set", Value: set}, {Key: "$inc", Value: bson.D{{Key: "limit", Value: 1}}}}, update[1:]...)
		}
	}
	return filter, update, opts
}

func without(d bson.D, key string) bson.D {
	return slices.DeleteFunc(slices.Clone(d), func(e bson.E) bool { return e.Key == key })
}

// withoutBeat returns a renewal that leaves the beat as it is, or adds one to it.
func withoutBeat(update bson.D) bson.D {
	update = slices.Clone(update)
	for i, op := range update {
		set, _ := op.Value.(bson.D)
		at := slices.IndexFunc(set, func(e bson.E) bool { return strings.HasSuffix(e.Key, ".beat") })
		if op.Key != "$set" || at < 0 {
			continue
		}
		update[i].Value = slices.Delete(slices.Clone(set), at, at+1)
		if BeatCounts {
			update = append(update, bson.E{Key: "$inc", Value: bson.D{{Key: set[at].Key, Value: int64(1)}}})
		}
	}
	return update
}
