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
	resizeMost  = 5 * time.Second        // that Resize waits for a worker to come again
	resizeNone  = 2 * time.Second        // the same if there was none, as one may have lost its seat just now
	resizeOver  = time.Second            // after which a Resize that is not seen any longer has given up

	// A Resize that waits says so every ten seconds at least. One that died must not stop the work for
	// as long as its place counts.
	resizeSeen = 15 * time.Second
)

var errNotAgain = fmt.Errorf("the workers have stopped, and none has come again in %v: their number of partitions may be the old one", resizeMost)

// Resize changes the number of partitions of the workers that run: all stop, then they start again,
// and Partition.N tells the work the new number. It returns when all have stopped and the first has
// started. If no worker runs, or all have that number, it changes nothing. If none starts again within
// seconds, because all have ended or are cut off from the database, it returns an error: then the first
// that comes decides. Processes that start later have to be given the new number, so call Resize before
// they are deployed.
func Resize(ctx context.Context, client *mongolock.Client, name string, n int) error {
	if err := usable("Resize", client, name); err != nil {
		return err
	}
	if err := usableSize("Resize", n); err != nil {
		return err
	}
	if err := change(ctx, client, name, n); err != nil {
		return fmt.Errorf("assign: resize %q: %w", name, err)
	}
	return nil
}

func change(ctx context.Context, client *mongolock.Client, name string, n int) error {
	one, err := client.Acquire(ctx, name+"/resize", ours()...) // one after the other
	if err != nil {
		return err
	}
	defer func() { _ = one.Release() }()
	before, err := readSeats(ctx, client, name)
	if err != nil {
		return err
	}
	if len(before.Workers) > 0 && len(before.Partitions) == n && !before.resizing {
		return nil
	}
	most, none := resizeMost, errNotAgain
	if len(before.Partitions) == 0 && !before.resizing {
		most, none = resizeNone, nil
	}
	note := fmt.Sprintf(resizeNote, n)
	for {
		if err := stopAll(ctx, client, name, note); err != nil {
			return err
		}
		// With a seat for the new number no worker keeps one for another.
		seat, err := takeSeat(ctx, client, name, n, nil, note)
		if err != nil {
			return err
		}
		if seat == nil {
			continue // a worker with the old number was quicker
		}
		defer func() { _ = seat.Release() }()
		break
	}
	announce(client, name)
	for began := time.Now(); time.Since(began) < most; {
		s, err := readSeats(ctx, client, name)
		switch {
		case err != nil:
			return err
		case len(s.Workers) > 0 && len(s.Partitions) != n: // the seat was removed
			return fmt.Errorf("workers with %d partitions were quicker: try it again", len(s.Partitions))
		case len(s.Workers) > 0:
			return nil
		}
		if !backoff.Sleep(ctx, resizePause) {
			return ctx.Err()
		}
	}
	return none
}

// stopAll returns when no worker has a seat.
func stopAll(ctx context.Context, client *mongolock.Client, name, note string) error {
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
	all, err := client.Acquire(ctx, name+seats, append(ours(), mongolock.Note(note))...)
	close(asked)
	<-told
	if err != nil {
		return err
	}
	return all.Release()
}
