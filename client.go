package mongolock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/cleaner"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/keeper"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/places"
	"github.com/mongolock/mongolock/internal/suspend"
	"github.com/mongolock/mongolock/internal/tasks"
	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// These limit what a client does on its own.
const (
	maxCall      = 10 * time.Second // for one store call
	releaseBound = 5 * time.Second  // for a release or a notice, and for Close in addition to its margin
	batchSize    = 1000             // entries in one call
)

// A Client grants leases from one store. It is safe for concurrent use: make one per process
// and collection, and share it. Its waiters for a key stand in one queue instead of competing
// with each other.
//
// Locks are taken in this order: that of the queues; that of a component (returner, and the
// packages keeper, cleaner, places, wake, tasks); that of a holding. No store,
// observer, logger or other callback is called under any of them. The methods of queue, waiter and
// holdings are called with the queues locked.
type Client struct {
	config
	pkg      string // the package whose operations the observer sees: this one, or one built on it
	unwatch  func() // ends the observer's reading of the numbers
	store    store.Store
	clock    monotonic.Clock // counts the time for which the machine is suspended
	returner returner
	keeper   *keeper.Keeper
	watch    *wake.Watch

	background *tasks.Group
	cleaner    *cleaner.Cleaner // of claims of unknown outcome
	queues     queues

	closing atomic.Bool // the first Close is under way, or over
	closeOK chan struct{}
	closeIs error // what Close returns; set before closeOK is closed
}

