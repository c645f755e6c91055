package mongolock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/store"
)

// The bounds of what the client does on its own.
const (
	maxCall      = 10 * time.Second // of one store call
	releaseBound = 5 * time.Second  // of Release, and of Close beyond its margin
	batchSize    = 1000             // entries in one call
	closeWorkers = 16               // releases that Close has under way at once
)

// A Client grants leases from one store. Make one per process and collection and
// share it: it is safe for concurrent use, and its waiters stand in one queue per
// key instead of fighting each other.
type Client struct {
	config
	store  store.Store
	prompt bool      // the store answers at once
	began  time.Time // the clock: see moment
	keeper keeper
	ids    ids
	watch  watch
	feed   store.Feed // to announce on; nil: none, or refused for ever. Protected by mu

	// base is what store calls and background work run on; it ends when Close has
	// waited long enough.
	base     context.Context
	teardown context.CancelFunc

	draining   chan struct{} // closed when no new acquires are taken
	drained    atomic.Bool   // it is; set with mu held
	background sync.WaitGroup

	mu      sync.Mutex        // protects what follows; taken before a lease's own, never held across a store call
	closed  bool              // no new background work
	leases  *Lease            // a list of those that are not settled
	queues  map[string]*queue // who of this process holds what, and who waits for it
	spare   *queue            // an empty one among them, to use again
	idle    *waiter           // likewise
	waiting int               // waiters in all queues
	shy     map[string]moment // keys that the waiters here leave to others until then
	turns   map[string]streak // of keys whose permits were wanted by others as they were given back here
	unknown map[store.Ref]struct{}
	empty   chan struct{} // closed when leases is empty; made by noLeases

	closing bool // the first Close is under way, or over
	closeOK chan struct{}
	closeIs error // set before closeOK is closed
}

// NewWithStore makes a client on a store of your own. It sends nothing yet. All
// options are checked together.
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
		config:   conf,
		began:    time.Now().Add(-1), // no moment is zero
		store:    s,
		draining: make(chan struct{}),
		queues:   make(map[string]*queue),
		shy:      make(map[string]moment),
		turns:    make(map[string]streak),
		unknown:  make(map[store.Ref]struct{}),
		closeOK:  make(chan struct{}),
	}
	c.base, c.teardown = context.WithCancel(context.Background())
	_, c.prompt = s.(store.Prompt)
	c.keeper.client = c
	c.watch.client, c.watch.linger = c, feedIdle
	if c.feed = store.FeedOf(s); !conf.noFeed {
		c.watch.feed = c.feed
	}
	return c
}

// Acquire waits until the key is granted: until ctx ends (an error matching the
// context's and ErrHeld) or MaxWait is over (ErrHeld). Neither bounds the lease.
// It is not re-entrant: a second Acquire of a key that this process holds waits
// for the first to be released. Waiters of one client are served in order of
// arrival. A store out of reach fails its first step; once waiting it rides out
// faults.
//
// When ctx ends, Acquire returns at once. A claim that is on its way is not torn
// off: if it is granted after all, it is given back.
func (c *Client) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return c.acquire(ctx, key, opts, (*Client).await)
}

// TryAcquire asks once, and answers a *HeldError if others hold the key.
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
	ctx, end := c.observe(ctx, OpAcquire, key)
	lease, err := how(c, ctx, key, t)
	out := Outcome{Err: err}
	if err == nil {
		out.Token, out.Count = lease.token, 1
	}
	end(out)
	return lease, err
}

// ready refuses what must not be begun: nothing is sent for a context already done.
func (c *Client) ready(ctx context.Context, op, key string) error {
	if ctx.Err() != nil {
		return &fault{op: op, key: key, err: contextError(ctx)}
	}
	if c.drained.Load() {
		return &fault{op: op, key: key, err: ErrClosed}
	}
	return nil
}

// contextError is why ctx is over: its Err, with the cause if that says more.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Inspect shows who holds a key. A free key has no live holders and is no error.
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

// List yields the keys that begin with prefix, in order, with their holders;
// those that ran out and were not cleaned up yet are among them (Status.Live
// tells). An error ends it.
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

// Shutdown ends the client gently: waits end with ErrClosed, the contexts of all
// leases are cancelled, and it waits for their holders to release them until ctx
// ends. Then it closes the client and returns what Close returns, joined with the
// context's error if leases were left.
func (c *Client) Shutdown(ctx context.Context) error {
	c.drain()
	leases := c.unsettledLeases()
	for _, l := range leases {
		l.cancelContexts(ErrClosed)
	}
	var err error
	select {
	case <-c.noLeases():
	case <-ctx.Done():
		err = fmt.Errorf("mongolock: shutdown: leases left: %w", contextError(ctx))
	}
	return errors.Join(err, c.Close())
}

