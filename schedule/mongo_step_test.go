package schedule_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/schedule"
)

// After the first run the primary's clock is stepped, and a command fails, so that the next claim
// asks for the election.
func TestMongoAStepOfTheServersClockIsLogged(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "atomic", "!router")
	var ahead atomic.Int64
	var fails atomic.Bool
	line := &testserver.Line{}
	line.Set(func(command string, c bson.Raw) testserver.Fate {
		db, _ := c.Lookup("$db").StringValueOK()
		switch {
		case command == "hello" && db != "admin": // not the driver's own
			return testserver.Fate{Rewrite: func(r bson.Raw) bson.D {
				return testserver.Edit(r, []string{"electionId", "setName", "localTime"},
					bson.E{Key: "electionId", Value: bson.ObjectID{1}}, bson.E{Key: "setName", Value: "set"},
					bson.E{Key: "localTime", Value: time.Now().Add(time.Duration(ahead.Load()))})
			}}
		case command == "findAndModify" && fails.CompareAndSwap(true, false):
			return testserver.Fate{Instead: bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 1}, {Key: "errmsg", Value: "internal error"}}}
		}
		return testserver.Fate{}
	})
	var log lab.Text
	coll := collection(t, fresh(), func(o *options.ClientOptions) { line.Through(o) })
	s, err := schedule.New(coll, schedule.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	ran := make(chan struct{}, 100)
	require.NoError(t, s.Add("job", schedule.Every(time.Second), func(context.Context, schedule.Run) error {
		ran <- struct{}{}
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-ran
	const told = "the database's clock was stepped"
	assert.NotContains(t, log.String(), told)

	ahead.Store(int64(time.Minute))
	fails.Store(true)
	require.Eventually(t, func() bool { return bytes.Contains([]byte(log.String()), []byte(told)) }, time.Minute, 50*time.Millisecond)
	cancel()
	assert.NoError(t, <-ended)
}