// NewWithStore makes a client on any store. It sends nothing yet. An error names every bad
// option.
func NewWithStore(s store.Store, opts ...ClientOption) (*Client, error) {
	conf, err := newConfig(opts)
	if s == nil {
		err = errors.Join(errors.New("mongolock: NewWithStore: the store is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	return newClient(s, conf), nil
}

func newClient(s store.Store, conf config) *Client {
	c := &Client{
		config:  conf,
		pkg:     "mongolock",
		store:   s,
		closeOK: make(chan struct{}),
	}
	if of, ok := s.(inside.Packaged); ok {
		c.pkg = of.Package()
	}
	c.background = tasks.New(&c.clock)
	c.keeper = keeper.New(keeper.Host{Clock: &c.clock, Tasks: c.background, Send: c.sendRenewals})
	c.returner.client, c.returner.repeats = c, make(chan struct{}, repeatMost)
	qs := &c.queues
	qs.clock, qs.tasks, qs.draining = &c.clock, c.background, make(chan struct{})
	qs.watchdog.Run, qs.watchdog.Busy, qs.watchdog.Slept = c.background.Do, qs.busy, c.afterSleep
	c.measure(suspend.New())
	qs.places = places.New(places.Host{
		Clock: &c.clock, Tasks: c.background,
		Leave: c.leaveLine,
	})
	c.cleaner = cleaner.New(cleaner.Host{
		Clock: &c.clock, Tasks: c.background, Call: maxCall, Undo: s.Undo, Freed: c.freed, Stop: qs.draining, Logger: conf.logger,
	})
	c.watch = wake.New(wake.Host{
		Clock: &c.clock, Tasks: c.background, Feed: store.FeedOf(s), Mute: conf.noFeed, Look: s.Look, Call: releaseBound, Batch: batchSize, Address: rand.Text()[:8],
		Still: besideStill, Stop: qs.draining, Waiters: qs, Logger: conf.logger,
	})
	qs.watch, qs.cleaner = c.watch, c.cleaner
	c.watchStats()
	return c
}

// measure makes the client's clock count what m measures.
func (c *Client) measure(m suspend.Meter) {
	c.clock, c.queues.watchdog.Meter = monotonic.CountingSleep(m), m
}

// afterSleep ends the leases that ran out while the machine slept. It sets the timers of the
// others by the time that has passed, which renews those that are due. It also reads the keys
// that are waited for: their wake-ups may have been missed.
func (c *Client) afterSleep() {
	c.keeper.Rearm()
	c.queues.askAll()
	for _, h := range c.queues.unsettled() {
		h.expire()
	}
}

// Acquire waits until the key is granted. It gives up when ctx ends (with an error that matches
// the context's and ErrHeld) or when MaxWait is over (ErrHeld). Neither limits the lease.
// Acquire is not re-entrant: a second Acquire of a key that this process holds waits until the
// first is released. If its ctx is one that the lease of the key made, as for the function of Do,
// it would wait for itself, and returns ErrHeld at once, unless both share the key. Waiters of one
// client are served in order of arrival. If the store cannot be reached the first claim fails; a
// caller that waits already keeps waiting through faults.
//
// When ctx ends, Acquire returns at once. A claim that is under way is not cut off: if it is
// granted after all, it is given back.
func (c *Client) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return c.acquire(ctx, key, opts, (*Client).awaitNested)
}

// TryAcquire asks for the key once. If others hold it, it returns a *HeldError.
func (c *Client) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return c.acquire(ctx, key, opts, (*Client).try)
}

func (c *Client) acquire(ctx context.Context, key string, opts []AcquireOption, how func(*Client, context.Context, string, *terms) (*Lease, error)) (*Lease, error) {
	t, err := c.ask(key, opts)
	if err != nil {
		return nil, err
	}
	if err := c.ready(ctx, "acquire", key); err != nil {
		return nil, err
	}
	ctx, end := c.observe(ctx, OpAcquire, key, t)
	lease, err := how(c, ctx, key, t)
	out := Outcome{Err: err}
	if err == nil {
		out.Token, out.Count = lease.Token(), 1
	}
	end(out)
	return lease, err
}

// ready refuses a call whose context has ended already, or whose client is closed, before
// anything is sent.
func (c *Client) ready(ctx context.Context, op, key string) error {
	if ctx.Err() != nil {
		return &fault{op: op, key: key, err: &abandoned{contextError(ctx)}}
	}
	if c.queues.drained.Load() {
		return &fault{op: op, key: key, err: ErrClosed}
	}
	return nil
}

// contextError returns why ctx has ended: its Err, with its cause if that says more.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case cause == nil || errors.Is(cause, err):
		return err
	case errors.Is(cause, errPatience): // of AcquireAll: no context of the caller's has ended
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Inspect shows the holders of a key. For a free key it returns a Status without live holders,
// and no error.
func (c *Client) Inspect(ctx context.Context, key string) (Status, error) {
	return c.look(ctx, "inspect", key)
}

func (c *Client) look(ctx context.Context, op, key string) (Status, error) {
	if err := checkText("key", key, 1, maxKey); err != nil {
		return Status{}, err
	}
	if err := c.ready(ctx, op, key); err != nil {
		return Status{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	all, err := c.store.Look(ctx, []string{key})
	if err != nil {
		return Status{}, &fault{op: op, key: key, err: err}
	}
	return all[0], nil
}

// List yields the keys that begin with prefix, in order, with their holders. Holders that ran
// out and were not removed yet are among them: Status.Live tells. An error ends the list.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := c.ready(ctx, "list", prefix); err != nil {
			yield(Status{}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for s, err := range c.store.List(ctx, prefix) {
			if err != nil {
				yield(Status{}, &fault{op: "list", key: prefix, err: err})
				return
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

// Format shows the client's owner, whatever the verb. Otherwise package fmt would show the IDs of
// acquisitions, and a reader of an ID could end the lease.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "mongolock.Client(%s)", c.owner) }

// Feed returns the store's feed, which carries notices between processes, or nil if the store
// has none. The client sends and hears its wake-ups by itself: Feed is for packages with topics
// of their own, such as leader. Under WithoutFeed it sends notices and hears none.
func (c *Client) Feed() store.Feed {
	feed := store.FeedOf(c.store)
	if feed != nil && c.noFeed {
		return wake.SendOnly{Feed: feed}
	}
	return feed
}
