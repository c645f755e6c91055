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

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// afterElection is a store whose primary was elected after the others have written. Its clock
// is ahead of that of the primary before.
func afterElection(t *testing.T, name string, election bson.ObjectID, ahead time.Duration, now func() server.Moment) *storeFixture {
	t.Helper()
	line := &testserver.Line{}
	line.Set(func(command string, c bson.Raw) testserver.Fate {
		if db, _ := c.Lookup("$db").StringValueOK(); command != "hello" || db == "admin" { // the driver's own
			return testserver.Fate{}
		}
		return testserver.Fate{Rewrite: func(r bson.Raw) bson.D {
			return testserver.Edit(r, []string{"electionId", "setName", "localTime"},
				bson.E{Key: "electionId", Value: election}, bson.E{Key: "setName", Value: "set"},
				bson.E{Key: "localTime", Value: time.Now().Add(ahead)})
		}}
	})
	coll := collection(t, name, func(o *options.ClientOptions) { line.Through(o) })
	return newStoreFixture(t, schedule.NewMongoStoreAt(coll, now), time.Second)
}

// repeatAfterElection claims a run again whose process is alive, by a primary whose clock is
// 50 s ahead.
func repeatAfterElection(t *testing.T, same bool, mode func(*jobs.Claim)) (rival *storeFixture, again jobs.Claim, run jobs.Claim, later func(time.Duration)) {
	t.Helper()
	testserver.Need(t, "atomic")
	name := fresh()
	old := bson.ObjectID{1}
	f := afterElection(t, name, old, 0, server.Monotonic())
	run = f.ask(1)
	run.TTL = 30 * time.Second
	mode(&run)
	f.won(run)
	election := bson.ObjectID{2}
	if same {
		election = old
	}
	var passed time.Duration
	monotonic := server.Monotonic()
	rival = afterElection(t, name, election, 50*time.Second, func() server.Moment { return monotonic().Add(passed) })
	rival.job, rival.known = f.job, true
	state := rival.state()
	require.Len(t, state.Runs, 1)
	again = rival.repeated(state.Runs[0])
	mode(&again)
	return rival, again, run, func(d time.Duration) { passed += d }
}

var runModes = map[string]func(*jobs.Claim){
	"one at a time": func(*jobs.Claim) {},
	"shared":        func(c *jobs.Claim) { c.Alone = false },
}

func TestMongoARunIsNotRepeatedByTheClockOfALaterPrimary(t *testing.T) {
	t.Parallel()
	for name, mode := range runModes {
		t.Run(name, func(t *testing.T) {
			rival, again, run, _ := repeatAfterElection(t, false, mode)
			rival.refused("a run that goes on, by another primary's clock", again)
			if run.Alone {
				next := rival.after(rival.ask(2), 1)
				rival.refused("the next fire during that run", next)
			}
		})
	}
}

func TestControlMongoTheSameElectionLetsTheClockDecide(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "!router")
	for name, mode := range runModes {
		t.Run(name, func(t *testing.T) {
			rival, again, _, _ := repeatAfterElection(t, true, mode)
			rival.won(again)
		})
	}
}

func TestMongoARunThatWasSeenStillForItsTTLIsRepeated(t *testing.T) {
	t.Parallel()
	for name, mode := range runModes {
		t.Run(name, func(t *testing.T) {
			rival, again, run, later := repeatAfterElection(t, false, mode)
			later(29 * time.Second)
			rival.refused("seen for less than its TTL", again)
			_, err := rival.store.Renew(rival.ctx(), run.Ref, run.TTL, true)
			require.NoError(t, err)
			later(2 * time.Second)
			rival.refused("renewed in that time", again)
			rival.state()
			later(31 * time.Second)
			again.ID = rival.ask(0).ID
			rival.won(again)
			_, err = rival.store.Renew(rival.ctx(), run.Ref, run.TTL, true)
			assert.Error(t, err, "the run that was repeated")
		})
	}
}

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