// Close ends every lease (ErrClosed), leaves their holders one margin to stop,
// releases what is left and waits for all background work: at most the margin and
// 5 s. What is unsettled then is named in the error and runs out by itself. No
// goroutine is left. Later calls return ErrClosed; closing twice is harmless.
//
// Close the client before the database connection it works on.
func (c *Client) Close() error {
	c.mu.Lock()
	first := !c.closing // a sync.Once would do, were it not for those who wait in a bubble of virtual time
	c.closing = true
	c.mu.Unlock()
	if first {
		c.closeIs = c.shut()
		close(c.closeOK)
	}
	<-c.closeOK
	return c.closeIs
}

func (c *Client) shut() error {
	c.drain()
	leases := c.unsettledLeases()

	var grace time.Duration
	for _, l := range leases {
		l.end(ErrClosed)
		grace = max(grace, l.untilGiveBack())
	}
	if grace > 0 {
		c.letHoldersStop(grace)
	}
	giveUp := time.AfterFunc(releaseBound, c.teardown)
	defer giveUp.Stop()
	giveBackAll(leases)
	c.keeper.stop()
	c.watch.stop()
	c.mu.Lock()
	c.closed = true // from here nothing new is begun, and Wait may be called
	c.mu.Unlock()
	c.background.Wait()
	c.teardown()
	return c.unsettled(leases)
}

// unsettled is what Close has to report: leases it ended that were lost, and what
// is left to run out by itself.
func (c *Client) unsettled(leases []*Lease) error {
	var errs []error
	for _, l := range leases {
		if settled, err := l.result(); settled && errors.Is(l.Err(), ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, l := range c.unsettledLeases() {
		_, err := l.result()
		errs = append(errs, fmt.Errorf("mongolock: close: %q is not released and runs out by itself: %w", l.key, err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref := range c.unknown {
		errs = append(errs, fmt.Errorf("mongolock: close: a claim of %q runs out by itself: %w", ref.Key, ErrOutcomeUnknown))
	}
	return errors.Join(errs...)
}

// enlist remembers l until it is settled. With c.mu held.
func (c *Client) enlist(l *Lease) {
	if l.next = c.leases; l.next != nil {
		l.next.prev = l
	}
	c.leases = l
}

// delist forgets it, and reports whether it was remembered. With c.mu held.
func (c *Client) delist(l *Lease) bool {
	switch {
	case l.prev != nil:
		l.prev.next = l.next
	case c.leases == l:
		c.leases = l.next
	default:
		return false
	}
	if l.next != nil {
		l.next.prev = l.prev
	}
	l.prev, l.next = nil, nil
	c.checkEmpty()
	return true
}

func (c *Client) unsettledLeases() []*Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*Lease
	for l := c.leases; l != nil; l = l.next {
		all = append(all, l)
	}
	return all
}

// letHoldersStop waits for the margin, or until every lease is given back.
func (c *Client) letHoldersStop(margin time.Duration) {
	timer := time.NewTimer(margin)
	defer timer.Stop()
	select {
	case <-c.noLeases():
	case <-timer.C:
	}
}

// noLeases is closed once every lease is given back; for use after drain.
func (c *Client) noLeases() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.empty == nil {
		c.empty = make(chan struct{})
		c.checkEmpty()
	}
	return c.empty
}

// checkEmpty closes the channel of noLeases when it is time. With c.mu held.
func (c *Client) checkEmpty() {
	if c.empty == nil || c.leases != nil {
		return
	}
	select {
	case <-c.empty:
	default:
		close(c.empty)
	}
}

// giveBackAll gives back what is not yet, some at a time. What fails goes on in
// the background.
func giveBackAll(leases []*Lease) {
	todo := make(chan *Lease, len(leases))
	for _, l := range leases {
		todo <- l
	}
	close(todo)
	var wg sync.WaitGroup
	for range min(closeWorkers, len(leases)) {
		wg.Go(func() {
			for l := range todo {
				_ = l.giveBack() // kept by the lease; see unsettled
			}
		})
	}
	wg.Wait()
}

// drain refuses new acquires and ends the waits.
func (c *Client) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.drained.Swap(true) {
		close(c.draining)
	}
}

// spawn runs f in the background, unless the client is closed already. Close
// waits for it.
func (c *Client) spawn(f func()) bool {
	if !c.enter() {
		return false
	}
	go func() {
		defer c.background.Done()
		f()
	}()
	return true
}

// enter counts the running goroutine among those that Close waits for; false if
// the client is closed. The caller owes a background.Done.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.enterLocked()
}

// enterLocked is enter, with c.mu held.
func (c *Client) enterLocked() bool {
	if c.closed {
		return false
	}
	c.background.Add(1)
	return true
}

// pause sleeps in the background; false if the client is being torn down.
func (c *Client) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.base.Done():
		return false
	}
}
