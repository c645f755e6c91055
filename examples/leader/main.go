// Leader runs three processes that are candidates for one leadership. The one that
// leads is killed with -9, the next one is told to stop, and each time the gap is
// printed until another leads: after a death at most the TTL, after a resignation next
// to nothing. (The others wait for a notice that the key is free. The server that is
// built in has no notices, so there they poll, and the gap is up to a second longer.)
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/examples/internal/stage"
	"github.com/mongolock/mongolock/leader"
)

const key = "leader"

// An order is what every candidate is given.
type order struct {
	stage.Place
	TTL time.Duration
}

func main() {
	var o order
	flag.DurationVar(&o.TTL, "ttl", 2*time.Second, "for how long at most a leader that died still counts")
	stage.Example[order]{Name: "leader", Role: lead, Story: o.story}.Main()
}

// lead is what each candidate does, until it is killed or interrupted.
func lead(ctx context.Context, name string, o order) error {
	locks, _, leave, err := o.Locks(name, mongolock.TTL(o.TTL))
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
func (o *order) story(ctx context.Context, scratch *stage.Scratch) error {
	o.Place = scratch.Place
	locks, _, leave, err := o.Locks("story", mongolock.TTL(o.TTL))
	if err != nil {
		return err
	}
	defer leave()
	fmt.Printf("Three processes are candidates for one leadership. A leader that dies still counts for %v at most.\nThe database: %s.\n\n", o.TTL, scratch.Server)

	ctx, cancel := context.WithCancel(ctx)
	running := stage.Crew{}
	defer func() {
		cancel()           // kills those that are left
		_ = running.Wait() // with the error of the kill
	}()
	for _, name := range []string{"process-1", "process-2", "process-3"} {
		if err := running.Start(ctx, name, o); err != nil {
			return err
		}
	}
	return endLeaders(ctx, locks, running)
}

// endLeaders ends two leaders, the first by kill -9 and the second gently, and prints
// each time the gap until the next one leads, by the server's clock.
func endLeaders(ctx context.Context, locks *mongolock.Client, running stage.Crew) error {
	ended, how := time.Time{}, []os.Signal{os.Kill, os.Interrupt}
	last := ""
	for leads, err := range leader.Watch(ctx, locks, key) {
		if err != nil {
			return err
		}
		if leads.Owner == "" || leads.Owner == last {
			continue // no leader, or the one that was ended
		}
		if last != "" {
			fmt.Printf("%s  took over %.2f s later\n", leads.Owner, leads.Since.Sub(ended).Seconds())
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
			fmt.Printf("%s  is killed with -9\n", leads.Owner)
		} else {
			fmt.Printf("%s  is told to stop, and hands over\n", leads.Owner)
		}
		last, ended = leads.Owner, seen.Now
		if err := running.End(last, how[0]); err != nil {
			return err
		}
		how = how[1:]
	}
	return context.Cause(ctx)
}
