package assign

import (
	"context"
	"fmt"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
)

const (
	resizePause = 100 * time.Millisecond // between two looks while the number changes
	resizeMost  = 5 * time.Second        // that Resize waits for workers to come again

	// A Resize that waits says so every ten seconds at least. One that died must not stop the work for
	// as long as its place counts.
	resizeSeen = 15 * time.Second
)

// Resize changes the number of partitions of the workers that run: all stop, then they start again,
// and Partition.N tells the work the new number. It returns when all have stopped and most wait to
// start. If no worker runs, it changes nothing. Processes that start later have to be given the new
// number, so call Resize before they are deployed. Call it on a client that runs no worker of the
// name, and while no worker is cut off from the database: that one would know the old number only.
func Resize(ctx context.Context, client *mongolock.Client, name string, n int) error {
	if err := usable("Resize", client, name); err != nil {
		return err
	}
	if err := usableSize("Resize", n); err != nil {
		return err
	}
	one, err := client.Acquire(ctx, name+"/resize") // one after the other
	if err != nil {
		return fmt.Errorf("assign: resize %q: %w", name, err)
	}
	defer func() { _ = one.Release() }()
	before, err := readSeats(ctx, client, name)
	if err != nil {
		return fmt.Errorf("assign: resize %q: %w", name, err)
	}
	asked := make(chan struct{})
	told := make(chan struct{})
	go func() { // Acquire does not say when it stands in line, which is what workers look for
		defer close(told)
		for again := true; again; {
			announce(client, name)
			select {
			case <-asked:
				again = false
			case <-time.After(resizePause):
			}
		}
	}()
	all, err := client.Acquire(ctx, name+seats, mongolock.Note(fmt.Sprintf(resizeNote, n)))
	close(asked)
	<-told
	if err != nil {
		return fmt.Errorf("assign: resize %q: %w", name, err)
	}
	// Whoever comes first decides on the number, so those come first that know it.
	wait, cancel := context.WithTimeout(all.Context(ctx), resizeMost)
	defer cancel()
	for backoff.Sleep(wait, resizePause) {
		status, err := client.Inspect(wait, name+seats)
		if err == nil && len(status.Waiting("", "")) >= min(n, len(before.Workers)) {
			break
		}
	}
	if err := all.Release(); err != nil {
		return fmt.Errorf("assign: resize %q: %w", name, err)
	}
	announce(client, name)
	return nil
}

// newSize finds out the number of partitions after a Resize. It returns false if ctx has ended.
func (r *run) newSize(ctx context.Context) bool {
	r.resized = true
	for {
		switch s, err := readSeats(ctx, r.client, r.name); {
		case err != nil:
		case s.resized > 0:
			r.n = s.resized
			return true
		case len(s.Workers) > 0 && !s.resizing:
			r.n = len(s.Partitions)
			return true
		case !s.resizing: // it gave up
			return true
		}
		if !backoff.Sleep(ctx, resizePause) {
			return false
		}
	}
}
