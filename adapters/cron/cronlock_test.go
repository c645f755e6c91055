package cronlock_test

import (
	"context"
	"fmt"

	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	cronlock "github.com/mongolock/mongolock/adapters/cron"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testticks"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestOneOfThreeHostsRunsEachTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var runs atomic.Int32
		time.Sleep(500 * time.Millisecond) // virtual: start between two ticks
		for range 3 {
			client, err := mongolock.NewWithStore(s)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, client.Close()) })
			once, err := cronlock.New(client, cronlock.With(mongolock.MinHold(500*time.Millisecond)))
			require.NoError(t, err)
			c := cron.New(cron.WithSeconds())
			_, err = c.AddJob("* * * * * *", once.Wrap("report")(cron.FuncJob(func() { runs.Add(1) })))
			require.NoError(t, err)
			c.Start()
			t.Cleanup(func() { <-c.Stop().Done() })
		}
		time.Sleep(3 * time.Second) // virtual: three ticks
		assert.EqualValues(t, 3, runs.Load(), "runs in 3 ticks")
	})
}

func logTo(said *strings.Builder) cronlock.Option {
	return cronlock.WithLogger(slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

func TestARunIsSkippedWhileTheKeyIsHeld(t *testing.T) {
	locks := mongolocktest.New(t)
	var said strings.Builder
	once, err := cronlock.New(locks, logTo(&said))
	require.NoError(t, err)
	ran := 0
	job := once.Wrap("report")(cron.FuncJob(func() { ran++ }))
	release := locks.Hold("report")
	job.Run()
	assert.Zero(t, ran)
	assert.Contains(t, said.String(), "another host runs the job")
	release()
	job.Run()
	assert.Equal(t, 1, ran)
}

func TestAPanicOfTheJobReleasesTheKey(t *testing.T) {
	once, err := cronlock.New(mongolocktest.New(t))
	require.NoError(t, err)
	job := once.Wrap("report")(cron.FuncJob(func() { panic("boom") }))
	assert.PanicsWithValue(t, "boom", job.Run)
	ran := 0
	once.Wrap("report")(cron.FuncJob(func() { ran++ })).Run()
	assert.Equal(t, 1, ran, "the key is still held")
}

func TestAContextJobLearnsThatItsLeaseIsLost(t *testing.T) {
	locks := mongolocktest.New(t)
	var said strings.Builder
	once, err := cronlock.New(locks, logTo(&said))
	require.NoError(t, err)
	once.Wrap("report")(cronlock.ContextFunc(func(ctx context.Context) error {
		locks.Lose("report")
		<-ctx.Done()
		return ctx.Err()
	})).Run()
	assert.Contains(t, said.String(), "lease is lost")
}

func TestWrongArgumentsAreRefusedByName(t *testing.T) {
	_, err := cronlock.New(nil, nil, cronlock.WithLogger(nil), cronlock.With(nil))
	for _, want := range []string{"the locker is nil", "a nil Option", "WithLogger(nil)", "a nil AcquireOption"} {
		assert.ErrorContains(t, err, want)
	}
}

func TestALeaseThatSeveralHostsMayHoldIsRefused(t *testing.T) {
	client := mongolocktest.New(t)
	for want, opt := range map[string]mongolock.AcquireOption{
		"cronlock: With(Shared()): several hosts would run the job at the same time": mongolock.Shared(),
		"cronlock: With(OneOf): several hosts would run the job at the same time":    mongolock.OneOf(1),
		"cronlock: With: mongolock: TTL(1ns): must be between 100ms and a year":      mongolock.TTL(1),
		"cronlock: With: mongolock: MinHold(-1s): must be positive":                  mongolock.MinHold(-time.Second),
		"cronlock: With: mongolock: Note has 2000 bytes: at most 1024":               mongolock.Note(strings.Repeat("x", 2000)),
	} {
		_, err := cronlock.New(client, cronlock.With(mongolock.TTL(time.Second)), cronlock.With(opt))
		assert.ErrorContains(t, err, want)
	}
	_, err := cronlock.New(client, cronlock.With(mongolock.TTL(time.Second), mongolock.MinHold(time.Second), mongolock.Note("n"), mongolock.MaxHold(time.Hour)))
	assert.NoError(t, err, "what a job can use")
}

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{testticks.Role: testticks.Child(startCron)})
}

func TestThreeProcessesRunEachTickOnce(t *testing.T) { testticks.EachRunsOnce(t, "cron") }

func startCron(h *testticks.Host) (stop func() error, err error) {
	once, err := cronlock.New(h.Locks, cronlock.With(mongolock.MinHold(testticks.Apart/2)))
	if err != nil {
		return nil, err
	}
	c := cron.New(cron.WithSeconds())
	expression := fmt.Sprintf("*/%d * * * * *", int(testticks.Apart.Seconds()))
	if _, err := c.AddJob(expression, once.Wrap("report")(cronlock.ContextFunc(h.Ran))); err != nil {
		return nil, err
	}
	c.Start()
	return func() error { <-c.Stop().Done(); return nil }, nil
}
