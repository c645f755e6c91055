// Package wake announces that keys are free, and hears of it, by a store's feed. It polls while the
// feed is not live.
//
// It knows neither leases nor the order of waiters: [Waiters] says which keys are waited for, and
// decides what each piece of news means.
package wake

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/tasks"
	"github.com/mongolock/mongolock/store"
)

// Keys are polled at these intervals: often at first, and while they change hands.
const (
	PollLeast = 50 * time.Millisecond
	PollMost  = time.Second
)

// announceAgain is how long nothing is announced after the store refused an announcement.
const announceAgain = time.Minute

// Waiters are those of one process, and its holders. The methods are called without a
// lock.
type Waiters interface {
	// Waiting reports whether there is any waiter.
	Waiting() bool
	// Keys returns the keys to read: those that are waited for, and not being asked for at the
	// moment. With again, a key that is being asked for is asked for once more: the answer under
	// way may be older than the news.
	Keys(again bool) []string
	// Read handles what a read showed of keys, and reports whether one is worth polling often.
	Read(all []store.Status) (often bool)
	// Ask asks for keys that could not be read.
	Ask(keys []string)
	// Offered says that it is the turn of a place, or without one of the key's waiter, and Next
	// that it is the next one's.
	Offered(key string, p store.Place)
	Next(key string, p store.Place)
	// Wanted says that another process waits for a key.
	Wanted(key string)
}

// A Host is what a Watch works for.
type Host struct {
	Clock   *monotonic.Clock
	Tasks   *tasks.Group
	Feed    store.Feed // nil: none
	Mute    bool       // the feed is not listened to
	Address string     // at which this process hears notices
	Look    func(ctx context.Context, keys []string) ([]store.Status, error)
	Call    time.Duration   // the longest that a call may take
	Batch   int             // the most keys in one read
	Still   time.Duration   // for how long a holder may be seen that has announced its release already
	Stop    <-chan struct{} // closed when nobody waits any more
	Waiters Waiters
	Logger  *slog.Logger
}

// A Watch learns when other processes free keys, and tells them of those that are freed here. It
// is safe for concurrent use, under any lock of its host but in Close.
//
// The Follower is joined for each key that is waited for, and for each holder that is told when it is wanted.
type Watch struct {
	*follow.Follower
	host Host
	deaf atomic.Bool // there is no feed, or it is not listened to
	asks askCount

	mu         sync.Mutex // protects what follows; a leaf: never held across a call of the host
	poll       *time.Timer
	polling    bool // the timer is set, or a poll is under way
	interval   time.Duration
	old        bool             // the feed is reopened only because it is old: one look is enough, when it is open
	quietUntil monotonic.Moment // nothing is announced until then, because the store refused to
}

// New makes a Watch. It opens nothing yet.
func New(h Host) *Watch {
	w := &Watch{host: h}
	feed := h.Feed
	if h.Mute {
		feed = nil
	}
	w.deaf.Store(feed == nil)
	w.Follower = follow.New(h.Tasks.Base(), feed, store.Audience{Address: h.Address}, w.heard, w.lost)
	return w
}

// Address returns where this process hears notices; empty if it hears none.
func (w *Watch) Address() string {
	if w.deaf.Load() {
		return ""
	}
	return w.host.Address
}

// Refused begins to poll for a key that is held, unless the feed is live. first says that the
// waiter has just joined the feed.
func (w *Watch) Refused(first bool) {
	if w.Live() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if first || w.interval == 0 {
		w.interval = PollLeast
	}
	w.pollSoon()
}

// Close ends the feed and the polls, once Stop is closed. It waits for the feed's callbacks.
func (w *Watch) Close() {
	w.mu.Lock()
	if w.poll != nil {
		w.poll.Stop()
	}
	w.mu.Unlock()
	w.Follower.Close()
}

// heard handles a notice of the feed.
func (w *Watch) heard(n store.Notice) {
	waiters := w.host.Waiters
	switch {
	case n == store.Notice{}: // the feed is live, but earlier releases and waiters were missed
		w.mu.Lock()
		old := w.old
		w.old = false
		w.mu.Unlock()
		if !old {
			w.lookAgain()
		}
		time.AfterFunc(w.host.Still, w.lookAgain) // the holders seen now may have announced their release already
	case n.Topic != store.TopicLocks:
	case n.Kind == store.KindOffered:
		waiters.Offered(n.Key, n.Place)
	case n.Kind == store.KindNext:
		waiters.Next(n.Key, n.Place)
	case n.Kind == store.KindMoved:
		waiters.Ask([]string{n.Key})
	case n.Kind == store.KindWanted:
		w.asks.of(n.Key).Add(1)
		waiters.Wanted(n.Key)
	}
}

