// Croncounter has several processes do one job once per period, however many they
// are and however far apart their timers go off. The job is to add 1 to a counter,
// and at the end the count is checked. Halfway the worker that is at the job is
// killed with -9, and another one started.
//
// What a worker does stands in worker.go. A lock lets one worker at a time do the
// job, but it cannot know that the job was done: if the job is shorter than the
// timers are apart, a late worker finds the key free again. (With -unguarded that is
// all there is, see unguarded.go: watch it fail.) So the workers have the job on a
// schedule, of which each tick is claimed once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/examples/internal/stage"
	"github.com/mongolock/mongolock/schedule"
)

// An order is what every worker is told.
type order struct {
	URI, Database string
	Period        time.Duration
	First, Last   int64 // ticks, numbered from 1970 on
	Unguarded     bool
}

func (o order) tickAt(t time.Time) int64   { return t.UnixNano() / int64(o.Period) }
func (o order) begin(tick int64) time.Time { return time.Unix(0, tick*int64(o.Period)) }
func (o order) job() time.Duration         { return o.Period / 5 }
func (o order) ttl() time.Duration         { return max(o.Period, 2*time.Second) }

func main() { stage.Main("croncounter", run) }

func run(ctx context.Context) error {
	var told order
	switch name, err := stage.Role(&told); {
	case err != nil:
		return err
	case name != "":
		return work(ctx, name, told)
	}
	d := demo{running: map[string]*exec.Cmd{}}
	flag.IntVar(&d.workers, "workers", 3, "how many processes")
	flag.DurationVar(&d.Period, "period", 2*time.Second, "how often the job is due")
	flag.Int64Var(&d.ticks, "ticks", 6, "how many times it is due")
	uri := stage.URIFlag()
	flag.BoolVar(&d.Unguarded, "unguarded", false, "trust the lock alone, and count too much")
	flag.Parse()
	if d.workers < 1 || d.ticks < 1 || d.Period < 200*time.Millisecond || d.Period%time.Millisecond != 0 {
		return errors.New("-workers and -ticks must be at least 1, and -period at least 200ms and whole milliseconds")
	}
	return d.run(ctx, *uri)
}

// starting is how long the workers have to start before the first tick that counts.
const starting = 3 * time.Second

// A demo is the parent of the workers.
type demo struct {
	order
	workers int
	ticks   int64

	started int
	running map[string]*exec.Cmd // by the worker's name
}

func (d *demo) run(ctx context.Context, uri string) (err error) {
	scratch, err := stage.Start(ctx, "croncounter", uri)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Stop()) }()
	d.URI, d.Database = scratch.URI, scratch.Name
	db, err := stage.Connect(d.URI, d.Database)
	if err != nil {
		return err
	}
	defer db.Client().Disconnect(context.WithoutCancel(ctx))
	jobs, err := schedule.New(db.Collection("jobs"))
	if err != nil {
		return err
	}

	fmt.Printf(`%d processes. Every %v one of them is to add 1 to a counter, though their timers go off
up to %v apart. A lock alone cannot do that: the job takes %v, and whoever comes later
finds the key free again. So the job is on a schedule, of which each tick is claimed once.
The database: %s.

`, d.workers, d.Period, d.Period*9/10, d.job(), scratch.Server)
	if err := d.makeKnown(ctx, jobs); err != nil {
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

// makeKnown has the job claimed once before it counts. From then on the database
// knows which ticks were missed; of a job that was never claimed nobody does, and
// workers that are slow to start would not know that they owe the first tick.
func (d *demo) makeKnown(ctx context.Context, jobs *schedule.Scheduler) error {
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
	for name, cmd := range d.running {
		if failed := cmd.Wait(); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, failed))
		}
	}
	return err
}

func (d *demo) startAndReplace(ctx context.Context, jobs *schedule.Scheduler) error {
	for range d.workers {
		if _, err := d.start(ctx); err != nil {
			return err
		}
	}
	if d.Unguarded {
		return nil // that goes wrong without anybody's death
	}
	victim, err := d.awaitRunner(ctx, jobs, d.First+d.ticks/2)
	if err != nil || victim == "" {
		return err
	}
	if err := d.running[victim].Process.Kill(); err != nil {
		return err
	}
	d.running[victim].Wait() //nolint:errcheck // it was killed
	delete(d.running, victim)
	fmt.Printf("%*s  is killed with -9 at work; its lease goes on for up to %v\n", column, victim, d.ttl())
	added, err := d.start(ctx)
	if err == nil {
		fmt.Printf("%*s  is started\n", column, added)
	}
	return err
}

func (d *demo) start(ctx context.Context) (name string, err error) {
	d.started++
	name = fmt.Sprintf("worker-%d", d.started)
	cmd, err := stage.Process(ctx, name, d.order)
	if err != nil {
		return "", err
	}
	d.running[name] = cmd
	return name, cmd.Start()
}

// awaitRunner waits until a worker is in the middle of the job, from that tick on,
// and returns its name; none if all of them are done.
func (d *demo) awaitRunner(ctx context.Context, jobs *schedule.Scheduler, from int64) (string, error) {
	for {
		seen, err := jobs.Job(ctx, key)
		if err != nil {
			return "", err
		}
		for _, run := range seen.Runs {
			if tick := d.tickAt(run.Fire); tick >= from && tick <= d.Last {
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
