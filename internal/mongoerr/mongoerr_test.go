package mongoerr

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongolock/mongolock/store"
)

func raw(t *testing.T, d bson.D) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnErrorSaysNoMoreThanItsClass(t *testing.T) {
	onID := raw(t, bson.D{{Key: "keyPattern", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "keyValue", Value: bson.D{{Key: "_id", Value: "k"}}}})
	onOwner := raw(t, bson.D{{Key: "keyPattern", Value: bson.D{{Key: "owner", Value: 1}}}})
	onBoth := raw(t, bson.D{{Key: "keyValue", Value: bson.D{{Key: "_id", Value: 1}, {Key: "owner", Value: 1}}}})
	for name, c := range map[string]struct {
		err  error
		want Class
	}{
		"nothing":   {nil, Unknown},
		"a network": {errors.New("connection reset"), Unknown},
		"a timeout": {context.DeadlineExceeded, Unknown},

		"a duplicate _id":                  {mongo.CommandError{Code: 11000, Raw: onID}, DuplicateID},
		"a duplicate _id, wrapped":         {fmt.Errorf("x: %w", mongo.CommandError{Code: 11000, Raw: onID}), DuplicateID},
		"a duplicate of another field":     {mongo.CommandError{Code: 11000, Raw: onOwner}, Refused},
		"a duplicate of _id and more":      {mongo.CommandError{Code: 11000, Raw: onBoth}, Refused},
		"a duplicate _id by message":       {mongo.CommandError{Code: 11000, Message: `E11000 duplicate key error collection: a.locks index: _id_ dup key: { _id: "k" }`}, DuplicateID},
		"a duplicate _id by old message":   {mongo.CommandError{Code: 11000, Message: `E11000 duplicate key error index: a.locks.$_id_ dup key: { : "k" }`}, DuplicateID},
		"a duplicate owner by message":     {mongo.CommandError{Code: 11000, Message: `E11000 duplicate key error collection: a.locks index: owner_1 dup key: { owner: "index: _id_" }`}, Refused},
		"a duplicate key without an index": {mongo.CommandError{Code: 11000, Message: `E11000 duplicate key error collection: a.locks`}, DuplicateID},
		"a write's duplicate _id":          {mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 11000, Raw: onID}}}, DuplicateID},
		"a duplicate and a concern":        {mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 11000, Raw: onID}}, WriteConcernError: &mongo.WriteConcernError{Code: 64}}, Unknown},
		"a bulk's duplicate":               {mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 11000, Raw: onID}}}}, Unknown},
		"duplicate 11001":                  {mongo.CommandError{Code: 11001, Raw: onID}, Unknown},
		"a capped collection's duplicate":  {mongo.CommandError{Code: 12582, Raw: onID}, Unknown},

		"no right":          {mongo.CommandError{Code: 13, Name: "Unauthorized"}, Refused},
		"no login":          {mongo.CommandError{Code: 18, Name: "AuthenticationFailed"}, Refused},
		"a bad value":       {mongo.CommandError{Code: 2, Message: "unknown operator: $foo"}, Refused},
		"no retries":        {mongo.CommandError{Code: 20, Message: "Transaction numbers are only allowed on a replica set member or mongos"}, Refused},
		"a strict API":      {mongo.CommandError{Code: 323, Name: "APIStrictError"}, Refused},
		"no shard key":      {mongo.CommandError{Code: 61, Name: "ShardKeyNotFound"}, Refused},
		"a validator":       {mongo.CommandError{Code: 121, Name: "DocumentValidationFailure"}, Refused},
		"an unknown op":     {mongo.CommandError{Code: 59, Name: "CommandNotFound"}, NoCommand},
		"too large":         {mongo.CommandError{Code: 10334, Name: "BSONObjectTooLarge"}, TooLarge},
		"no journal":        {mongo.CommandError{Code: 2, Message: "cannot use 'j' option when a host does not have journaling enabled"}, NoJournal},
		"a note of journal": {mongo.CommandError{Code: 2, Message: "bad journal"}, Refused},

		"a retry's refusal, to be retried": {mongo.CommandError{Code: 13, Labels: []string{"RetryableWriteError"}}, Unknown},
		"not primary":                      {mongo.CommandError{Code: 10107, Name: "NotWritablePrimary"}, Unknown},
		"interrupted":                      {mongo.CommandError{Code: 11601, Name: "Interrupted"}, Unknown},
		"out of time":                      {mongo.CommandError{Code: 50, Name: "MaxTimeMSExpired"}, Unknown},
		"a mongos's fault":                 {mongo.CommandError{Code: 6, Name: "HostUnreachable"}, Unknown},
		"a write conflict":                 {mongo.CommandError{Code: 112, Name: "WriteConflict"}, Unknown},
		"an unsatisfied concern":           {mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64, Name: "WriteConcernFailed"}}, Unknown},
		"disconnected":                     {mongo.ErrClientDisconnected, NotSent},
		"no server":                        {fmt.Errorf("x: %w", topology.ServerSelectionError{Wrapped: context.DeadlineExceeded}), NotSent},
	} {
		if got := ClassOf(c.err); got != c.want {
			t.Errorf("%s: %d, not %d", name, got, c.want)
		}
		marked := Mark(c.err)
		applied := map[Class]bool{Unknown: true, DuplicateID: true, TooLarge: true}
		if errors.Is(marked, store.ErrNotApplied) == applied[c.want] {
			t.Errorf("%s: marked as %v", name, marked)
		}
		if errors.Is(marked, store.ErrTooLarge) != (c.want == TooLarge) {
			t.Errorf("%s: marked as %v", name, marked)
		}
	}
}

// The control: the driver's own test takes more than _id for a duplicate _id.
func TestTheDriversDuplicateKeyTestIsTooWide(t *testing.T) {
	err := mongo.CommandError{Code: 11000, Raw: raw(t, bson.D{{Key: "keyPattern", Value: bson.D{{Key: "owner", Value: 1}}}})}
	if !mongo.IsDuplicateKeyError(err) || ClassOf(err) == DuplicateID {
		t.Error("the driver tells them apart by now: use its test")
	}
}

func TestACodeIsFoundInAnyServerError(t *testing.T) {
	if !HasCode(fmt.Errorf("x: %w", mongo.CommandError{Code: 225}), 225) || HasCode(errors.New("225"), 225) {
		t.Error("code not told")
	}
}
