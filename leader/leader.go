package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

// pkg names this package to observers.
const pkg = "leader"

// The notices that leaders send. Their key is the candidates' key.
const (
	topic        = "leaders"
	kindElected  = "elected"
	kindResigned = "resigned"
)

var (
	// ErrResigned is the cause of a term's context after Resign, or when this process made room
	// for a candidate of a higher priority.
	ErrResigned = errors.New("leader: resigned")

	// ErrRunning is returned by Run of a Candidate that is running already.
	ErrRunning = errors.New("leader: the candidate is running already")

	errPanicked = errors.New("leader: the work panicked")
	errHidden   = errors.New("leader: the lease that shows this candidate's priority is over")
)

const (
	standAside   = time.Second     // how long a process that resigned leaves the key to others
	announceTime = 5 * time.Second // the bound of a notice

	// The pauses between two attempts to acquire.
	pauseLeast = 100 * time.Millisecond
	pauseMost  = 5 * time.Second
)

// A Term is one period in which this process leads.
type Term struct{ lease *mongolock.Lease }

// Token returns the term's fencing token, greater than those of all earlier terms.
func (t Term) Token() int64 { return t.lease.Token() }

// Lease returns the lease that the term rests on.
func (t Term) Lease() *mongolock.Lease { return t.lease }

// A Func is the work of a leader. It is called once in each term.
type Func func(ctx context.Context, term Term) error

// Run makes a Candidate with [New] and calls its Run, for a program that asks nothing
// of the Candidate meanwhile.
func Run(ctx context.Context, client *mongolock.Client, key string, fn Func, opts ...Option) error {
	c, err := New(client, key, opts...)
	if err != nil {
		return err
	}
	return c.Run(ctx, fn)
}

// A Candidate is this process's part in the election of one leader for a key. It is
// safe for concurrent use.
type Candidate struct {
	config
	client   *mongolock.Client
	key      string
	observer mongolock.Observer // the client's

	mu      sync.Mutex // protects what follows; never held across a call
	running bool
	lease   *mongolock.Lease // of the term
	resign  func()           // ends the term's work; nil: there is no term
	over    chan struct{}    // closed when the key is given back
	told    time.Time        // when fn was told to stop; zero: it was not, or does not run

	preferred preferred // used by Run, and by its terms
}

// New makes a Candidate. It sends nothing yet. All options are checked together.
func New(client *mongolock.Client, key string, opts ...Option) (*Candidate, error) {
	switch {
	case client == nil:
		return nil, errors.New("leader: New: the client is nil")
	case key == "":
		return nil, errors.New("leader: New: the key is empty")
	}
	conf, err := newConfig(client, key, opts)
	if err != nil {
		return nil, err
	}
	observer, _ := inside.Observer(client).(mongolock.Observer)
	return &Candidate{config: conf, client: client, key: key, observer: observer, preferred: preferred{key: preferredKey(key)}}, nil
}

// Run waits until this process leads, and calls fn. It repeats both whenever the term was lost
// or resigned; an error of fn that has another reason is then logged. If fn returns while this
// process leads, Run returns fn's error: the process has given up for good. When ctx ends Run waits
// for fn, and returns nil, or an error of fn that is not about that end: its last batch was not
// written, say.
//
// Run waits for as long as it takes, also for a database that is out of reach: MaxWait of the client does
// not apply. It returns errors that will not pass: mongolock.ErrForeign, ErrModeMismatch, ErrClosed and
// ErrDisconnected.
func (c *Candidate) Run(ctx context.Context, fn Func) error {
	if fn == nil {
		return errors.New("leader: Run: fn is nil")
	}
	if !c.begin() {
		return ErrRunning
	}
	defer c.end()
	var background sync.WaitGroup
	defer background.Wait()
	pauses := backoff.New(pauseLeast, pauseMost)
	standing := context.WithValue(ctx, inside.ShownKey{}, inside.Shown{Package: pkg})
	for {
		if c.prepare != nil {
			if err := c.prepare(ctx); err != nil && ctx.Err() == nil {
				c.logger.Warn("leader: this process is not ready to lead, trying again", "key", c.key, "error", err)
				if backoff.Sleep(ctx, pauses.Next()) {
					continue
				}
			}
			if ctx.Err() != nil {
				return nil
			}
		}
		lease, err := c.stand(standing, &background)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case lasting(err):
			return fmt.Errorf("leader: %q: %w", c.key, err)
		default:
			c.logger.Warn("leader: acquiring the key failed, trying again", "key", c.key, "error", err)
			if !backoff.Sleep(ctx, pauses.Next()) {
				return nil
			}
			continue
		}
		pauses.Reset()
		if c.passOn(ctx, lease) {
			backoff.Sleep(ctx, standAside)
			continue
		}
		again, err := c.serve(ctx, lease, fn)
		if !again || ctx.Err() != nil {
			return err
		}
	}
}

// lasting reports whether an error will be there the next time, too.
func lasting(err error) bool {
	return slices.ContainsFunc([]error{mongolock.ErrForeign, mongolock.ErrModeMismatch, mongolock.ErrClosed, mongolock.ErrDisconnected},
		func(lasting error) bool { return errors.Is(err, lasting) })
}

