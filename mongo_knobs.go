package mongolock

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
)

// What the test-only switches need. In an ordinary build they are constants, and
// nothing here is reached.

func mongoKnobs() mongoFaults {
	return mongoFaults{
		dropTheLiving:      knob.SwapByRevAlone,
		deadlineFromOld:    knob.DeadlineFromSample,
		undoElsewhere:      knob.UndoElsewhere,
		releaseByKeyAlone:  knob.ReleaseByKey,
		handOverByKey:      knob.HandOverByKey,
		joinWritesMap:      knob.JoinWritesMap,
		joinKeepsRev:       knob.JoinKeepsRev,
		joinIgnoresWord:    knob.JoinIgnoresWord,
		joinDropsTheLiving: knob.JoinDropsTheLiving,
		deleteWithoutRev:   knob.DeleteWithoutRev,
		undoDeletes:        knob.UndoDeletes,
	}
}

// mongoNever is right, unless a switch says wrong.
func mongoNever[T any](wrong T, is bool, right T) T {
	if is {
		return wrong
	}
	return right
}

// mongoToken is a claim's update as it is, unless a switch asks for one of the
// tokens that will not do.
func mongoToken(update bson.D) bson.D {
	if !knob.StampedToken && !knob.CounterToken {
		return update
	}
	if knob.StampedToken {
		return bson.D{update[0], {Key: "$currentDate", Value: bson.D{
			{Key: fieldAt, Value: true},
			{Key: fieldStamp, Value: bson.D{{Key: "$type", Value: "timestamp"}}},
		}}}
	}
	var set bson.D
	for _, e := range update[0].Value.(bson.D) {
		if e.Key != fieldLimit {
			set = append(set, e)
		}
	}
	return bson.D{{Key: "$set", Value: set}, {Key: "$inc", Value: bson.D{{Key: fieldLimit, Value: 1}}}, stampAt}
}

func mongoWrongToken(r mongoRecord) int64 {
	if knob.StampedToken {
		return mongobase.Token(r.stamp)
	}
	return int64(r.limit)
}

// lookFirst is a look before the word is left, taken for one after it.
func (m *mongoStore) lookFirst(ctx context.Context, c *mongoClaim) mongoReply {
	seen, err := m.find(ctx, c.Key)
	if err == nil {
		seen.record.wanted = m.base.Present().Add(c.Want + time.Hour)
	}
	return seen
}
