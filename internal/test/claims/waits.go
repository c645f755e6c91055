package claims

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
)

// waits are the claims about waiters.
var waits = []claim{
	{"AWaiterGetsTheKeySoonAfterTheReleaseAndNeverBefore", anyServer, aWaiterGetsTheKeySoonAfterTheRelease},
	{"TheEndOfAWaitMatchesItsContextAndErrHeld", anyServer, theEndOfAWaitMatchesItsContextAndErrHeld},
	{"WaitersOfOneClientAreServedInOrderOfArrival", Atomic, waitersOfOneClientAreServedInOrderOfArrival},
	{"AHundredContendersAreAllServedOneAtATime", Atomic, aHundredContendersAreAllServedOneAtATime},
	{"AWriterThatGivesUpLetsTheReadersIn", Atomic, aWriterThatGivesUpLetsTheReadersIn},
}

func aWaiterGetsTheKeySoonAfterTheRelease(t *testing.T, env Env) {
	one, two := env.client(t), env.client(t)
	for name, rival := range map[string]*mongolock.Client{"the same client": one, "another": two} {
		l := acquire(t, one, "k")
		wait := inBackground(within(t), rival)
		time.Sleep(time.Duration(env.Many) * env.TTL / 20)
		assert.Empty(t, wait, "%s: granted while held", name)
		start := time.Now()
		release(t, l)
		o := granted(t, wait)
		// A notice may come before the release that it tells of: then the claim is repeated 2 ms later.
		assert.LessOrEqual(t, o.when.Sub(start), env.LateWake()+2*time.Millisecond, "%s: from the release to the grant", name)
		assert.Greater(t, o.lease.Token(), l.Token(), "%s: the token rises", name)
		release(t, o.lease)
	}
}

func theEndOfAWaitMatchesItsContextAndErrHeld(t *testing.T, env Env) {
	one, two := env.client(t, mongolock.WithOwner("the holder")), env.client(t)
	l := acquire(t, one, "k")
	pause, cause := env.TTL/5, errors.New("lost interest")
	for name, rival := range map[string]*mongolock.Client{"the same client": one, "another": two} {
		ends := func(ctx context.Context, how string, opts ...mongolock.AcquireOption) error {
			start := time.Now()
			got, err := rival.Acquire(ctx, "k", opts...)
			env.took(t, start, pause, pause+env.Late(), name+", "+how)
			assert.Nil(t, got, "%s, %s", name, how)
			assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, "%s, %s", name, how)
			var held *mongolock.HeldError
			require.ErrorAs(t, err, &held, "%s, %s", name, how)
			require.Len(t, held.Holders, 1, "%s, %s", name, how)
			assert.Equal(t, "the holder", held.Holders[0].Owner, "%s, %s", name, how)
			assert.Positive(t, held.Left(), "%s, %s", name, how)
			return err
		}
		ctx, cancel := context.WithTimeout(within(t), pause)
		err := ends(ctx, "deadline")
		cancel()
		assert.ErrorIs(t, err, context.DeadlineExceeded, name)
		assert.ErrorIs(t, err, mongolock.ErrHeld, name)

		ctx, stop := context.WithCancelCause(within(t))
		time.AfterFunc(pause, func() { stop(cause) })
		err = ends(ctx, "cancel")
		assert.ErrorIs(t, err, context.Canceled, name)
		assert.ErrorIs(t, err, cause, name)
		assert.ErrorIs(t, err, mongolock.ErrHeld, name)

		err = ends(within(t), "MaxWait", mongolock.MaxWait(pause))
		assert.ErrorIs(t, err, mongolock.ErrHeld, name)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, name)
	}
	assert.NoError(t, l.Err(), "the holder was disturbed")
	release(t, l)
}

func waitersOfOneClientAreServedInOrderOfArrival(t *testing.T, env Env) {
	c := env.client(t)
	l := acquire(t, c, "k")
	var mu sync.Mutex // protects order
	var order []int
	var wg sync.WaitGroup
	for i := range 5 * env.Crowd {
		wg.Go(func() {
			l, err := c.Acquire(within(t), "k")
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			release(t, l)
		})
		until(t, "it stands in the queue", func() bool { return c.Stats().Waiters == i+1 })
	}
	release(t, l)
	wg.Wait()
	assert.Len(t, order, 5*env.Crowd)
	assert.True(t, slices.IsSorted(order), "served in the order %v", order)
}

func aHundredContendersAreAllServedOneAtATime(t *testing.T, env Env) {
	for _, n := range env.Contenders {
		contend(t, env, env.clients(t, n))
	}
}

func contend(t *testing.T, env Env, clients []*mongolock.Client) {
	t.Helper()
	start := time.Now()
	var wg sync.WaitGroup
	var inside, most, served atomic.Int64
	var mu sync.Mutex // protects tokens
	var tokens []int64
	for i := range 100 {
		wg.Go(func() {
			err := mongolock.Do(within(t), clients[i%len(clients)], "k", func(_ context.Context, l *mongolock.Lease) error {
				most.Store(max(most.Load(), inside.Add(1)))
				mu.Lock()
				tokens = append(tokens, l.Token())
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				inside.Add(-1)
				served.Add(1)
				return nil
			})
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	env.took(t, start, time.Second, 10*time.Second+10*env.LateWake(), "all together")
	assert.EqualValues(t, 100, served.Load(), "served")
	assert.EqualValues(t, 1, most.Load(), "inside at once")
	assert.True(t, slices.IsSorted(tokens), "the tokens are out of order")
	assert.Len(t, slices.Compact(tokens), 100, "two grants have one token")
}

func aWriterThatGivesUpLetsTheReadersIn(t *testing.T, env Env) {
	one, two := env.client(t), env.client(t)
	reader := acquire(t, one, "k", mongolock.Shared())
	ctx, cancel := context.WithCancel(within(t))
	writer := inBackground(ctx, two)
	refused := func(c *mongolock.Client) func() bool {
		return func() bool { return inside.Look(c, "k").Refused }
	}
	until(t, "the writer waits", refused(two))
	waiting := inBackground(within(t), one, mongolock.Shared())
	until(t, "the reader waits", refused(one))
	_, err := one.TryAcquire(within(t), "k", mongolock.Shared())
	require.ErrorIs(t, err, mongolock.ErrHeld, "a reader passes a writer that waits")
	start := time.Now()
	cancel()
	o := <-writer
	assert.ErrorIs(t, o.err, context.Canceled)
	assert.ErrorIs(t, o.err, mongolock.ErrHeld)
	let := granted(t, waiting)
	assert.LessOrEqual(t, let.when.Sub(start), env.LateWake()+10*time.Millisecond, "until the reader is let in")
	release(t, let.lease)
	release(t, reader)
	assert.Zero(t, env.Records(), "a record is left")
}
