package server

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestTheDriverStillTellsWhetherItRetriesWrites(t *testing.T) {
	for _, want := range []bool{true, false} {
		client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1").SetRetryWrites(want))
		require.NoError(t, err)
		assert.Equal(t, want, Retries(client), "if it is read wrongly clean-ups are repeated for nothing")
		_ = client.Disconnect(t.Context())
	}
}
