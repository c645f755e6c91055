package leader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/store"
)

// poll is how often Watch looks if no notice comes: a leader that died sends none.
const poll = 30 * time.Second

// Without a feed, Watch looks more often while no process leads, as waiters do, because a
// candidate will lead soon.
const (
	pollLeast = 50 * time.Millisecond
	pollMost  = time.Second
)

// An Inspector shows who holds a key. *mongolock.Client is one.
type Inspector interface {
	// Inspect returns the holders of the key.
	Inspect(ctx context.Context, key string) (mongolock.Status, error)
}

// A Leader is the process that leads. The zero Leader says that no process leads.
type Leader struct {
	Owner string // the name that it gave its client by WithOwner
	ID    string // of the term
	Note  string // that it gave its term by With(mongolock.Note(…)): an endpoint, say
	Since time.Time
}

// Current returns the process that leads now.
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
			return Leader{Owner: h.Owner, ID: h.ID, Note: h.Note, Since: h.Since}, status.Left(), nil
		}
	}
	return Leader{}, 0, nil
}

// Watch yields the process that leads, now and whenever that changes, until ctx ends or the
// caller stops. If a look fails it yields the error and goes on: it does not know which process leads, and
// yields that at the next look that succeeds. Changes that follow each other closely may be seen as one.
//
// A change is seen with its notice, at once. Without a feed, the end of a term is seen when its
// lease would have run out, and the next leader within a second.
func Watch(ctx context.Context, in Inspector, key string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		news := make(chan struct{}, 1)
		feed := follow.New(ctx, feedOf(in), store.Audience{Topics: []string{topic}}, func(n store.Notice) {
			if n == (store.Notice{}) || n.Topic == topic && n.Key == key {
				hint(news)
			}
		}, func(follow.Loss) { hint(news) }) // the next look may otherwise be far away
		feed.Join()
		defer feed.Close()
		var last Leader
		pause := pollLeast
		for first := true; ; { // or the first since an error
			is, left, err := look(ctx, in, key)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if !yield(Leader{}, err) || in == nil {
					return
				}
				first, left = true, time.Second
			case first || is.ID != last.ID:
				first, last = false, is
				if !yield(is, nil) {
					return
				}
			}
			wait := poll
			switch {
			case left > 0:
				wait, pause = min(wait, left+time.Millisecond), pollLeast // a live leader has renewed by then
			case !feed.Live():
				wait, pause = pause, min(2*pause, pollMost)
			}
			if !waitFor(ctx, news, wait) {
				return
			}
		}
	}
}

// hint asks for a look, unless one is due already.
func hint(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}

func waitFor(ctx context.Context, news <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// feedOf returns the feed of a client's store, or nil if it has none.
func feedOf(client any) store.Feed {
	if c, ok := client.(interface{ Feed() store.Feed }); ok {
		return c.Feed()
	}
	return nil
}
