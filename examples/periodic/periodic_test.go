package periodic_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/examples/periodic"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/scheduletest"
)

// hosts run one job on three schedulers for some seconds, and let the store say how many
// fires there were.
func hosts(t *testing.T, add func(*schedule.Scheduler) error) (fires int) {
	t.Helper()
	database := scheduletest.New(t) // in place of the collection that the hosts share
	ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	var last *schedule.Scheduler
	for range 3 {
		jobs := database.Another(schedule.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, add(jobs))
		wg.Go(func() { assert.NoError(t, jobs.Run(ctx)) })
		last = jobs
	}
	wg.Wait()
	state, err := last.Job(t.Context(), "report")
	require.NoError(t, err)
	for _, run := range state.Past {
		assert.EqualValues(t, "succeeded", run.Outcome, "%+v", run)
	}
	return len(state.Past)
}

func TestEachFireIsOneTaskOfAsynq(t *testing.T) {
	address := redis(t)
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: address})
	defer client.Close()
	fires := hosts(t, func(jobs *schedule.Scheduler) error {
		return periodic.ByAsynq(jobs, "report", schedule.Every(time.Second), client)
	})
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: address})
	defer inspector.Close()
	tasks, err := inspector.ListPendingTasks("default")
	require.NoError(t, err)
	assert.GreaterOrEqual(t, fires, 3)
	assert.Len(t, tasks, fires)

	var done sync.Map
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: address}, asynq.Config{Concurrency: 2, LogLevel: asynq.FatalLevel})
	require.NoError(t, server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		done.Store(string(task.Payload()), true)
		return nil
	})))
	defer server.Shutdown()
	assert.Eventually(t, func() bool { return size(&done) == fires }, 20*time.Second, 50*time.Millisecond)
}

// A process that dies after it has enqueued the task is one whose run is repeated.
func TestARepeatedRunEnqueuesNoSecondTask(t *testing.T) {
	address := redis(t)
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: address})
	defer client.Close()
	fire := time.Now().UTC().Truncate(time.Second).Add(2 * time.Second)
	var wg sync.WaitGroup
	for range 2 {
		jobs, err := schedule.InMemory(schedule.WithLogger(slog.New(slog.DiscardHandler))) // it knows nothing of the other
		require.NoError(t, err)
		require.NoError(t, periodic.ByAsynq(jobs, "report", once(fire), client))
		ctx, cancel := context.WithTimeout(t.Context(), time.Until(fire.Add(time.Second)))
		defer cancel()
		wg.Go(func() {
			assert.NoError(t, jobs.Run(ctx))
			state, err := jobs.Job(t.Context(), "report")
			assert.NoError(t, err)
			if assert.Len(t, state.Past, 1) {
				assert.Equal(t, schedule.Succeeded, state.Past[0].Outcome, "%+v", state.Past[0])
			}
		})
	}
	wg.Wait()
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: address})
	defer inspector.Close()
	tasks, err := inspector.ListPendingTasks("default")
	require.NoError(t, err)
	assert.Len(t, tasks, 1)
}

type once time.Time

func (o once) Next(t time.Time) time.Time {
	if at := time.Time(o); at.After(t) {
		return at
	}
	return time.Time{}
}
func (once) String() string { return "once" }

func TestEachFireIsOneJobOfRiver(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), postgres(t))
	require.NoError(t, err)
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)

	var done sync.Map
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[periodic.ReportArgs]) error {
		done.Store(job.Args.Fire.String(), true)
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2}}, Workers: workers, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	fires := hosts(t, func(jobs *schedule.Scheduler) error {
		return periodic.ByRiver(jobs, "report", schedule.Every(time.Second), client)
	})
	assert.GreaterOrEqual(t, fires, 3)

	// A run that is repeated, because its process died after the insert.
	again := periodic.ReportArgs{Fire: time.Now().UTC().Truncate(time.Second)}
	opts := &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
	first, err := client.Insert(t.Context(), again, opts)
	require.NoError(t, err)
	second, err := client.Insert(t.Context(), again, opts)
	require.NoError(t, err)
	assert.Equal(t, first.Job.ID, second.Job.ID)
	assert.True(t, second.UniqueSkippedAsDuplicate)
	if !first.UniqueSkippedAsDuplicate {
		fires++
	}

	require.NoError(t, client.Start(t.Context()))
	assert.Eventually(t, func() bool { return size(&done) == fires }, 20*time.Second, 50*time.Millisecond)
	var jobs int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM river_job").Scan(&jobs))
	assert.Equal(t, fires, jobs)
	require.NoError(t, client.Stop(context.WithoutCancel(t.Context())))
}

func size(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

// redis starts a server of the machine's own Redis.
func redis(t *testing.T) (address string) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("needs redis-server on PATH")
	}
	port := freePort(t)
	start(t, exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir()))
	return listening(t, port)
}

func start(t *testing.T, c *exec.Cmd) {
	t.Helper()
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

func listening(t *testing.T, port string) (address string) {
	t.Helper()
	address = "127.0.0.1:" + port
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	return address
}

// postgres returns the address of a new database: POSTGRES_URI has the server's.
func postgres(t *testing.T) (uri string) {
	t.Helper()
	server := os.Getenv("POSTGRES_URI")
	if server == "" {
		t.Skip("needs PostgreSQL: POSTGRES_URI=postgres://…, whose user may create databases")
	}
	name := fmt.Sprintf("periodic_%d", time.Now().UnixNano())
	admin, err := pgxpool.New(t.Context(), server)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		admin.Close()
	})
	config, err := pgxpool.ParseConfig(server)
	require.NoError(t, err)
	c := config.ConnConfig
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", c.User, c.Password, net.JoinHostPort(c.Host, fmt.Sprint(c.Port)), name)
}
