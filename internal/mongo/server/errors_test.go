package server

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/mongolock/mongolock/store"
)

func raw(t *testing.T, d bson.D) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(d)
	require.NoError(t, err)
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

		"no right":       {mongo.CommandError{Code: 13, Name: "Unauthorized"}, Refused},
		"no login":       {mongo.CommandError{Code: 18, Name: "AuthenticationFailed"}, Refused},
		"a bad value":    {mongo.CommandError{Code: 2, Message: "unknown operator: $foo"}, Refused},
		"no retries":     {mongo.CommandError{Code: 20, Message: "Transaction numbers are only allowed on a replica set member or mongos"}, Refused},
		"a strict API":   {mongo.CommandError{Code: 323, Name: "APIStrictError"}, Refused},
		"no shard key":   {mongo.CommandError{Code: 61, Name: "ShardKeyNotFound"}, Refused},
		"a validator":    {mongo.CommandError{Code: 121, Name: "DocumentValidationFailure"}, Refused},
		"a view":         {mongo.CommandError{Code: 166, Name: "CommandNotSupportedOnView"}, Refused},
		"a time series":  {mongo.CommandError{Code: 7314600, Message: "Retryable findAndModify on a timeseries is not supported"}, Refused},
		"an unknown op":  {mongo.CommandError{Code: 59, Name: "CommandNotFound"}, NoCommand},
		"too large":      {mongo.CommandError{Code: 10334, Name: "BSONObjectTooLarge"}, TooLarge},
		"a little more":  {mongo.CommandError{Code: 17419, Message: "Resulting document after update is larger than 16777216"}, TooLarge},
		"on an insert":   {mongo.CommandError{Code: 17420, Message: "Document to upsert is larger than 16777216"}, TooLarge},
		"in 8.x":         {mongo.CommandError{Code: 7655103, Message: "Document to upsert is larger than 16777216"}, TooLarge},
		"blocked writes": {mongo.CommandError{Code: 371, Name: "UserWritesBlocked"}, Refused},
		"no journal":     {mongo.CommandError{Code: 2, Message: "cannot use 'j' option when a host does not have journaling enabled"}, NoJournal},
		"a bad journal":  {mongo.CommandError{Code: 2, Message: "bad journal"}, Refused},

		"a retry's refusal, to be retried": {mongo.CommandError{Code: 13, Labels: []string{"RetryableWriteError"}}, Unknown},
		"not primary":                      {mongo.CommandError{Code: 10107, Name: "NotWritablePrimary"}, Unknown},
		"interrupted":                      {mongo.CommandError{Code: 11601, Name: "Interrupted"}, Unknown},
		"out of time":                      {mongo.CommandError{Code: 50, Name: "MaxTimeMSExpired"}, Unknown},
		"a mongos's fault":                 {mongo.CommandError{Code: 6, Name: "HostUnreachable"}, Unknown},
		"a write conflict":                 {mongo.CommandError{Code: 112, Name: "WriteConflict"}, Unknown},
		"an unsatisfied concern":           {mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64, Name: "WriteConcernFailed"}}, Unknown},
		"an overload, after any first one": {mongo.CommandError{Code: 462, Name: "IngressRequestRateLimitExceeded"}, Unknown},
		"a cleared pool":                   {mongo.CommandError{Labels: []string{"TransientTransactionError"}, Message: "connection pool for x was cleared"}, Unknown},

		"disconnected":  {fmt.Errorf("x: %w", mongo.ErrClientDisconnected), Disconnected},
		"no server":     {fmt.Errorf("x: %w", topology.ServerSelectionError{Wrapped: context.DeadlineExceeded}), NotSent},
		"no connection": {fmt.Errorf("x: %w", topology.WaitQueueTimeoutError{Wrapped: context.DeadlineExceeded}), NotSent},
	} {
		assert.Equal(t, c.want, ClassOf(c.err), name)
		assert.Equal(t, c.want != NotSent && c.want != Disconnected, c.want.Sent(), name)
		marked := Classified(c.err)
		unmarked := map[Class]bool{Unknown: true, DuplicateID: true, TooLarge: true}
		assert.Equal(t, !unmarked[c.want], errors.Is(marked, store.ErrNotApplied), "%s: not applied: %v", name, marked)
		assert.Equal(t, c.want == TooLarge, errors.Is(marked, store.ErrTooLarge), "%s: too large: %v", name, marked)
		assert.Equal(t, c.want == Disconnected, errors.Is(marked, store.ErrDisconnected), "%s: disconnected: %v", name, marked)
	}
}

// Callers that know that nothing was applied still tell when the client is disconnected.
func TestADisconnectedClientIsToldBesideNotApplied(t *testing.T) {
	err := NotApplied(fmt.Errorf("hello: %w", mongo.ErrClientDisconnected))
	assert.ErrorIs(t, err, store.ErrDisconnected)
	assert.ErrorIs(t, err, store.ErrNotApplied)
	assert.NotErrorIs(t, NotApplied(errors.New("x")), store.ErrDisconnected)
}

// The driver's own test takes more than _id for a duplicate _id.
func TestControlTheDriversDuplicateKeyTestIsTooWide(t *testing.T) {
	err := mongo.CommandError{Code: 11000, Raw: raw(t, bson.D{{Key: "keyPattern", Value: bson.D{{Key: "owner", Value: 1}}}})}
	assert.True(t, mongo.IsDuplicateKeyError(err), "the driver tells them apart by now: use its test")
	assert.NotEqual(t, DuplicateID, ClassOf(err))
}
