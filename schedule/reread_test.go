package schedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
	"github.com/mongolock/mongolock/store"
)

// A claim that was refused plans a read a TTL later. If that came between a read and what the
// read planned, a run that had died was repeated a minute late.
func TestTheEarlierOfTwoReadsAtAJobStays(t *testing.T) {
	jobs, err := schedule.InMemory()
	require.NoError(t, err)
	require.NoError(t, jobs.Add("report", schedule.Every(time.Hour), func(context.Context, schedule.Run) error { return nil }))
	soon, late := time.Now().Add(time.Second), time.Now().Add(time.Minute)
	assert.Equal(t, soon, jobs.ReadsAt("report", late, soon))
	assert.Equal(t, soon, jobs.ReadsAt("report", late))
}

// halfForeign shows the document of one job as another program's, and none of another job.
type halfForeign struct {
	jobs.Store
	on *atomic.Bool
}

func (h halfForeign) Read(ctx context.Context, names []string, detail jobs.Detail) ([]jobs.State, error) {
	all, err := h.Store.Read(ctx, names, detail)
	if !h.on.Load() || err != nil {
		return all, err
	}
	for i := range all {
		switch all[i].Job {
		case "changed":
			all[i] = jobs.State{Job: "changed", Foreign: store.ErrForeign}
		case "forgotten":
			all[i] = jobs.State{Job: "forgotten"}
		}
	}
	return all, store.ErrForeign
}

// One command reads several jobs. Only the one whose document is not a job's is in trouble.
func TestAJobWithoutADocumentIsNotFaultedBecauseOfAnother(t *testing.T) {
	inCluster(t, func(c *cluster) {
		shown := halfForeign{c.store, new(atomic.Bool)}
		faulted := map[string]int{}
		var mu sync.Mutex
		s, err := schedule.NewWithStore(shown, schedule.WithLogger(slog.New(slog.DiscardHandler)), schedule.WithEvents(func(e schedule.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == schedule.Faulted {
				faulted[e.Job]++
				assert.ErrorIs(c, e.Err, store.ErrForeign)
			}
		}))
		require.NoError(c, err)
		for _, name := range []string{"changed", "forgotten"} {
			require.NoError(c, s.Add(name, schedule.Every(time.Hour), func(context.Context, schedule.Run) error { return nil }))
		}
		ctx, stop := context.WithCancel(c.Context())
		over := make(chan error, 1)
		go func() { over <- s.Run(ctx) }()
		c.sleep(time.Minute)
		shown.on.Store(true)
		soon := c.store.Now().Add(time.Second)
		s.ReadsAt("changed", soon)
		s.ReadsAt("forgotten", soon)
		c.sleep(time.Minute)
		stop()
		require.NoError(c, <-over)
		assert.Equal(c, map[string]int{"changed": 1}, faulted)
	})
}

// Whichever command meets the document first, the log says what to do.
func TestAClaimThatMeetsAForeignDocumentSaysWhatToDo(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var changed atomic.Bool
		shown := &jobstest.Store{To: c.store, Through: func(_ context.Context, call jobstest.Call, send func() error) error {
			if call.Op == "claim" && changed.Load() {
				return fmt.Errorf("changed by hand: %w", store.ErrForeign)
			}
			return send()
		}}
		var log lab.Text
		s, err := schedule.NewWithStore(shown, schedule.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(c, err)
		require.NoError(c, s.Add("job", schedule.Every(time.Minute), func(context.Context, schedule.Run) error { return nil }))
		ctx, stop := context.WithCancel(c.Context())
		over := make(chan error, 1)
		go func() { over <- s.Run(ctx) }()
		c.sleep(time.Minute)
		changed.Store(true)
		c.sleep(2 * time.Minute)
		stop()
		require.NoError(c, <-over)
		assert.Contains(c, log.String(), `level=ERROR msg="schedule: a job will not run until its document is mended, or forgotten with mongolock jobs forget"`)
	})
}