// lost makes the waiters poll until the feed is back.
func (w *Watch) lost(loss follow.Loss) {
	w.deaf.Store(w.deaf.Load() || loss.Final)
	w.mu.Lock()
	w.old = loss.Err == nil
	w.mu.Unlock()
	w.Refused(true)
	switch {
	case loss.Final:
		w.host.Logger.Info("mongolock: the store has no wake-ups: waiters poll", "error", loss.Err)
	case loss.News:
		w.host.Logger.Warn("mongolock: wake-ups are interrupted: waiters poll meanwhile", "error", loss.Err)
	}
}

// pollSoon sets the timer of the next poll. Call it with mu held.
func (w *Watch) pollSoon() {
	select {
	case <-w.host.Stop:
		return
	default:
	}
	if w.polling {
		return
	}
	w.polling = true
	d := backoff.Jitter(w.interval)
	if w.poll == nil {
		w.poll = time.AfterFunc(d, func() { w.host.Tasks.Do(w.look) })
	} else {
		w.poll.Reset(d)
	}
}

// look polls: one read for all keys that are waited for.
func (w *Watch) look() {
	live, often, err := w.Live(), false, error(nil)
	if !live { // otherwise it became live after the timer was set
		often, err = w.read(w.host.Waiters.Keys(false)) // if it fails, the heads still ask when their plans say so
	}
	if errors.Is(err, store.ErrDisconnected) { // for good: they are told so
		w.host.Waiters.Ask(w.host.Waiters.Keys(true))
	}
	w.mu.Lock()
	w.polling = false
	w.mu.Unlock()
	if live || w.Live() || !w.host.Waiters.Waiting() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interval = min(2*w.interval, PollMost)
	if often {
		w.interval = PollLeast
	}
	w.pollSoon()
}

// lookAgain reads all keys that are waited for, in the background, because anything may have
// changed.
func (w *Watch) lookAgain() {
	keys := w.host.Waiters.Keys(true)
	w.host.Tasks.Go(func() {
		if _, err := w.read(keys); err != nil {
			w.host.Waiters.Ask(keys)
		}
	})
}

// read reads keys, many in one read, because thousands of heads that asked at once would overload
// the store.
func (w *Watch) read(keys []string) (often bool, err error) {
	for batch := range slices.Chunk(keys, w.host.Batch) {
		var all []store.Status
		if all, err = w.Look(batch...); err != nil {
			return often, err
		}
		often = w.host.Waiters.Read(all) || often
	}
	return often, nil
}

// Look reads keys.
func (w *Watch) Look(keys ...string) ([]store.Status, error) {
	ctx, cancel := w.host.Tasks.Within(context.Background(), w.host.Call)
	defer cancel()
	return w.host.Look(ctx, keys)
}

// Announces reports whether other processes are told of keys that are freed. They are if this one
// does not listen, too, as others may.
func (w *Watch) Announces() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.host.Feed != nil && (w.quietUntil == 0 || w.host.Clock.Now() >= w.quietUntil)
}

// Announce sends notices, in the background.
func (w *Watch) Announce(all ...store.Notice) {
	if len(all) == 0 || !w.Announces() {
		return
	}
	w.host.Tasks.Run(func() { w.announce(all) })
}

// TryAnnounce is Announce, or returns false if nothing is announced.
func (w *Watch) TryAnnounce(all ...store.Notice) bool {
	return w.Announces() && w.host.Tasks.Go(func() { w.announce(all) })
}

// announce sends notices in one call. A refusal may pass, as one for a quota does: after a minute
// it is tried again.
func (w *Watch) announce(all []store.Notice) {
	ctx, cancel := w.host.Tasks.Within(context.Background(), w.host.Call)
	defer cancel()
	switch err := w.host.Feed.Notify(ctx, all...); {
	case err == nil:
	case errors.Is(err, errors.ErrUnsupported):
		w.mu.Lock()
		first := w.quietUntil == 0
		w.quietUntil = w.host.Clock.Now().Add(announceAgain)
		w.mu.Unlock()
		if first { // otherwise the log has said so
			w.host.Logger.Info("mongolock: the store refuses wake-ups; they are tried again every minute", "key", all[0].Key, "notices", len(all), "error", err)
		}
	default:
		w.host.Logger.Debug("mongolock: a wake-up was not sent; waiters find out by themselves", "key", all[0].Key, "notices", len(all), "error", err)
	}
}
