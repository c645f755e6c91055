package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/examples/demos/internal/stage"
	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/schedule"
)

const key = "visits" // the name of the job, and the _id of the counter

// A counter is the document that the job changes.
type counter struct {
	ID   string `bson:"_id"`
	N    int64  `bson:"n"`
	Tick int64  `bson:"tick"` // the last tick that was counted
	By   string `bson:"by"`
}

// A worker is one of several processes that have the same job.
type worker struct {
	order
	name     string
	jobs     *schedule.Scheduler
	counters *mongo.Collection
	stop     context.CancelFunc
}

func work(ctx context.Context, name string, o order) error {
	db, leave, err := o.Open()
	if err != nil {
		return err
	}
	defer leave()
	w := &worker{order: o, name: name, counters: db.Collection("counters")}
	ctx, w.stop = context.WithCancel(ctx)
	defer w.stop()
	if w.Unguarded {
		return w.trustTheLock(ctx, db.Collection("locks"))
	}
	// The jitter stands for this host's timer: it fires anywhere in the first 90 % of the
	// period, as if the host's clock were wrong by that much.
	w.jobs, err = schedule.New(db.Collection("jobs"), schedule.WithOwner(name),
		schedule.WithJitter(w.Period*9/10), schedule.WithEvents(w.observe),
		schedule.WithLogger(slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		return err
	}
	if err := w.jobs.Add(key, schedule.Every(w.Period), w.run, w.rules()...); err != nil {
		return err
	}
	return w.jobs.Run(ctx)
}

// rules returns the rules of the job, the same in every process: every tick counts. (A run that
// was stopped or died is repeated anyway.)
func (o order) rules() []schedule.JobOption {
	return []schedule.JobOption{
		schedule.Each(), // also those that came while no process was up, or during an earlier run
		schedule.With(mongolock.TTL(o.ttl())),
	}
}

// run is the job.
func (w *worker) run(ctx context.Context, run schedule.Run) error {
	tick := w.tickAt(run.Due)
	if tick < w.First || tick > w.Last {
		return nil
	}
	w.say(tick, run.Began, "runs it")
	// A worker that died may or may not have counted. So the filter contains the tick,
	// which is the same when another worker repeats the run.
	return w.count(ctx, run.Token(), tick, bson.M{"_id": key, "tick": bson.M{"$lt": tick}})
}

// count does the work of the job. The token refuses the write of a worker that was
// paused for longer than its lease lasts (see examples/guarded).
func (w *worker) count(ctx context.Context, token, tick int64, filter bson.M) error {
	if err := stage.Sleep(ctx, w.job()); err != nil { // hard work
		return err
	}
	_, err := fence.UpdateOne(ctx, w.counters, token, filter, bson.M{
		"$inc": bson.M{"n": 1},
		"$set": bson.M{"tick": tick, "by": w.name},
	})
	return err
}

// observe prints why this worker did not run a tick, and ends it after the last one.
func (w *worker) observe(e schedule.Event) {
	tick := w.tickAt(e.Due)
	if e.Kind == schedule.Passed && tick >= w.First && tick <= w.Last {
		w.say(tick, e.At, "skips it: %s", w.why(e.Due))
	}
	if tick < w.Last || e.Kind != schedule.Passed && e.Kind != schedule.Ended {
		return
	}
	var c counter
	if err := w.counters.FindOne(context.Background(), bson.M{"_id": key}).Decode(&c); err == nil && c.Tick >= w.Last {
		w.stop()
	}
}

// why reads the job's document to explain a refusal, because the claim was only refused.
func (w *worker) why(due time.Time) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	seen, err := w.jobs.Job(ctx, key)
	if err != nil {
		return err.Error()
	}
	for _, run := range seen.Past {
		if run.Due.Equal(due) && run.Outcome == schedule.Succeeded {
			return "already counted by " + run.Owner
		}
	}
	for _, run := range seen.Runs {
		return "held by " + run.Owner
	}
	return "not its turn"
}

// say prints a line with the tick, the time since its beginning, and the worker.
func (w *worker) say(tick int64, now time.Time, format string, args ...any) {
	at := now.Sub(w.begin(tick)).Seconds()
	fmt.Printf("tick %2d  %+.2f s  %s  %s\n", tick-w.First+1, at, w.name, fmt.Sprintf(format, args...))
}

const column = 26 // in which the workers' names end
