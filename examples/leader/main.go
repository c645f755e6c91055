// Leader has three processes stand for one office. The one that leads is killed with
// -9, the next one is told to stop, and each time the gap is printed until another
// leads: after a death up to the TTL, after a resignation next to none. (The others
// wait for a notice that the key is free. The server that is built in has none, so
// there they poll, and the gap is up to a second longer.)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/examples/internal/stage"
	"github.com/mongolock/mongolock/leader"
)

const key = "office"

// An order is what every candidate is told.
type order struct {
	URI, Database string
	TTL           time.Duration
}

func main() { stage.Main("leader", run) }

func run(ctx context.Context) error {
	var told order
	switch name, err := stage.Role(&told); {
	case err != nil:
		return err
	case name != "":
		return stand(ctx, name, told)
	}
	uri := stage.URIFlag()
	flag.DurationVar(&told.TTL, "ttl", 2*time.Second, "how long a leader that died is believed to live, at most")
	flag.Parse()
	return story(ctx, *uri, told)
}

func (o order) client(name string) (*mongolock.Client, func(), error) {
	db, err := stage.Connect(o.URI, o.Database)
	if err != nil {
		return nil, nil, err
	}
	locks, err := mongolock.New(db.Collection("locks"), mongolock.WithOwner(name), mongolock.TTL(o.TTL),
		mongolock.WithoutIndex()) // in a database that is dropped in a minute
	if err != nil {
		return nil, nil, err
	}
	return locks, func() { locks.Close(); db.Client().Disconnect(context.Background()) }, nil
}

// stand is what each candidate does, until it is killed or interrupted.
func stand(ctx context.Context, name string, o order) error {
	locks, leave, err := o.client(name)
	if err != nil {
		return err
	}
	defer leave()
	return leader.Run(ctx, locks, key, func(ctx context.Context, term leader.Term) error {
		fmt.Printf("%s  leads, with token %d\n", name, term.Token())
		<-ctx.Done() // the work, which ends with the term
		return ctx.Err()
	})
}

// story starts three candidates and ends one leader after the other.
func story(ctx context.Context, uri string, o order) (err error) {
	scratch, err := stage.Start(ctx, "leader", uri)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Stop()) }()
	o.URI, o.Database = scratch.URI, scratch.Name
	locks, leave, err := o.client("the audience")
	if err != nil {
		return err
	}
	defer leave()
	fmt.Printf("Three processes stand for one office. A leader that dies is believed to live for %v at most.\nThe database: %s.\n\n", o.TTL, scratch.Server)

	ctx, cancel := context.WithCancel(ctx)
	running := map[string]*exec.Cmd{}
	defer func() {
		cancel() // kills those that are left
		for _, cmd := range running {
			cmd.Wait() //nolint:errcheck // it was killed
		}
	}()
	for _, name := range []string{"process-1", "process-2", "process-3"} {
		cmd, err := stage.Process(ctx, name, o)
		if err != nil {
			return err
		}
		running[name] = cmd
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	return endThem(ctx, locks, running)
}

// endThem ends whoever leads: the first by kill -9, the second gently, and prints the
// gap until the next one does, by the server's clock.
func endThem(ctx context.Context, locks *mongolock.Client, running map[string]*exec.Cmd) error {
	ended, how := time.Time{}, []os.Signal{os.Kill, os.Interrupt}
	last := ""
	for is, err := range leader.Watch(ctx, locks, key) {
		if err != nil {
			return err
		}
		if is.Owner == "" || is.Owner == last {
			continue // nobody, or one that is dead already
		}
		if last != "" {
			fmt.Printf("%s  took over %.2f s later\n", is.Owner, is.Since.Sub(ended).Seconds())
		}
		if len(how) == 0 {
			fmt.Println("\nThree leaders, one after the other.")
			return nil
		}
		if err := stage.Sleep(ctx, 300*time.Millisecond); err != nil {
			return err
		}
		seen, err := locks.Inspect(ctx, key)
		if err != nil {
			return err
		}
		if how[0] == os.Kill {
			fmt.Printf("%s  is killed with -9\n", is.Owner)
		} else {
			fmt.Printf("%s  is told to stop, and hands over\n", is.Owner)
		}
		last, ended = is.Owner, seen.Now
		if err := running[last].Process.Signal(how[0]); err != nil {
			return err
		}
		running[last].Wait() //nolint:errcheck // it was ended
		delete(running, last)
		how = how[1:]
	}
	return context.Cause(ctx)
}
