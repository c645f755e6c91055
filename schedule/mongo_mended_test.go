package schedule_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/store"
)

// A person has changed the document of a job that is on the schedule of a process. The job does
// not run, that is told, and after Forget it runs again, without a restart.
func TestMongoAJobWhoseDocumentWasMendedByHandIsTold(t *testing.T) {
	testserver.URI(t)
	for name, mend := range map[string]bson.D{
		"decided is text":  {{Key: "$set", Value: bson.D{{Key: "decided", Value: "2026-11-25"}}}},
		"decided is gone":  {{Key: "$unset", Value: bson.D{{Key: "decided", Value: ""}}}},
		"no busy, no runs": {{Key: "$set", Value: bson.D{{Key: "busy", Value: bson.D{{Key: "id", Value: "x"}}}}}},
		"paused is false":  {{Key: "$set", Value: bson.D{{Key: "paused", Value: false}}}},
		"another version":  {{Key: "$set", Value: bson.D{{Key: "schedule", Value: 9}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coll := collection(t, fresh())
			var log lab.Text
			foreign, ran := make(chan error, 1000), make(chan time.Time, 1000)
			s, err := schedule.New(coll, schedule.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), schedule.WithEvents(func(e schedule.Event) {
				if e.Kind == schedule.Faulted && errors.Is(e.Err, store.ErrForeign) {
					foreign <- e.Err
				}
			}))
			require.NoError(t, err)
			require.NoError(t, s.Add("job", schedule.Every(500*time.Millisecond), func(_ context.Context, r schedule.Run) error {
				ran <- r.Due
				return nil
			}, schedule.With(mongolock.TTL(2*time.Second))))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			defer func() { stop(); require.NoError(t, <-ended) }()
			soon := func(what string, is func() bool) {
				t.Helper()
				require.Eventually(t, is, 40*time.Second, 20*time.Millisecond, what)
			}
			soon("it did not run", func() bool { return len(ran) > 1 })
			_, err = coll.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "job"}}, mend)
			require.NoError(t, err)
			soon("no event told that the document is not a job's", func() bool { return len(foreign) > 0 })
			soon("no line told it", func() bool { return bytes.Contains([]byte(log.String()), []byte("mongolock jobs forget")) })
			assert.Contains(t, log.String(), "level=ERROR")
			if name == "another version" {
				require.ErrorIs(t, s.Forget(t.Context(), "job"), store.ErrForeign)
				return
			}
			require.NoError(t, s.Forget(t.Context(), "job"))
			n := len(ran)
			soon("it does not run after Forget", func() bool { return len(ran) > n+1 })
		})
	}
}
