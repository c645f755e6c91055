// Package periodic shows package schedule beside a queue of jobs: River on PostgreSQL, and
// asynq on Redis. The schedule says when, and that it is once on however many hosts; the
// queue does the work, with its own workers, retries and limits.
//
// Both queues have periodic jobs of their own. River's are started by a leader that it
// elects, and start over with each new leader. asynq's Scheduler enqueues on every host that
// runs one. The schedule remembers instead which fires were decided, whichever host lives.
//
// At each fire one process inserts one job, under a name made of the fire. If that process
// dies, it is not known whether it did; so another one tries again,
// and the queue refuses a second job of the same name. So each fire is one job in the queue,
// as long as the queue remembers the name.
package periodic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/mongolock/mongolock/schedule"
)

// ReportArgs are the arguments of the job: what it is due for. River finds a second job of
// the same fire by them.
type ReportArgs struct {
	Fire time.Time `json:"fire" river:"unique"`
}

// Kind names the job to River, and to asynq.
func (ReportArgs) Kind() string { return "report" }

// An Inserter inserts jobs, as a *river.Client of any driver does.
type Inserter interface {
	Insert(ctx context.Context, args river.JobArgs, opts *river.InsertOpts) (*rivertype.JobInsertResult, error)
}

// ByRiver puts a job on the schedule that inserts a job into River at each fire.
func ByRiver(jobs *schedule.Scheduler, name string, plan schedule.Plan, queue Inserter) error {
	return jobs.Add(name, plan, func(ctx context.Context, run schedule.Run) error {
		_, err := queue.Insert(ctx, ReportArgs{Fire: run.Due}, &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}})
		return err // nil, too, if an attempt before this one has inserted it
	})
}

// Remembered is for how long asynq remembers a task that is done, and so refuses a second
// one of the same fire: far longer than a dead run takes to be repeated.
const Remembered = time.Hour

// ByAsynq puts a job on the schedule that enqueues a task of asynq at each fire.
func ByAsynq(jobs *schedule.Scheduler, name string, plan schedule.Plan, queue *asynq.Client) error {
	return jobs.Add(name, plan, func(ctx context.Context, run schedule.Run) error {
		args := ReportArgs{Fire: run.Due}
		payload, err := json.Marshal(args)
		if err != nil {
			return err
		}
		id := fmt.Sprintf("%s@%d", name, run.Due.UnixMilli())
		_, err = queue.EnqueueContext(ctx, asynq.NewTask(args.Kind(), payload), asynq.TaskID(id), asynq.Retention(Remembered))
		if errors.Is(err, asynq.ErrTaskIDConflict) {
			return nil // an attempt before this one has enqueued it
		}
		return err
	})
}
