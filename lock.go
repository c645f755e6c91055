package mongolock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/engine"
	"github.com/mongolock/mongolock/internal/errtext"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/leasectx"
	"github.com/mongolock/mongolock/store"
)

// A Locker grants leases, as *Client does. It is not a sync.Locker: granting can
// fail. Fakes for tests delegate to a client on memstore (see mongolocktest) or
// return errors.
type Locker interface {
	// Acquire waits until the key is granted, ctx ends or MaxWait is exceeded. Neither ctx
	// nor MaxWait limits the lease. It is not re-entrant: under a context that a lease of the
	// key made, as Do's, it does not wait, but returns ErrHeld.
	Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error)

	// TryAcquire asks for the key once. If others hold it, it returns a *HeldError.
	TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error)
}

// Do acquires key, runs fn with a context that ends with the lease, and releases.
//
// It returns the error of Acquire, or that of fn. If the lease ended while fn ran, the
// reason is joined to it (matching ErrLost, or ErrClosed). A failed release is only
// logged and retried: a finished job must not look failed. If fn panics, the lease is
// released too.
func Do(ctx context.Context, l Locker, key string, fn func(context.Context, *Lease) error, opts ...AcquireOption) error {
	if err := usable("Do", l, fn); err != nil {
		return err
	}
	lease, err := l.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// TryDo is Do without waiting: if others hold the key it returns false and no error.
func TryDo(ctx context.Context, l Locker, key string, fn func(context.Context, *Lease) error, opts ...AcquireOption) (ran bool, err error) {
	if err := usable("TryDo", l, fn); err != nil {
		return false, err
	}
	lease, err := l.TryAcquire(ctx, key, opts...)
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, lease.run(ctx, fn)
}

func usable(caller string, l Locker, fn func(context.Context, *Lease) error) error {
	switch {
	case l == nil:
		return fmt.Errorf("mongolock: %s: the locker is nil", caller)
	case fn == nil:
		return fmt.Errorf("mongolock: %s: fn is nil", caller)
	}
	return nil
}

// A Client grants leases from one store. It is safe for concurrent use: make one per process
// and collection, and share it. Its waiters for a key stand in one queue instead of competing
// with each other.
type Client struct {
	config  config
	engine  *engine.Engine
	store   store.Store
	unwatch func() // ends the observer's reading of the numbers

	closing atomic.Bool // the first Close is under way, or over
	closed  chan struct{}
	outcome error // what Close returns; set before closed is
}

// NewWithStore makes a client on any store. It sends nothing yet. An error names every bad
// option.
func NewWithStore(s store.Store, opts ...ClientOption) (*Client, error) {
	conf, err := newConfig(opts)
	if s == nil {
		err = errtext.Join(errors.New("mongolock: NewWithStore: the store is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	return newClient(s, conf), nil
}

func newClient(s store.Store, conf config) *Client {
	if of, ok := s.(inside.Packaged); ok {
		conf.Package = of.Package()
	}
	c := &Client{config: conf, engine: engine.New(s, conf.Config), store: s, unwatch: func() {}, closed: make(chan struct{})}
	if o, ok := c.observer().(StatsObserver); ok {
		if stop := o.Watch(c.Stats); stop != nil {
			c.unwatch = stop
		}
	}
	return c
}

// Acquire waits until the key is granted. It gives up when ctx ends (with an error that matches
// the context's and ErrHeld) or when MaxWait is exceeded (ErrHeld). Neither limits the lease.
// Acquire is not re-entrant: a second Acquire of a key that this process holds waits until the
// first is released. If its ctx is one that the lease of the key made, as for the function of Do,
// it would wait for itself, and returns ErrHeld at once, unless both share the key. Waiters of one
// client are served in order of arrival. If the store cannot be reached the first claim fails; a
// caller that waits already keeps waiting through faults.
//
// When ctx ends, Acquire returns at once. A claim that is under way is not cut off: if it is
// granted after all, it is given back.
func (c *Client) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return c.acquire(ctx, key, opts, c.await)
}

// TryAcquire asks for the key once. If others hold it, it returns a *HeldError.
func (c *Client) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	return c.acquire(ctx, key, opts, c.engine.Try)
}

func (c *Client) acquire(ctx context.Context, key string, opts []AcquireOption, how func(context.Context, string, *terms) (*engine.Hold, error)) (*Lease, error) {
	t, err := c.config.ask(key, opts)
	if err != nil {
		return nil, err
	}
	if err := c.engine.Ready(ctx, "acquire", key); err != nil {
		return nil, err
	}
	ctx, end := c.engine.Observe(ctx, engine.OpAcquire, key, t)
	hold, err := how(ctx, key, t)
	out := engine.Outcome{Err: err}
	if err != nil {
		end(out)
		return nil, err
	}
	out.Token, out.Count = hold.Token, 1
	end(out)
	return &Lease{hold}, nil
}

// await waits for a key. A caller that holds it already, as its context says, is not made to wait for itself: it may
// only share the key once more.
func (c *Client) await(ctx context.Context, key string, t *terms) (*engine.Hold, error) {
	err := c.nested(ctx, key)
	if err == nil {
		return c.engine.Acquire(ctx, key, t)
	}
	if t.Mode == store.Exclusive {
		return nil, err
	}
	hold, refusal := c.engine.Try(ctx, key, t)
	if errors.Is(refusal, ErrHeld) {
		refusal = err
	}
	return hold, refusal
}

// nested returns an error if the caller holds the key.
func (c *Client) nested(ctx context.Context, key string) error {
	for owner := range leasectx.Owners(ctx) {
		if l, ok := owner.(*Lease); ok && l.hold.Of(c.engine) && l.Key() == key && l.Err() == nil {
			return fmt.Errorf("%w: the caller itself holds it", &HeldError{Status: l.hold.Status(), Here: true})
		}
	}
	return nil
}

// Inspect shows the holders of a key. For a free key it returns a Status without live holders,
// and no error.
func (c *Client) Inspect(ctx context.Context, key string) (Status, error) {
	if err := checkText("key", key, 1, maxKey); err != nil {
		return Status{}, err
	}
	return c.engine.Look(ctx, "inspect", key)
}

// List yields the keys that begin with prefix, in order, with their holders. Holders that ran
// out and were not removed yet are among them: Status.Live tells. An error ends the list.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := c.engine.Ready(ctx, "list", prefix); err != nil {
			yield(Status{}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for s, err := range c.store.List(ctx, prefix) {
			if err != nil {
				yield(Status{}, &engine.Fault{Op: "list", Key: prefix, Err: err})
				return
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

// Break takes a key away from its holders, on an operator's order. It marks them, so that their
// next renewal ends their leases with ErrBroken and the reason. Then it waits until they have
// given up or run out, or until grace is over, and removes those that are left. Only a grace of
// at least a third of their TTL and a margin makes sure that they are told before the key is
// free. A holder that MinHold keeps was released, and is not waited for. With a negative grace no
// holder is removed: the key stays taken until they give up or run out.
//
// Break returns the holders that it marked. If ctx ends before grace is over they stay marked,
// and the error says so.
func (c *Client) Break(ctx context.Context, key, reason string, grace time.Duration) ([]Holder, error) {
	if err := errtext.Join(checkText("key", key, 1, maxKey), checkText("reason", reason, 1, maxNote)); err != nil {
		return nil, err
	}
	return c.engine.Break(ctx, key, reason, grace)
}

// Shutdown closes the client after giving holders time to finish. Calls that wait for a key end
// with ErrClosed, and the contexts of all leases are cancelled. Shutdown then waits until their
// holders have released them, or until ctx ends, and closes the client. It returns what Close
// returns, joined with the context's error if leases were left.
func (c *Client) Shutdown(ctx context.Context) error {
	return errtext.Join(c.engine.Shutdown(ctx), c.Close())
}

// Close ends every lease (ErrClosed), gives their holders one margin to stop, releases the
// leases that are left and waits for all background work. That takes at most the margin and 5
// s. The error names the leases and claims that are unsettled then; they run out in the
// database. No goroutine is left. Later calls return ErrClosed; closing twice is harmless. It
// releases 64 leases at a time: 10,000 take some 160 trips to the database.
//
// Close the client before its database connection.
func (c *Client) Close() error {
	if !c.closing.Swap(true) { // no sync.Once: a goroutine that waits for one is not durably blocked in a bubble of virtual time
		c.outcome = c.engine.Close()
		c.unwatch()
		close(c.closed)
	}
	<-c.closed
	return c.outcome
}

// Format shows the client's owner, whatever the verb. Otherwise package fmt would show the IDs of
// acquisitions, and a reader of an ID could end the lease.
func (c *Client) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "mongolock.Client(%s)", c.config.Owner)
}

// Feed returns the store's feed, which carries notices between processes, or nil if the store
// has none. The client sends and hears its wake-ups by itself: Feed is for packages with topics
// of their own, such as leader. Under WithoutFeed it sends notices and hears none.
func (c *Client) Feed() store.Feed { return c.engine.Feed() }

// within returns the client that a locker is or embeds, or nil.
func within(locker any) *Client {
	if c, ok := locker.(interface{ client() *Client }); ok {
		return c.client()
	}
	return nil
}

func (c *Client) client() *Client { return c }

// init shows the insides to other packages of this library, and its tests.
func init() {
	inside.Leases = func(client any) (leases []any) {
		for _, h := range client.(*Client).engine.Holds() {
			leases = append(leases, &Lease{h})
		}
		return leases
	}
	inside.Observer = func(locker any) any {
		if c := within(locker); c != nil {
			if o := c.observer(); o != nil {
				return o
			}
		}
		return unobserved{}
	}
	inside.TermsOf = func(locker any, key string, options any) (inside.Terms, error) {
		conf, _ := newConfig(nil)
		if c := within(locker); c != nil {
			conf = c.config
		}
		t, err := conf.ask(key, options.([]AcquireOption))
		if err != nil {
			return inside.Terms{}, err
		}
		return inside.Terms{Mode: t.Mode, Limit: t.Limit, MinHold: t.MinHold, MaxWait: t.MaxWait, MaxStall: t.MaxStall, Logger: conf.Logger, NoRenewal: t.NoRenewal, Note: t.Note}, nil
	}
	inside.Look = func(client any, key string) inside.Waiting {
		return client.(*Client).engine.Waiting(key)
	}
	inside.FeedLinger = func(client any, d time.Duration) { client.(*Client).engine.Linger(d) }
	inside.StoreExpiry = func(lease any) time.Time { return lease.(*Lease).hold.StoreExpiry() }
	inside.Abandon = func(lease any) { lease.(*Lease).hold.Abandon() }
}
