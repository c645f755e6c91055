package guide

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/pathlock/pathlocktest"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/scheduletest"
)

// addReport stands for the code under test.
func addReport(jobs *schedule.Scheduler, write func()) error {
	return jobs.Add("report", schedule.Cron("0 3 * * *"), func(context.Context, schedule.Run) error {
		write()
		return nil
	})
}

// savePage, too.
func savePage(ctx context.Context, pages *pathlock.Tree, page string) error {
	lock, err := pages.Lock(ctx, pathlock.Request{Path: page})
	if err != nil {
		return err
	}
	return pages.Release(ctx, lock.Token)
}

func TestAReportIsWrittenEachNightByOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time begins at midnight, in UTC
		jobs := scheduletest.New(t)
		written := 0
		assert.NoError(t, addReport(jobs.Scheduler, func() { written++ }))
		jobs.Start()
		time.Sleep(24 * time.Hour) // virtual: one night
		assert.Equal(t, 1, written)

		release := jobs.Hold("report") // another process has it for two nights
		time.Sleep(48 * time.Hour)     // virtual: two nights
		release()
		assert.Equal(t, 1, written)

		jobs.Fail(errors.New("no route to host")) // for one night no process has it, and it is made up
		time.Sleep(24 * time.Hour)                // virtual: one night
		jobs.Fail(nil)
		time.Sleep(24 * time.Hour) // virtual: one night
		assert.Equal(t, 3, written)
	})
}

func TestAPageThatIsBeingEditedIsNotOverwritten(t *testing.T) {
	tree := pathlocktest.New(t)
	release := tree.Hold(pathlock.Request{Path: "/pages", Depth: pathlock.Infinity})
	assert.ErrorIs(t, savePage(t.Context(), tree.Tree, "/pages/index"), pathlock.ErrConflict)

	release()
	assert.NoError(t, savePage(t.Context(), tree.Tree, "/pages/index"))
}
