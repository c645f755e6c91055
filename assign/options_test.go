package assign_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

func idle(ctx context.Context, _ assign.Partition) error { <-ctx.Done(); return ctx.Err() }

func TestBadInputIsNamedBeforeAnythingIsSent(t *testing.T) {
	in := newLink(memstore.New(), 1)
	client := lab.Client(t, in)
	run := func(name string, n int, fn assign.Func, opts ...assign.Option) error {
		return assign.Run(t.Context(), client, name, n, fn, opts...)
	}
	for want, got := range map[string]error{
		"assign: Run: the client is nil":                            assign.Run(t.Context(), nil, "orders", 1, idle),
		"assign: Run: the name is empty":                            run("", 1, idle),
		"assign: Run: the name has 1001 bytes: at most 1000":        run(strings.Repeat("n", 1001), 1, idle),
		"assign: Run: 0 partitions: must be from 1 to 5000":         run("orders", 0, idle),
		"assign: Run: 5001 partitions: must be from 1 to 5000":      run("orders", 5_001, idle),
		"assign: Run: fn is nil":                                    run("orders", 1, nil),
		"assign: a nil Option":                                      run("orders", 1, idle, nil),
		"assign: Weight(0): must be from 1 to 1000":                 run("orders", 1, idle, assign.Weight(0)),
		"assign: Prepare(nil): must not be nil":                     run("orders", 1, idle, assign.Prepare(nil)),
		"assign: Drain(-1ns): must not be negative":                 run("orders", 1, idle, assign.Drain(-1)),
		"assign: Settle(-1ns): must not be negative":                run("orders", 1, idle, assign.Settle(-1)),
		"assign: With: only TTL, MaxHold and MaxStall can be set":   run("orders", 1, idle, assign.With(mongolock.Shared())),
		"assign: WithLogger(nil): must not be nil":                  run("orders", 1, idle, assign.WithLogger(nil)),
		"assign: Grace(0s): must be positive\nassign: a nil Option": run("orders", 1, idle, assign.Grace(0), nil),
		"assign: Resize: the name is empty":                         assign.Resize(t.Context(), client, "", 1),
		"assign: Resize: -1 partitions: must be from 1 to 5000":     assign.Resize(t.Context(), client, "orders", -1),
		"assign: Look: the client is nil":                           look(t, nil),
	} {
		assert.EqualError(t, got, want)
	}
	assert.Zero(t, in.Count())
}

func look(t *testing.T, client *mongolock.Client) error {
	_, err := assign.Look(t.Context(), client, "orders")
	return err
}

func TestAnEndedContextStartsNothing(t *testing.T) {
	in := newLink(memstore.New(), 1)
	client := lab.Client(t, in)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, assign.Run(ctx, client, "orders", 1, idle))
	require.NoError(t, client.Close())
	assert.Zero(t, in.Count(lab.Acquire))
}

func TestAClosedClientIsAnError(t *testing.T) {
	client := lab.Client(t, memstore.New())
	require.NoError(t, client.Close())
	require.ErrorIs(t, assign.Run(t.Context(), client, "orders", 1, idle), mongolock.ErrClosed)
}
