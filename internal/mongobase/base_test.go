package mongobase

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestTheDriverStillTellsWhetherItRetriesWrites(t *testing.T) {
	for _, want := range []bool{true, false} {
		client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1").SetRetryWrites(want))
		if err != nil {
			t.Fatal(err)
		}
		if got := retries(client); got != want {
			t.Errorf("retryWrites %v is read as %v: clean-ups are repeated for nothing", want, got)
		}
		_ = client.Disconnect(t.Context())
	}
}
