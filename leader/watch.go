package leader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

// Poll is how often Watch looks where no notice comes: a leader that died sends
// none. It looks as well when the leader it saw would have run out.
const Poll = 30 * time.Second

// Where there is no feed, it looks more often while nobody leads, as those do who
// wait for the key: somebody will soon.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// An Inspector shows who holds a key. *mongolock.Client is one.
type Inspector interface {
	Inspect(ctx context.Context, key string) (mongolock.Status, error)
}

// A Leader is who leads. Zero: nobody does.
type Leader struct {
	Owner string // as its client's WithOwner says
	ID    string // of the term
	Since time.Time
}

// Current is who leads now.
func Current(ctx context.Context, in Inspector, key string) (Leader, error) {
	l, _, err := look(ctx, in, key)
	return l, err
}

func look(ctx context.Context, in Inspector, key string) (Leader, time.Duration, error) {
	if in == nil {
		return Leader{}, 0, errors.New("leader: the inspector is nil")
	}
	status, err := in.Inspect(ctx, key)
	if err != nil {
		return Leader{}, 0, fmt.Errorf("leader: %w", err)
	}
	for _, h := range status.Holders {
		if status.Live(h) {
			return Leader{Owner: h.Owner, ID: h.ID, Since: h.Since}, status.Left(), nil
		}
	}
	return Leader{}, 0, nil
}

// Watch yields who leads, now and whenever that changes, until ctx ends or the
// caller stops. An error is yielded, and the watch goes on: between two looks that
// fail it does not know. Changes that follow each other closely may be seen as one.
//
// A change comes with a notice, at once. Where the store has none, the end of a term
// is seen when its lease would have run out, and the next leader within a second.
func Watch(ctx context.Context, in Inspector, key string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		heard, deaf := make(chan struct{}, 1), make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			listen(ctx, feedOf(in), key, heard)
			close(deaf)
			hint(heard) // the look before may be followed by a long wait
		}()
		defer func() { cancel(); <-done }()
		var last Leader
		pause := firstPause
		for first := true; ; {
			is, left, err := look(ctx, in, key)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if !yield(Leader{}, err) || in == nil {
					return
				}
				left = time.Second
			case first || is.ID != last.ID:
				first, last = false, is
				if !yield(is, nil) {
					return
				}
			}
			wait := Poll
			switch {
			case left > 0:
				wait, pause = min(wait, left+time.Millisecond), firstPause // it will have been renewed, if it lives
			case isClosed(deaf):
				wait, pause = pause, min(2*pause, mostPause)
			}
			if !waitFor(ctx, heard, wait) {
				return
			}
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// hint asks for a look, unless one is due already.
func hint(heard chan<- struct{}) {
	select {
	case heard <- struct{}{}:
	default:
	}
}

func waitFor(ctx context.Context, heard <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-heard:
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// listen passes notices on, and reopens the feed when it ends, until ctx does or
// there turns out to be none.
func listen(ctx context.Context, feed store.Feed, key string, heard chan<- struct{}) {
	for pause := 100 * time.Millisecond; feed != nil; pause = min(2*pause, 10*time.Second) {
		for n, err := range feed.Watch(ctx) {
			if errors.Is(err, errors.ErrUnsupported) {
				return
			}
			if err != nil {
				break
			}
			pause = 100 * time.Millisecond
			if n == (store.Notice{}) || n.Topic == Topic && n.Key == key {
				hint(heard)
			}
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// feedOf is the feed behind a client, if it has one.
func feedOf(client any) store.Feed {
	if c, ok := client.(interface{ Feed() store.Feed }); ok {
		return c.Feed()
	}
	return nil
}