// serve runs fn for one term. again reports that the term ended before fn gave up by itself.
func (c *Candidate) serve(ctx context.Context, lease *mongolock.Lease, fn Func) (again bool, err error) {
	base := ctx
	if c.await > 0 {
		base = context.WithoutCancel(ctx)
	}
	parent, recall := context.WithCancelCause(base)
	defer recall(nil)
	resign := func() { recall(ErrResigned) }
	if c.await > 0 {
		resign = sync.OnceFunc(func() {
			go func() { // ends with the term
				c.successor(lease)
				recall(ErrResigned)
			}()
		})
		defer context.AfterFunc(ctx, func() {
			c.successor(lease)
			recall(context.Cause(ctx))
		})()
	}
	over := make(chan struct{})
	var notices, watch sync.WaitGroup
	looking, stopLooking := context.WithCancel(parent)
	defer stopLooking()
	if c.yields {
		watch.Go(func() { c.makeRoom(looking, lease, recall) })
	}
	c.mu.Lock()
	c.lease, c.resign, c.over = lease, resign, over
	c.mu.Unlock()
	defer func() {
		stopLooking()
		watch.Wait()
		c.mu.Lock()
		c.lease, c.resign, c.over = nil, nil, nil
		c.mu.Unlock()
		c.release(lease)
		close(over)
		notices.Go(func() { c.announce(kindResigned) })
		notices.Wait()
		if again && errors.Is(context.Cause(parent), ErrResigned) {
			backoff.Sleep(ctx, standAside)
		}
	}()
	notices.Go(func() { c.announce(kindElected) })
	err = c.lead(parent, lease, fn)
	switch {
	case ctx.Err() != nil:
		if errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)) || cutShort(err) {
			err = nil // fn stopped because it was told to
		}
		return false, err
	case lease.Err() != nil, parent.Err() != nil:
		if err != nil && !cutShort(err) {
			c.logger.Warn("leader: the work failed while its term ended; this process stands again", "key", c.key, "error", err)
		}
		return true, nil
	}
	return false, err
}

// release gives a lease back.
func (c *Candidate) release(lease *mongolock.Lease) {
	if err := lease.Release(); err != nil && !errors.Is(err, mongolock.ErrLost) {
		c.logger.Warn("leader: the key is not released yet, retrying in the background", "key", lease.Key(), "error", err)
	}
}

// cutShort reports whether work failed because its term ended.
func cutShort(err error) bool {
	for _, end := range []error{context.Canceled, mongolock.ErrLost, mongolock.ErrReleased, mongolock.ErrClosed, ErrResigned} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// lead calls fn, and tells the observer and the health check.
func (c *Candidate) lead(parent context.Context, lease *mongolock.Lease, fn Func) (err error) {
	shown, end := c.observer.Begin(parent, mongolock.Operation{Op: mongolock.OpRun, Package: pkg, Key: c.key})
	term := lease.Context(shown)
	returned, done := c.watchHealth(term), false
	defer func() {
		returned()
		why := err
		switch {
		case !done:
			why = errPanicked
		case lease.Err() != nil:
			why = lease.Err()
		case errors.Is(context.Cause(parent), ErrResigned):
			why = fmt.Errorf("%w: %w", ErrResigned, mongolock.ErrReleased)
		case parent.Err() != nil:
			why = parent.Err()
		}
		end(mongolock.Outcome{Err: why, Token: lease.Token(), Count: 1})
	}()
	err = fn(term, Term{lease})
	done = true
	return err
}

// announce sends a notice to the watchers.
func (c *Candidate) announce(kind string) {
	feed := c.client.Feed()
	if feed == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), announceTime)
	defer cancel()
	_ = feed.Notify(ctx, store.Notice{Topic: topic, Key: c.key, Kind: kind}) // only a hint: watchers also look by themselves
}

// IsLeader reports whether this process leads now, by the term's deadline. An instant later it
// may no longer lead: work that must not be done twice has to have its token checked where it
// writes.
func (c *Candidate) IsLeader() bool {
	c.mu.Lock()
	lease := c.lease
	c.mu.Unlock()
	return lease != nil && lease.Err() == nil && lease.Remaining() > 0
}

// Term returns the current term, or false if this process does not lead.
func (c *Candidate) Term() (Term, bool) {
	c.mu.Lock()
	lease := c.lease
	c.mu.Unlock()
	if lease == nil || lease.Err() != nil { // outside the lock: Err may tell an observer, who asks this candidate
		return Term{}, false
	}
	return Term{lease}, true
}

// lookAgain is between two looks for a successor.
const lookAgain = 100 * time.Millisecond

// successor returns once another candidate waits for the key, and no later than the limit or the
// term's end.
func (c *Candidate) successor(lease *mongolock.Lease) {
	limit, cancel := context.WithTimeout(context.Background(), c.await)
	defer cancel()
	limit = lease.Context(limit)
	for {
		status, err := c.client.Inspect(limit, c.key)
		if err == nil && len(status.Waiting("")) > 0 || !backoff.Sleep(limit, lookAgain) {
			return
		}
	}
}

// Resign ends the term: fn's context ends with ErrResigned, and once fn has returned the key
// goes to a waiting candidate at once. This candidate waits for a second before it stands
// again; end Run's context to leave for good. Resign returns when the key is released, or ctx
// ends; at once if this process does not lead. With AwaitSuccessor the term ends only then.
func (c *Candidate) Resign(ctx context.Context) error {
	c.mu.Lock()
	resign, over := c.resign, c.over
	c.mu.Unlock()
	if resign == nil {
		return nil
	}
	resign()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("leader: resign %q: %w", c.key, context.Cause(ctx))
	}
}

func (c *Candidate) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.running
	c.running = true
	return !was
}

func (c *Candidate) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
}
