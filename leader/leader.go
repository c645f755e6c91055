package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

// Topic is that of the notices that leaders send. They name the key.
const Topic = "leaders"

// The kinds of those notices.
const (
	KindElected  = "elected"
	KindResigned = "resigned"
)

var (
	// ErrResigned is the cause of a term's context after Resign.
	ErrResigned = errors.New("leader: resigned")

	// ErrRunning: Run of a Candidate that is running.
	ErrRunning = errors.New("leader: the candidate is running already")
)

// standAside is how long a process that resigned leaves the key to others.
const standAside = time.Second

// A Term is one time in office.
type Term struct{ lease *mongolock.Lease }

// Token is greater than that of every earlier term.
func (t Term) Token() int64 { return t.lease.Token() }

// Lease is what the term rests on.
func (t Term) Lease() *mongolock.Lease { return t.lease }

// A Func is what a leader does. It is called anew in each term.
type Func func(ctx context.Context, term Term) error

// Run is New and Candidate.Run, for those who need to ask nothing in between.
func Run(ctx context.Context, l mongolock.Locker, key string, fn Func, opts ...mongolock.AcquireOption) error {
	c, err := New(l, key, opts...)
	if err != nil {
		return err
	}
	return c.Run(ctx, fn)
}

// A Candidate stands for one key. It is safe for concurrent use.
type Candidate struct {
	locker mongolock.Locker
	key    string
	opts   []mongolock.AcquireOption

	mu      sync.Mutex // protects what follows; never held across a call
	running bool
	lease   *mongolock.Lease        // of the term
	recall  context.CancelCauseFunc // ends it
	over    chan struct{}           // closed when the key is given back
}

// New makes a candidate. Options are those of each term's lease: TTL, Note. A
// MinHold is not for leaders: it would keep the key after they resigned.
func New(l mongolock.Locker, key string, opts ...mongolock.AcquireOption) (*Candidate, error) {
	switch {
	case l == nil:
		return nil, errors.New("leader: New: the locker is nil")
	case key == "":
		return nil, errors.New("leader: New: the key is empty")
	}
	return &Candidate{locker: l, key: key, opts: opts}, nil
}

// Run waits until this process leads, calls fn, and does so again when the term was
// lost or resigned, until ctx ends: then it returns nil, once fn has. It returns
// sooner if fn does while it leads, with fn's error: it has given up for good.
//
// A database that is out of reach it waits for; what is certain not to change
// (store.ErrForeign, ErrClosed, a wrong option) it returns.
func (c *Candidate) Run(ctx context.Context, fn Func) error {
	if fn == nil {
		return errors.New("leader: Run: fn is nil")
	}
	if !c.begin() {
		return ErrRunning
	}
	defer c.end()
	pause := 100 * time.Millisecond
	for {
		lease, err := c.locker.Acquire(ctx, c.key, c.opts...)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case !passing(err):
			return fmt.Errorf("leader: %q: %w", c.key, err)
		default:
			slog.Warn("leader: the key cannot be asked for, trying again", "key", c.key, "error", err)
			if !sleep(ctx, pause*9/10+rand.N(pause/5)) {
				return nil
			}
			pause = min(2*pause, 5*time.Second)
			continue
		}
		pause = 100 * time.Millisecond
		again, err := c.serve(ctx, lease, fn)
		if !again || ctx.Err() != nil {
			return err
		}
	}
}

// passing reports whether an error may be gone the next time.
func passing(err error) bool {
	for _, lasting := range []error{mongolock.ErrForeign, mongolock.ErrModeMismatch, mongolock.ErrClosed} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	// Wrong options have no store's error in them.
	return errors.Is(err, mongolock.ErrOutcomeUnknown) || errors.Is(err, store.ErrNotApplied) || errors.Is(err, mongolock.ErrHeld)
}

// serve is one term. again says that it did not end by fn's own will.
func (c *Candidate) serve(ctx context.Context, lease *mongolock.Lease, fn Func) (again bool, err error) {
	parent, recall := context.WithCancelCause(ctx)
	defer recall(nil)
	over := make(chan struct{})
	var notices sync.WaitGroup
	c.mu.Lock()
	c.lease, c.recall, c.over = lease, recall, over
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.lease, c.recall, c.over = nil, nil, nil
		c.mu.Unlock()
		if failed := lease.Release(); failed != nil && !errors.Is(failed, mongolock.ErrLost) {
			slog.Warn("leader: the key is not given back yet, going on in the background", "key", c.key, "error", failed)
		}
		close(over)
		notices.Go(func() { c.announce(KindResigned) })
		notices.Wait()
		if again && errors.Is(context.Cause(parent), ErrResigned) {
			sleep(ctx, standAside)
		}
	}()
	notices.Go(func() { c.announce(KindElected) })
	err = fn(lease.Context(parent), Term{lease})
	switch {
	case ctx.Err() != nil:
		if errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)) {
			err = nil // it stopped because it was told to
		}
		return false, err
	case lease.Err() != nil, parent.Err() != nil:
		return true, nil // fn's error is that of a term cut short, which is no news
	}
	return false, err
}

// announce tells those who watch.
func (c *Candidate) announce(kind string) {
	feed := feedOf(c.locker)
	if feed == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = feed.Notify(ctx, store.Notice{Topic: Topic, Key: c.key, Kind: kind}) // a hint: the poll makes up for it
}

// IsLeader reports whether this process leads now, by the term's deadline. It may
// not, an instant later: for what must not be done twice, check the token where
// it is written.
func (c *Candidate) IsLeader() bool {
	c.mu.Lock()
	lease := c.lease
	c.mu.Unlock()
	return lease != nil && lease.Err() == nil && lease.Remaining() > 0
}

// Term is the one in office; false if this process does not lead.
func (c *Candidate) Term() (Term, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease == nil || c.lease.Err() != nil {
		return Term{}, false
	}
	return Term{c.lease}, true
}

// Resign ends the term: fn's context ends with ErrResigned, and once fn has
// returned the key goes to whoever waits, at once. The candidate stands aside for a
// second and then stands again; end Run's context to leave for good. It returns
// when the key is given back, or ctx ends; at once if this process does not lead.
func (c *Candidate) Resign(ctx context.Context) error {
	c.mu.Lock()
	recall, over := c.recall, c.over
	c.mu.Unlock()
	if recall == nil {
		return nil
	}
	recall(ErrResigned)
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

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
