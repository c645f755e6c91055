// Package claims is the suite of what a lease promises whatever it is stored in. The root
// runs it over memstore in virtual time, and internal/test/system on a real server.
package claims

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
)

// An Env is where a claim is tried. In virtual time its bounds are exact.
type Env struct {
	// Client returns a new client, as another process would have. It has sent nothing yet.
	Client func(opts ...mongolock.ClientOption) *mongolock.Client
	// Delete removes the record of a key, as an operator with a shell does.
	Delete func(key string)
	// Records is the number of keys with a record.
	Records func() int
	// Sent returns how many commands the clients have sent since it was last called.
	Sent func() int

	// TTL is a short one, which a claim may wait for.
	TTL time.Duration
	// Before returns the longest wait that surely ends before d has passed.
	Before func(d time.Duration) time.Duration
	// Late is how much later than due an answer may come.
	Late func() time.Duration
	// LateWake is how much later than due a waiter may hear of a key.
	LateWake func() time.Duration
	// Tolerance is how far a time that the store tells may be off.
	Tolerance time.Duration

	// Many is how often something is repeated that a server repeats only a few times.
	Many int
	// Crowd is how many clients do something at once.
	Crowd int
	// Contenders has the numbers of clients among which a hundred contenders are spread.
	Contenders []int
	// OneCommand says that a grant takes one command.
	OneCommand bool
	// Watched says that no clock tells that a lease is over, but whoever has watched it: behind a router.
	Watched bool
}

// A claim is a promise, and the test of it.
type claim struct {
	name  string
	needs Need
	holds func(t *testing.T, env Env)
}

// A Need is what a claim needs of a server.
type Need bool

const (
	anyServer Need = false
	// Atomic: conditional updates by several clients at once.
	Atomic Need = true
)

// Run runs every claim in an Env of its own: in makes it and passes it on.
func Run(t *testing.T, in func(t *testing.T, needs Need, holds func(t *testing.T, env Env))) {
	for _, all := range [][]claim{grants, waits, ends} {
		for _, c := range all {
			t.Run(c.name, func(t *testing.T) { in(t, c.needs, c.holds) })
		}
	}
}

// client is a client that has been in touch with the store.
func (e Env) client(t *testing.T, opts ...mongolock.ClientOption) *mongolock.Client {
	t.Helper()
	c := e.Client(opts...)
	_, err := c.Inspect(within(t), "warm")
	require.NoError(t, err)
	return c
}

// clients are several.
func (e Env) clients(t *testing.T, n int, opts ...mongolock.ClientOption) (all []*mongolock.Client) {
	t.Helper()
	for range n {
		all = append(all, e.client(t, opts...))
	}
	return all
}

// took fails unless the time since start lies between least and most, or is a little more.
func (e Env) took(t *testing.T, start time.Time, least, most time.Duration, what string) {
	t.Helper()
	took := time.Since(start)
	assert.GreaterOrEqual(t, took, least, "%s: time taken", what)
	assert.LessOrEqual(t, took, most, "%s: time taken", what)
}

// near fails unless a time that the store tells is the expected one.
func (e Env) near(t *testing.T, want, got time.Duration, what string) {
	t.Helper()
	assert.InDelta(t, want, got, float64(e.Tolerance), "%s: want %v, got %v", what, want, got)
}

// within is a context for one call. It ends long after any call that this suite makes.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func acquire(t *testing.T, c *mongolock.Client, key string, opts ...mongolock.AcquireOption) *mongolock.Lease {
	t.Helper()
	l, err := c.Acquire(within(t), key, opts...)
	require.NoError(t, err, "Acquire(%q)", key)
	return l
}

func release(t *testing.T, l *mongolock.Lease) {
	t.Helper()
	assert.NoError(t, l.Release(), "Release of %q", l.Key())
}

// mustBeHeld fails unless a try on the key is refused.
func mustBeHeld(t *testing.T, c *mongolock.Client, key string) {
	t.Helper()
	_, err := c.TryAcquire(within(t), key)
	assert.ErrorIs(t, err, mongolock.ErrHeld, "%q", key)
}

// An outcome is what an Acquire in the background came to.
type outcome struct {
	lease *mongolock.Lease
	err   error
	when  time.Time
}

// inBackground waits for "k".
func inBackground(ctx context.Context, c *mongolock.Client, opts ...mongolock.AcquireOption) <-chan outcome {
	ch := make(chan outcome, 1)
	go func() {
		l, err := c.Acquire(ctx, "k", opts...)
		ch <- outcome{l, err, time.Now()}
	}()
	return ch
}

func granted(t *testing.T, wait <-chan outcome) outcome {
	t.Helper()
	o := <-wait
	require.NoError(t, o.err)
	return o
}

// until waits until something comes true, and fails if that takes a minute.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		require.LessOrEqual(t, time.Since(begin), time.Minute, "never: %s", what)
	}
}

// ended is when a lease's Done is closed.
func ended(l *mongolock.Lease) <-chan time.Time {
	done := make(chan time.Time, 1)
	go func() { <-l.Done(); done <- time.Now() }()
	return done
}
