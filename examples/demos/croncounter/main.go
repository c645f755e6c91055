// Croncounter runs one job once per period in several processes, however many they are
// and however far apart their timers fire. The job adds 1 to a counter, and at the end
// the count is checked. Half-way, the worker that runs the job is killed with -9 and
// another one is started.
//
// What a worker does is in worker.go. A lock lets one worker at a time run the job, but
// cannot know that the job was done: if the job takes less time than the timers are
// apart, a late worker finds the key free again. (With -unguarded the workers have only
// a lock, see unguarded.go: watch it fail.) So the job is on a schedule, whose ticks are
// claimed once each.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/examples/demos/internal/stage"
	"github.com/mongolock/mongolock/schedule"
)

// An order is what every worker is given.
type order struct {
	stage.Place
	Period      time.Duration
	First, Last int64 // ticks, numbered from 1970 on
	Unguarded   bool
}

func (o order) tickAt(t time.Time) int64   { return t.UnixNano() / int64(o.Period) }
func (o order) begin(tick int64) time.Time { return time.Unix(0, tick*int64(o.Period)) }
func (o order) job() time.Duration         { return o.Period / 5 }
func (o order) ttl() time.Duration         { return max(o.Period, 2*time.Second) }

func main() {
	d := demo{running: stage.Crew{}}
	flag.IntVar(&d.workers, "workers", 3, "how many processes")
	flag.DurationVar(&d.Period, "period", 2*time.Second, "how often the job is due")
	flag.Int64Var(&d.ticks, "ticks", 6, "how many times it is due")
	flag.BoolVar(&d.Unguarded, "unguarded", false, "use a lock alone, and count too much")
	stage.Example[order]{Name: "croncounter", Check: d.checkFlags, Role: work, Story: d.story}.Main()
}

// starting is how long the workers have to start before the first tick that counts.
const starting = 3 * time.Second

// A demo is the parent of the workers.
type demo struct {
	order
	workers int
	ticks   int64

	started int
	running stage.Crew
}

func (d *demo) checkFlags() error {
	if d.workers < 1 || d.ticks < 1 || d.Period < 200*time.Millisecond || d.Period%time.Millisecond != 0 {
		return errors.New("-workers and -ticks must be at least 1, and -period at least 200ms and whole milliseconds")
	}
	return nil
}

func (d *demo) story(ctx context.Context, scratch *stage.Scratch) error {
	d.Place = scratch.Place
	db, leave, err := d.Open()
	if err != nil {
		return err
	}
	defer leave()
	jobs, err := schedule.New(db.Collection("jobs"))
	if err != nil {
		return err
	}

	fmt.Printf(`%d processes. Every %v one of them adds 1 to a counter, though their timers fire up to
%v apart. A lock alone cannot do that: the job takes %v, and a later process finds the
key free again. So the job is on a schedule, whose ticks are claimed once each.
The database: %s.

`, d.workers, d.Period, d.Period*9/10, d.job(), scratch.Server)
	if err := d.claimOnce(ctx, jobs); err != nil {
		return err
	}
	seen, err := jobs.Job(ctx, key)
	if err != nil {
		return err
	}
	d.First = d.tickAt(seen.Now.Add(starting)) + 1
	d.Last = d.First + d.ticks - 1
	counters := db.Collection("counters")
	if _, err := counters.InsertOne(ctx, counter{ID: key, Tick: d.First - 1}); err != nil {
		return err
	}
	if err := d.runWorkers(ctx, jobs); err != nil {
		return err
	}
	return d.check(ctx, counters)
}

// claimOnce claims the job before the first tick that counts. From then on the database
// knows which ticks were missed. Of a job that was never claimed that is not known, and
// workers that are slow to start would not run the first tick.
func (d *demo) claimOnce(ctx context.Context, jobs *schedule.Scheduler) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	nothing := func(context.Context, schedule.Run) error {
		stop()
		return nil
	}
	if err := jobs.Add(key, schedule.Every(d.Period), nothing, d.rules()...); err != nil {
		return err
	}
	return jobs.Run(ctx)
}

// runWorkers starts the workers, replaces one of them, and waits until all are done.
func (d *demo) runWorkers(ctx context.Context, jobs *schedule.Scheduler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := d.startAndReplace(ctx, jobs)
	if err != nil {
		cancel() // kills them
	}
	return errors.Join(err, d.running.Wait())
}

func (d *demo) startAndReplace(ctx context.Context, jobs *schedule.Scheduler) error {
	for range d.workers {
		if _, err := d.start(ctx); err != nil {
			return err
		}
	}
	if d.Unguarded {
		return nil // this fails without a kill
	}
	victim, err := d.awaitRunner(ctx, jobs, d.First+d.ticks/2)
	if err != nil || victim == "" {
		return err
	}
	if err := d.running.End(victim, os.Kill); err != nil {
		return err
	}
	fmt.Printf("%*s  is killed with -9 during the job; its lease lasts for up to %v\n", column, victim, d.ttl())
	added, err := d.start(ctx)
	if err == nil {
		fmt.Printf("%*s  is started\n", column, added)
	}
	return err
}

func (d *demo) start(ctx context.Context) (name string, err error) {
	d.started++
	name = fmt.Sprintf("worker-%d", d.started)
	return name, d.running.Start(ctx, name, d.order)
}

// awaitRunner waits until a worker is in the middle of the job, at the tick from or a
// later one, and returns its name. The name is empty if the last tick has passed.
func (d *demo) awaitRunner(ctx context.Context, jobs *schedule.Scheduler, from int64) (string, error) {
	for {
		seen, err := jobs.Job(ctx, key)
		if err != nil {
			return "", err
		}
		for _, run := range seen.Runs {
			if tick := d.tickAt(run.Due); tick >= from && tick <= d.Last {
				return run.Owner, stage.Sleep(ctx, d.job()/2)
			}
		}
		if d.tickAt(seen.Now) > d.Last {
			return "", nil
		}
		if err := stage.Sleep(ctx, d.job()/10); err != nil {
			return "", err
		}
	}
}

func (d *demo) check(ctx context.Context, counters *mongo.Collection) error {
	var c counter
	if err := counters.FindOne(ctx, bson.M{"_id": key}).Decode(&c); err != nil {
		return err
	}
	if c.N != d.ticks {
		fmt.Printf("\n%d ticks, counter %d: wrong\n", d.ticks, c.N)
		return errors.New("the counter is wrong")
	}
	fmt.Printf("\n%d ticks, counter %d: correct\n", d.ticks, c.N)
	return nil
}
