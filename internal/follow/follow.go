// Package follow reads a store's feed while it is needed.
//
// A [Follower] opens the feed with the first waiter, opens it again when it breaks, with
// growing pauses, and closes it once there has been no waiter for a while. Notices are hints,
// and the feed has gaps: [Follower.Live] says whether it is being read at this moment. While it
// is not, a waiter has to poll.
//
// The order that loses no notice is: Join, look, wait. The empty notice that follows the
// opening of the feed makes up for those announced before.
package follow

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/store"
)

const (
	// Linger is how long, by default, a feed stays open that is not needed. Opening it costs
	// more than a few notices do.
	Linger = 30 * time.Second

	// Firm is how long a feed has to be live before trouble with it is over. A feed that opens
	// and breaks again sooner is flapping: its pauses go on growing, and the log has one line
	// about it.
	Firm = 10 * time.Second

	// Reopen is about how long a feed stays open before it is opened again. Nothing tells that
	// a feed has come to a stop: a server that is no longer the primary, and does not know it,
	// still answers, and hears nothing.
	Reopen = 5 * time.Minute

	// The pauses between two attempts to open a feed.
	pauseLeast = 100 * time.Millisecond
	pauseMost  = 5 * time.Second
)

// A Loss is the end of a feed that is still needed.
type Loss struct {
	Err   error // nil: the feed ended by itself, or is reopened because it is old
	Final bool  // Err matches errors.ErrUnsupported: the store has no feed, and is not asked again
	News  bool  // the feed was live, and this is not the same trouble as before: worth a line in the log
}

// A Follower reads one feed. It is safe for concurrent use.
type Follower struct {
	// Linger is how long the feed stays open after the last waiter has left. It may be
	// changed before the first Join.
	Linger time.Duration

	feed   store.Feed
	of     store.Audience
	heard  func(store.Notice)
	lost   func(Loss)
	base   context.Context
	cancel context.CancelFunc

	mu       sync.Mutex // protects what follows; never held in a callback
	waiters  int
	reading  bool               // the goroutine that reads is running
	stop     context.CancelFunc // ends it
	live     bool
	final    bool // the store has no feed
	idle     *time.Timer
	readings sync.WaitGroup

	// These belong to the goroutine that reads; there is one at a time.
	pauses *backoff.Backoff
	again  time.Time // the next attempt is not before this
	said   bool      // the loss of the feed was reported
}

// New makes a Follower of feed, which may be nil: then it is never live. It opens nothing yet.
//
// heard is called with each notice for the audience, and maybe with others. An empty one says that the feed is live, and that earlier
// notices may be missing: look at everything. lost, which may be nil, is called when the feed
// breaks. Both are called by one goroutine, which holds no lock, and no longer once Close has
// returned.
//
// The feed is read on a context made from base, whose end ends the Follower.
func New(base context.Context, feed store.Feed, of store.Audience, heard func(store.Notice), lost func(Loss)) *Follower {
	f := &Follower{
		Linger: Linger, feed: feed, of: of, heard: heard, lost: lost, final: feed == nil,
		pauses: backoff.New(pauseLeast, pauseMost),
	}
	f.base, f.cancel = context.WithCancel(base)
	return f
}

// Join says that one more waiter needs the feed, until it calls Leave. The Leave may come before its Join, as the two
// may be called by different goroutines.
func (f *Follower) Join() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiters++; f.waiters > 0 {
		f.begin()
	}
}

// Leave takes a Join back.
func (f *Follower) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiters--
	switch {
	case f.waiters > 0 || !f.reading || f.base.Err() != nil: // at the end the reader goes by itself
	case f.Linger <= 0:
		f.end()
	case f.idle == nil:
		f.idle = time.AfterFunc(f.Linger, f.endIfIdle)
	default:
		f.idle.Reset(f.Linger)
	}
}

// Live reports whether the feed is being read. If not, a waiter has to poll.
func (f *Follower) Live() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live
}

// State says how the feed is.
func (f *Follower) State() store.FeedState {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.final:
		return store.FeedNone
	case f.live:
		return store.FeedLive
	case f.reading && f.waiters > 0:
		return store.FeedOpening
	}
	return store.FeedIdle
}

// End closes the feed for good, and does not wait for it. Later calls of Join do
// nothing.
func (f *Follower) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancel()
	f.live = false
	if f.idle != nil {
		f.idle.Stop()
	}
}

// Close is End, and waits until the goroutine that reads the feed has returned. It
// must not be called from a callback, nor with a lock held that one of them takes.
func (f *Follower) Close() {
	f.End()
	f.readings.Wait()
}

func (f *Follower) endIfIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiters == 0 && f.reading {
		f.end()
	}
}

// begin starts reading, unless that is under way. Call it with mu held.
func (f *Follower) begin() {
	if f.reading || f.final || f.base.Err() != nil {
		return
	}
	var ctx context.Context
	ctx, f.stop = context.WithCancel(f.base)
	f.reading = true
	f.readings.Go(func() { f.read(ctx) })
}

// end stops reading. The feed counts as lost at once: a waiter that joins now misses notices
// until the feed is opened again. Call it with mu held.
func (f *Follower) end() {
	f.stop()
	f.live = false
}

// read keeps the feed open until ctx ends or the store says that it has none.
func (f *Follower) read(ctx context.Context) {
	for {
		backoff.Sleep(ctx, time.Until(f.again))
		since, err := f.listen(ctx)
		old := errors.Is(err, errOld)
		if !since.IsZero() && time.Since(since) >= Firm {
			f.pauses.Reset()
			f.said = false
		}
		if f.over(ctx) {
			return
		}
		loss := Loss{Err: err, Final: errors.Is(err, errors.ErrUnsupported), News: !since.IsZero() && !f.said}
		if old {
			loss, f.again = Loss{}, time.Now()
		} else {
			f.again = time.Now().Add(f.pauses.Next())
		}
		f.said = f.said || loss.News
		f.mu.Lock()
		f.live = false
		if loss.Final {
			f.reading, f.final = false, true
			f.stop()
		}
		f.mu.Unlock()
		if f.lost != nil {
			f.lost(loss)
		}
		if loss.Final {
			return
		}
	}
}

// over reports whether reading was stopped, and begins again for a waiter that joined
// meanwhile.
func (f *Follower) over(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading, f.live = false, false
	if f.waiters > 0 {
		f.begin()
	}
	return true
}

var errOld = errors.New("the feed was open for long")

// listen reads the feed until it ends, or is old. It returns since when the feed was live, or
// zero if it never was.
func (f *Follower) listen(ctx context.Context) (since time.Time, err error) {
	if ctx.Err() != nil {
		return since, ctx.Err()
	}
	reading, stop := context.WithCancelCause(ctx)
	defer func() {
		if ctx.Err() == nil && context.Cause(reading) == errOld { //nolint:errorlint // the exact sentinel, not wrapped
			err = errOld
		}
		stop(nil)
	}()
	for n, err := range f.feed.Watch(reading, f.of) {
		if err != nil {
			return since, err
		}
		if n == (store.Notice{}) && f.opened(ctx) && since.IsZero() {
			since = time.Now()
			defer time.AfterFunc(backoff.Jitter(Reopen), func() { stop(errOld) }).Stop()
		}
		f.heard(n)
	}
	return since, nil
}

// opened records that the feed is live, unless reading was stopped.
func (f *Follower) opened(ctx context.Context) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = ctx.Err() == nil
	return f.live
}
